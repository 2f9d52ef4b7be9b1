"""A command's streams, environment and directory, its yes/no questions and exit codes."""

import json
import os
import select
import shlex
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, TextIO

from msgspec import Struct

from paddock import errors, limits
from paddock.pattern import lazy_pattern
from paddock.text.show import show_line
from paddock.values.calls import Json, Refusal


def wait(seconds: float) -> bool:
    time.sleep(seconds)
    return True


_OF_A_PLANE: Final = lazy_pattern(
    r"\bpaddock (?=(?:admin|agent|approvals|call|diff|doctor|gate|history|hook|ledger|mcp|network"
    r"|package|policy|run|sandbox|scratch|session|tools|trust|undo|web|where)\b)"
)
"""Commands that take this command's `--plane`; not `collector`, whose parts run on other hosts."""


class Console(Struct, frozen=True):
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    variables: Mapping[str, str]
    directory: Path
    wait: Callable[[float], bool] = wait
    """Sleeps that many seconds; returns whether a following command should poll again."""
    named: str | None = None
    """The value of `--plane`: added to the commands that are printed."""

    @classmethod
    def of_process(cls) -> "Console":
        """Return the console of this process.

        Characters that the terminal's encoding lacks are written as escapes, so that a
        file name cannot abort a command. Writing to a closed standard output fails, as
        on a full disk; output to a closed standard error is dropped.
        """
        # Threat: the descriptor of a closed stream goes to the next file that is opened, so
        # output for the stream could end up in a ledger.
        while (held := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(held)
        nothing = Path(os.devnull)
        stdin = sys.stdin or nothing.open(encoding="utf-8")
        # Read-only: a flush fails with EBADF (write(2)).
        stdout = sys.stdout or os.fdopen(os.open(nothing, os.O_RDONLY), "w", encoding="utf-8")
        stderr = sys.stderr or nothing.open("w", encoding="utf-8")
        for stream in (stdout, stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        try:
            here = _here(os.environ)
        except OSError:
            # It was removed: code that needs a directory fails on this path and reports it.
            here = Path("/proc/self/cwd")
        return cls(stdin, stdout, stderr, os.environ, here)

    def print(self, text: str) -> None:
        with _writing():
            self.stdout.write(text)

    def write_bytes(self, content: bytes) -> None:
        # A stream's encoding would change bytes that are signed or compared with a file.
        buffer = None if self.stdout.isatty() else getattr(self.stdout, "buffer", None)
        if buffer is None:
            self.print(content.decode(errors="backslashreplace"))
            return
        with _writing():
            self.stdout.flush()
            buffer.write(content)

    def flush(self) -> None:
        with _writing():
            self.stdout.flush()

    def say(self, text: str = "") -> None:
        rows = (show_line(row)[0] for row in text.split("\n"))
        self.print("\n".join(rows) + "\n")

    def write_json(self, value: Json) -> None:
        """Write one JSON value on one line; ASCII only, so that it cannot mislead a terminal."""
        self.print(json.dumps(value, ensure_ascii=True) + "\n")

    def warn(self, text: str) -> None:
        """Write one or more lines to stderr; ignore a stderr that cannot be written."""
        rows = (show_line(row)[0] for row in text.split("\n"))
        try:
            self.stderr.write("\n".join(rows) + "\n")
            self.stderr.flush()
        except OSError:
            # The exit status still reports the outcome and must not change for lost text.
            forget(self.stderr)

    def report(self, error: errors.PaddockError) -> None:
        self.warn(error.render().removesuffix(error.hint) + self.as_typed(error.hint))

    def as_typed(self, text: str) -> str:
        """Add the `--plane` in use to the commands in Paddock's own text.

        Threat: text shown for approval, or from a record, comes from elsewhere: never pass it here.
        """
        if not self.named:
            return text
        plane = shlex.quote(show_line(self.named)[0])
        return _OF_A_PLANE.sub(lambda found: f"{found[0]}--plane {plane} ", text)

    def advise(self, text: str) -> None:
        self.warn(self.as_typed(text))

    @property
    def is_interactive(self) -> bool:
        return self.stdin.isatty() and self.stderr.isatty()

    def agrees(self, question: str) -> bool:
        """Return True if a person answers yes in time. Raises: UsageError."""
        self.stdout.flush()
        if not self.is_interactive:
            raise errors.UsageError(
                "no terminal to ask on", hint="check what is shown above, then use --yes"
            )
        try:
            said = ask_yes(self.stdin, self.stderr, question, limits.approval_timeout_s)
        except NoTerminalError:
            return False
        return said is True

    def paint(self, text: str, code: str) -> str:
        plain = self.variables.get("NO_COLOR") or self.variables.get("TERM") == "dumb"
        if plain or not self.stdout.isatty():
            return text
        return f"\x1b[{code}m{text}\x1b[0m"


def _here(environment: Mapping[str, str]) -> Path:
    """Return the working directory by the shell's name for it, as `pwd -L` (POSIX) prints it."""
    named = environment.get("PWD", "")
    if named.startswith("/") and ".." not in Path(named).parts:
        with suppress(OSError, ValueError):
            if Path(named).samefile("."):
                return Path(named)
    return Path.cwd()


def forget(stream: TextIO) -> None:
    """Point a stream at /dev/null, or the interpreter's flush at exit reports the error again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _writing() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise errors.HostError(f"cannot write the output: {failure.strerror}") from failure


EXIT_DONE: Final = 0
EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 3
EXIT_INTEGRITY: Final = 4
EXIT_HOST: Final = 5
EXIT_DEFECT: Final = 70
# A shell reports a command that a signal ended as 128 + its number: here SIGINT and SIGPIPE.
EXIT_SIGNAL: Final = 128
EXIT_INTERRUPTED: Final = 130
EXIT_NOT_READ: Final = 141

_EXITS: Final[tuple[tuple[type[errors.PaddockError], int], ...]] = (
    (errors.UsageError, EXIT_USAGE),
    (errors.ConfigError, EXIT_CONFIG),
    (errors.IntegrityError, EXIT_INTEGRITY),
    (errors.HostError, EXIT_HOST),
    (errors.LedgerBusyError, EXIT_HOST),
    (errors.LedgerFullError, EXIT_HOST),
    # The call ran: EXIT_NO would report that it did not.
    (errors.LedgerUnknownError, EXIT_HOST),
    (errors.SandboxUnavailableError, EXIT_HOST),
    (errors.StorageFullError, EXIT_HOST),
    (errors.ToolError, EXIT_NO),
)


def exit_of_error(kind: type[errors.PaddockError]) -> int:
    return next((status for each, status in _EXITS if issubclass(kind, each)), EXIT_DEFECT)


def exit_of_call(refusal: Refusal | None) -> int:
    if refusal is None:
        return EXIT_DONE
    return exit_of_error(errors.TOOL_ERRORS.get(refusal.code, errors.ToolError))


_POLL_S: Final = 0.25
_READ_BYTES: Final = 4096
"""The most that a terminal gives at once (N_TTY_BUF_SIZE); a longer answer is discarded."""


class NoTerminalError(Exception):
    """There is no terminal to ask on."""


def ask_yes(source: TextIO, screen: TextIO, question: str, timeout_s: float) -> bool | None:
    try:
        descriptor = source.fileno()
        # Threat: keys typed before the question was shown would answer it. Flush before it is
        # written, so that an immediate answer is not lost.
        termios.tcflush(descriptor, termios.TCIFLUSH)
        screen.write(question)
        screen.flush()
        said = read_line(descriptor, timeout_s)
    except (OSError, termios.error, ValueError) as error:
        raise NoTerminalError from error
    return None if said is None else said.strip().lower() in (b"y", b"yes")


def read_line(descriptor: int, timeout_s: float, woken: int | None = None) -> bytes | None:
    """Read a line; return b"" at the end of input or once `woken` is readable, None on timeout.

    Read from the descriptor: a text stream stops at bytes that are not UTF-8, and on
    a terminal without line mode it would wait for a line end past any limit.
    """
    typed = b""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        # In slices: a Ctrl-C just before the wait is noticed after it.
        waiting = [descriptor] if woken is None else [descriptor, woken]
        ready, _, _ = select.select(waiting, [], [], min(left, _POLL_S))
        if not ready:
            continue
        if woken in ready:
            return b""
        read = os.read(descriptor, _READ_BYTES)
        typed += read
        if not read or len(typed) > _READ_BYTES:
            return b""
        if b"\n" in read:
            return typed
    return None


def keep_defect(home: Path, error: Exception, identity: str) -> str:
    """Save a traceback below Paddock's home; return its path, or "" if it cannot be saved."""
    import traceback  # noqa: PLC0415 - needed only for a defect

    path = home / "defects" / f"{identity}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return ""
    return str(path)
