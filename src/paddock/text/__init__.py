"""Text functions behind the tools: bytes in, bytes out, no I/O.

    edit       find and replace text, and show it with its neighbouring lines
    changes    diff two texts
    v4a        apply patches that find their place by context
    show       escape, number and cut text for display
    json       strict reader, writers, and an editor that keeps a file's formatting

Rules of all modules:
* a line ends with LF; a CR right before it belongs to the line end, a lone
  CR is an ordinary character;
* a byte-order mark is kept and never shown;
* an edit leaves all other bytes as they are: nothing is decoded and encoded again;
* display text escapes everything that could pass for a row, a header or a notice.
"""
