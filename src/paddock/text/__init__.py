"""The mechanics of text behind the tools: bytes in, bytes out, no I/O.

    check       is this text at all                locate      every place where a text stands
    splice      a new text in the place of an old  snippet     some lines round it
    changes     what changed between two texts     nearest     lines that nearly match
    show        text as somebody sees it           json_object    strict JSON from callers
    json_scan   where values stand in JSON         json_edit   pieces put into it and taken out

Rules kept here:
  * a line ends with LF; a CR right before it belongs to the line's end, a lone
    CR is an ordinary character;
  * a byte-order mark stays where it is and is never shown;
  * what an edit does not name is not touched: no decoding and encoding again;
  * what is shown escapes whatever could pass for a row, a header or a notice.
"""
