"""Where the program `paddock` begins. Loads nothing before a Ctrl-C ends it without a word.

Python tells of one that comes while modules load by a traceback: nobody is there yet to catch it.
"""

import gc
import os
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
    """Load msgspec with the `typing` of Python itself, and without `platform`.

    It prefers `typing_extensions`, which loads `inspect` and the compiler's modules: as long
    as msgspec itself. Its `uuid` asks `platform` for the system's name alone, which compiles a
    dozen patterns. In a program's first thread nobody else can be loading them meanwhile.
    """
    # None makes an import of it fail.
    instead = {"typing_extensions": None, "platform": _System}
    kept = {name: each for name, each in instead.items() if name not in sys.modules}
    sys.modules.update(kept)  # type: ignore[arg-type] - no modules, and found as such
    try:
        import_module("msgspec")
    finally:
        for name in kept:
            del sys.modules[name]


class _System:
    @staticmethod
    def system() -> str:
        return os.uname().sysname
