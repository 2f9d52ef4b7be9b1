"""Start the program `paddock`. Until its modules are loaded, a Ctrl-C ends it silently.

Python would print a traceback for a Ctrl-C during imports: no handler is there yet to catch it.
"""

import gc
import os
import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, NoReturn
else:
    # `signal` would load `enum`, for longer than all the rest.
    import _signal as signal

_COLLECTED_EVERY = 100_000
"""New objects between two garbage collections; Python's default is 700."""


def console() -> None:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # Loaded modules stay: scanning them repeatedly for cycles costs a short call too much.
    gc.set_threshold(_COLLECTED_EVERY)
    _load_libraries()
    from paddock.apps.cli import main

    signal.signal(signal.SIGINT, before)
    main.console(_end)


def _end(status: int) -> "NoReturn":
    """Exit without the interpreter's teardown, which costs 4 % of a short call.

    The output is flushed already. If a thread runs or an exit handler waits, exit normally.
    """
    import atexit
    import threading

    waits = atexit._ncallbacks()  # noqa: SLF001  # pyright: ignore[reportPrivateUsage] - no other
    if threading.active_count() == 1 and not waits:
        os._exit(status)
    gc.freeze()  # Saves a last scan for cycles.
    sys.exit(status)


def _load_libraries() -> None:
    """Load the libraries that every call needs without imports that no call needs.

    Those imports take as long as the libraries. msgspec prefers `typing_extensions`, which
    loads `inspect` and the compiler's modules; its `uuid` needs only the system's name from
    `platform`, which compiles a dozen patterns. The others are imported for functions that
    few programs call. No other thread runs yet that could import them meanwhile.
    """
    # None makes an import of the module fail.
    instead: dict[str, Any] = {"typing_extensions": None, "platform": _System}
    for name in ("inspect", "msgpack", "toml", "yaml"):
        instead[f"msgspec.{name}"] = _Late(f"msgspec.{name}")
    instead["msgspec._json_schema"] = _Late("msgspec._json_schema", "schema", "schema_components")
    instead["urllib.parse"] = _Late("urllib.parse", "quote_from_bytes")
    instead["gettext"] = _Late("gettext", "gettext", "ngettext")
    kept = {name: each for name, each in instead.items() if name not in sys.modules}
    sys.modules.update(kept)
    try:
        for name in ("msgspec", "pathlib", "argparse"):
            import_module(name)
    finally:
        for name in kept:
            sys.modules.pop(name, None)


class _System:
    @staticmethod
    def system() -> str:
        return os.uname().sysname


class _Late(ModuleType):
    """A module that is loaded on first use of an attribute or call of one of `functions`."""

    def __init__(self, name: str, *functions: str) -> None:
        super().__init__(name)
        for each in functions:
            setattr(self, each, self._late(each))

    def _late(self, function: str) -> "Callable[..., object]":
        def call(*given: object, **named: object) -> object:
            return self.__getattr__(function)(*given, **named)

        return call

    def __getattr__(self, name: str) -> "Any":
        if name.startswith("__"):
            raise AttributeError(name)  # asked by the import system, which copes without it
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(import_module(self.__name__), name)
