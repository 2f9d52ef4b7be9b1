"""Where the program `paddock` begins. Loads nothing before a Ctrl-C ends it without a word.

Python tells of one that comes while modules load by a traceback: nobody is there yet to catch it.
"""

import signal


def console() -> None:
    """Load the command line, and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from paddock.apps.cli import main

    signal.signal(signal.SIGINT, before)
    main.console()
