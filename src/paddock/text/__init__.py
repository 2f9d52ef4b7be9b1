"""The mechanics of text behind the tools: bytes in, bytes out, no I/O.

    edit       a new text in the place of an old one: found, put in, shown with the lines round it
    changes    what changed between two texts
    v4a        patches that find their place by context
    show       text as somebody sees it
    json       one strict reader, where values stand, the writers; pieces put in and taken out

Rules kept here:
  * a line ends with LF; a CR right before it belongs to the line's end, a lone
    CR is an ordinary character;
  * a byte-order mark stays where it is and is never shown;
  * what an edit does not name is not touched: no decoding and encoding again;
  * what is shown escapes whatever could pass for a row, a header or a notice.
"""
