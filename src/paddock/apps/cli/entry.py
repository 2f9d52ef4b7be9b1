"""Where the program `paddock` begins. Loads nothing before a Ctrl-C ends it without a word.

Python tells of one that comes while modules load by a traceback: nobody is there yet to catch it.
"""

import _signal


def console() -> None:
    """Load the command line, and run it."""
    before = _signal.getsignal(_signal.SIGINT)
    if before is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    from paddock.apps.cli import main

    _signal.signal(_signal.SIGINT, before)
    main.console()
