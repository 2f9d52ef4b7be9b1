"""What a command talks to: streams, environment, directory, a person; and its exit codes."""

import json
import os
import select
import shlex
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
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
"""Commands that work on a plane and are typed where this one was; not so `collector`, of others."""


class Console(Struct, frozen=True):
    stdin: TextIO
    stdout: TextIO
    stderr: TextIO
    variables: Mapping[str, str]
    directory: Path
    wait: Callable[[float], bool] = wait
    """For a command that waits for more: lets seconds pass, and says whether to wait again."""
    named: str | None = None
    """What `--plane` named: the commands that are printed name it as well."""

    @classmethod
    def of_process(cls) -> "Console":
        """The console of this process.

        Streams are set to write what the terminal's encoding lacks as escapes, so
        that a file name cannot end a command. What is written to a standard output
        that was closed fails, as on a full disk; a closed standard error is silence.
        """
        # Threat: a stream that was closed leaves its number to the next file that is opened,
        # and what is written to the stream would end up in a ledger.
        while (held := os.open(os.devnull, os.O_RDWR)) <= 2:
            pass
        os.close(held)
        nothing = Path(os.devnull)
        stdin = sys.stdin or nothing.open(encoding="utf-8")
        stdout = sys.stdout or _unwritable(nothing)
        stderr = sys.stderr or nothing.open("w", encoding="utf-8")
        for stream in (stdout, stderr):
            reconfigure = getattr(stream, "reconfigure", None)
            if reconfigure is not None:
                reconfigure(errors="backslashreplace")
        try:
            here = _here(os.environ)
        except OSError:
            # It was removed: whoever needs a directory finds none there, and says so.
            here = Path("/proc/self/cwd")
        return cls(stdin, stdout, stderr, os.environ, here)

    def print(self, text: str) -> None:
        with _writing():
            self.stdout.write(text)

    def write_bytes(self, content: bytes) -> None:
        # A stream's encoding would change what is signed, and what is compared with a file.
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
        """One JSON value on one line; ASCII only, so that no terminal can be misled."""
        self.print(json.dumps(value, ensure_ascii=True) + "\n")

    def warn(self, text: str) -> None:
        """One line, or several, on stderr. Where that cannot be written, nobody is told."""
        rows = (show_line(row)[0] for row in text.split("\n"))
        try:
            self.stderr.write("\n".join(rows) + "\n")
            self.stderr.flush()
        except OSError:
            # The exit status says it still: it is not given up for the words.
            forget(self.stderr)

    def report(self, error: errors.PaddockError) -> None:
        self.warn(error.render().removesuffix(error.hint) + self.as_typed(error.hint))

    def as_typed(self, text: str) -> str:
        """Text of ours, with the commands in it as they have to be typed for the plane named here.

        Threat: what is shown for an answer, or as a record, is somebody else's and stays as it is.
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
        """Return True where a person says yes to what was shown, in time. Raises: UsageError."""
        self.stdout.flush()
        if not self.is_interactive:
            raise errors.UsageError(
                "there is no terminal to ask on", hint="look at it, then use --yes"
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
    """The working directory by the name that the shell has for it, as `pwd -L` (POSIX) says it."""
    named = environment.get("PWD", "")
    if named.startswith("/") and ".." not in Path(named).parts:
        try:
            if Path(named).samefile("."):
                return Path(named)
        except (OSError, ValueError):
            return Path.cwd()
    return Path.cwd()


def _unwritable(file: Path) -> TextIO:
    """Stand in for a closed standard output: a flush fails as write(2) says (EBADF)."""
    return os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC), "w", encoding="utf-8")


def forget(stream: TextIO) -> None:
    """Point a stream elsewhere, or the interpreter's own flush at exit complains once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextmanager
def _writing() -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as failure:
        raise errors.HostError(f"output cannot be written: {failure.strerror}") from failure


EXIT_DONE: Final = 0
EXIT_NO: Final = 1
EXIT_USAGE: Final = 2
EXIT_CONFIG: Final = 3
EXIT_INTEGRITY: Final = 4
EXIT_HOST: Final = 5
EXIT_DEFECT: Final = 70
# As a shell reports a command that a signal ended, with its number: so SIGINT, so SIGPIPE.
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
    # The call ran: "no" would say that it did not.
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


_LOOK_S: Final = 0.25
_READ_BYTES: Final = 4096
"""As much as a terminal gives at once (N_TTY_BUF_SIZE); a longer answer is no answer."""


class NoTerminalError(Exception):
    """Nobody can be asked here."""


def ask_yes(source: TextIO, screen: TextIO, question: str, timeout_s: float) -> bool | None:
    try:
        descriptor = source.fileno()
        # Threat: keys that were typed before the question stood there would answer it. Whoever
        # answers as soon as it is there must be heard.
        termios.tcflush(descriptor, termios.TCIFLUSH)
        screen.write(question)
        screen.flush()
        said = read_line(descriptor, timeout_s)
    except (OSError, termios.error, ValueError) as error:
        raise NoTerminalError from error
    return None if said is None else said.strip().lower() in (b"y", b"yes")


def read_line(descriptor: int, timeout_s: float, woken: int | None = None) -> bytes | None:
    """What was typed up to a line end; nothing at the end of input, None when time is up.

    Nothing as well once the descriptor `woken` is readable.

    Read from the descriptor: a text stream stops at bytes that are no UTF-8, and on
    a terminal without line mode it would wait for a line end past any limit.
    """
    typed = b""
    deadline = time.monotonic() + timeout_s
    while (left := deadline - time.monotonic()) > 0:
        # In slices: a Ctrl-C that came just before the wait is noticed after it.
        waiting = [descriptor] if woken is None else [descriptor, woken]
        ready, _, _ = select.select(waiting, [], [], min(left, _LOOK_S))
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
    """Keep a traceback for a report, below Paddock's own home; return where, or nothing."""
    import traceback  # noqa: PLC0415 - for a defect

    path = home / "defects" / f"{identity}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except OSError:
        return ""
    return str(path)
