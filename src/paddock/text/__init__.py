"""The mechanics of text behind the tools: bytes in, bytes out, no I/O.

Rules kept here:
  * a line ends with LF; a CR right before it belongs to the line's end, a lone
    CR is an ordinary character;
  * a byte-order mark stays where it is and is never shown;
  * what an edit does not name is not touched: no decoding and encoding again;
  * what is shown escapes whatever could pass for a row, a header or a notice.
"""
