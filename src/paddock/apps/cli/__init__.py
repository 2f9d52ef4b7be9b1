"""The command line: one module a command, loaded only when it is called.

Rules kept here:
  * results on stdout, everything else on stderr; `--json` gives one JSON value;
  * no traceback ever reaches a user: a defect has an id and a report file;
  * names and texts from elsewhere are escaped before a terminal sees them.
"""
