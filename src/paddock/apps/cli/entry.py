"""Where the program `paddock` begins. Loads nothing before a Ctrl-C ends it without a word.

Python tells of one that comes while modules load by a traceback: nobody is there yet to catch it.
"""

import gc
import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
else:
    # `signal` would load `enum`, for longer than all the rest.
    import _signal as signal

_COLLECTED_EVERY = 100_000
"""New objects between two looks for cycles; Python's own number is 700."""


def console() -> None:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is loaded stays: a short call need not look through it for cycles again and again.
    gc.set_threshold(_COLLECTED_EVERY)
    _load_msgspec()
    from paddock.apps.cli import main

    signal.signal(signal.SIGINT, before)
    try:
        main.console()
    finally:
        # Python's own end looks through all that was loaded again: a quarter of a short call.
        gc.freeze()


def _load_msgspec() -> None:
    """Load msgspec with the `typing` of Python itself.

    It prefers `typing_extensions`, which loads `inspect` and the compiler's modules: as long
    as msgspec itself. In a program's first thread nobody else can be loading it meanwhile.
    """
    name = "typing_extensions"
    if name in sys.modules:
        return
    sys.modules[name] = None  # type: ignore[assignment] - None makes an import of it fail
    try:
        import_module("msgspec")
    finally:
        del sys.modules[name]
