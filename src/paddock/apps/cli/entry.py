"""Where the program `paddock` begins. Loads nothing before a Ctrl-C ends it without a word.

Python tells of one that comes while modules load by a traceback: nobody is there yet to catch it.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # `signal` would load `enum`, for longer than all the rest.
    import _signal as signal


def console() -> None:
    """Load the command line, and run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from paddock.apps.cli import main

    signal.signal(signal.SIGINT, before)
    main.console()
