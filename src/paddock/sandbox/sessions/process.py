"""One command that goes on running: what it printed, what it is given, its view, how it ended.

Its view of the workspace is kept up with that:

    lay       what somebody else changed is changed there, too, through its own mount
    copy      what it changed so far, apart: judged and landed while it goes on
    take_out  at its end: what was laid and left alone is no change of its own

All by descriptors, from outside: the layer is written by a hostile program at the same time. While
one of these looks and writes, the processes stand still (`protocol.HOLD`).
"""

import contextlib
import fcntl
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    HostError,
    InvalidArgumentsError,
    PaddockError,
    SandboxUnavailableError,
)
from paddock.sandbox.changes.commit import CommitPlace
from paddock.sandbox.changes.differences import CommandBaseline
from paddock.sandbox.changes.upper import MARKS, OPAQUE, Look, look_at
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.git.tracked import INDEX_BYTES_MAX
from paddock.sandbox.hidden import KnownDirectory
from paddock.sandbox.host.host_facts import directories_above, find_content
from paddock.sandbox.inside import protocol
from paddock.sandbox.inside.protocol import Laid
from paddock.sandbox.launcher import StageDirectories
from paddock.sandbox.staged import CopiedLayer, Ran, StagedCommand
from paddock.sandbox.streams import (
    BYTES_A_CHARACTER_MAX,
    OUTPUT_BYTES,
    Spooling,
    safe_text,
    whole_characters,
)
from paddock.sandbox.values import PreparedLine, ShellOutcome
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import DIRECTORY, Disk
from paddock.values.calls import Cancel
from paddock.workspace.workspace import READ_FILE, detect_resolution

_GRACE_S: Final = 2.0
"""From the wish that it ends to its end by force."""
_WRITE_S: Final = 5.0
_WRITE_AGAIN_S: Final = 0.02
_END_OF_INPUT: Final = "\x04"
LAID_MAX: Final = 5_000
"""Paths of one change that a running command is shown; of more it is told to start anew."""
_SHOWN_KINDS: Final = (NodeKind.FILE, NodeKind.DIRECTORY, NodeKind.LINK)
_ANSWER_S: Final = 10.0

Mark = tuple[int, ...]
"""Of an entry: as long as it is the same, nobody has changed it."""
_WHITEOUT: Final[Mark] = (0,)
_NEVER: Final[Mark] = (-1,)
"""Of what somebody else changed after the command did: whatever stands there is a conflict."""


class Printed(Struct, frozen=True):
    """A part of what was printed, as text; `begins` and `ends` count bytes from the first."""

    text: str
    begins: int
    ends: int
    missing: int = 0
    """Bytes before `begins` that are not kept."""


class Transcript:
    """The last of what a command printed, both streams in their order. Safe for threads."""

    def __init__(self, bytes_max: int = OUTPUT_BYTES) -> None:
        self._bytes_max = bytes_max
        self._kept = bytearray()
        self._total = 0
        self._told = 0
        self._is_ended = False
        self._changed = threading.Condition()

    def add(self, _: Literal["stdout", "stderr"], chunk: bytes) -> None:
        with self._changed:
            self._kept += chunk
            self._total += len(chunk)
            # Half as much again, so that not every chunk moves all that is kept.
            if len(self._kept) > self._bytes_max * 3 // 2:
                del self._kept[: len(self._kept) - self._bytes_max]
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def read(self, offset: int | None, wait_s: float, cancel: Cancel) -> Printed:
        """Return what was printed from `offset` on, else since this was last asked; wait for some.

        Waits at most `wait_s`, and not for a command that has ended.
        """
        undo = cancel.on_cancel(self._wake)
        try:
            with self._changed:
                begin = self._told if offset is None else offset
                self._changed.wait_for(
                    lambda: self._end > begin or self._is_ended or cancel.is_cancelled, wait_s
                )
                first = self._total - len(self._kept)
                at = min(max(begin, first), self._end)
                content = bytes(self._kept[at - first : self._end - first])
                if len(content) > self._bytes_max:
                    content = whole_characters(content[: self._bytes_max])
                self._told = end = at + len(content)
        finally:
            undo()
        return Printed(safe_text(content), at, end, max(0, at - begin))

    @property
    def _end(self) -> int:
        """Return how far it can be told: a character that has come in part waits for its rest."""
        last = bytes(self._kept[-BYTES_A_CHARACTER_MAX:])
        return self._total - (0 if self._is_ended else len(last) - len(whole_characters(last)))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Process:
    """Owned by one shell; `begin` runs it in a thread of its own."""

    def __init__(self, name: str, prepared: PreparedLine, spooling: Spooling) -> None:
        self.name = name
        self.prepared = prepared
        self.spooling = spooling
        self.transcript = Transcript()
        self.turn = threading.Lock()
        """Held by who finishes it, or takes its changes."""
        self.view: LiveView | None = None
        self.command: StagedCommand | None = None
        self.failure: PaddockError | None = None
        self.outcome: ShellOutcome | None = None
        """Of one that has ended, once it was concluded."""
        self.has_terminal = prepared.line.terminal[1] > 0
        self._input = -1
        self._input_lock = threading.Lock()
        self._typing = threading.Lock()
        """Held by who gives it text; who stops it does not wait for that."""
        self._thread: threading.Thread | None = None
        self.begun = threading.Event()
        """Set when its command was sent into its sandbox."""
        self._has_input = threading.Event()
        self._ended = threading.Event()

    def begin(self, run: Callable[[], StagedCommand], on_end: Callable[[], None]) -> None:
        """Start it; return when its sandbox is there. Raises: what `run` raises before."""

        def serve() -> None:
            try:
                self.command = run()
            except PaddockError as error:
                self.failure = error
            finally:
                self._close_input()
                self._ended.set()
                self.begun.set()
                self._has_input.set()
                self.transcript.end()
                on_end()

        self._thread = threading.Thread(target=serve, name=f"paddock-{self.name}", daemon=True)
        self._thread.start()
        self.begun.wait()
        if self.failure is not None:
            raise self.failure

    def join(self) -> None:
        """Wait until who hears of its end has heard of it."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def show(self, view: "LiveView") -> None:
        self.view = view

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def open_input(self) -> int:
        """Return the end of a pipe that its command reads from."""
        theirs, self._input = os.pipe()
        os.set_blocking(self._input, False)
        self._has_input.set()
        return theirs

    def take_terminal(self, fd: int) -> None:
        self._close_input()
        self._input = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._has_input.set()

    def write(self, text: str) -> int:
        """Give it text; return how many bytes it took within five seconds.

        A lone end of input (^D) closes the input of one that has no terminal. Raises:
        InvalidArgumentsError for one that takes no input any more.
        """
        self._has_input.wait(_WRITE_S)
        with self._typing:
            if self._input < 0 or not self.is_running:
                raise InvalidArgumentsError(
                    f"{self.name} takes no input: it has ended, or its input was closed",
                    where="process",
                    hint="shell_output shows what it printed",
                )
            if text == _END_OF_INPUT and not self.has_terminal:
                self._close_input()
                return 1
            return self._write(text.encode("utf-8", "surrogateescape"))

    def offer(self, content: bytes) -> int:
        """Give it what it takes at once; return how many bytes that were."""
        with self._input_lock, contextlib.suppress(BlockingIOError, BrokenPipeError):
            return os.write(self._input, content) if self._input >= 0 else 0
        return 0

    def _write(self, content: bytes) -> int:
        until_s, taken = time.monotonic() + _WRITE_S, 0
        while taken < len(content) and time.monotonic() < until_s:
            taken += self.offer(content[taken:])
            if taken < len(content) and self._ended.wait(_WRITE_AGAIN_S):
                break
        return taken

    def stop(self) -> None:
        """Ask it to end, then end it with all that it started; return when it has."""
        if self.view is not None:
            self.view.ask_to_end()
            if not self._ended.wait(_GRACE_S):
                self.view.end()
        self._ended.wait()

    def _close_input(self) -> None:
        with self._input_lock:
            fd, self._input = self._input, -1
            if fd >= 0:
                os.close(fd)


# --- its view of the workspace --------------------------------------------------


class LiveView:
    def __init__(
        self,
        stage: StageDirectories,
        place: CommitPlace,
        ran: Ran,
        is_closed: Callable[[str], bool],
    ) -> None:
        """`is_closed`: whether the command may not see what stands at a path."""
        self._stage, self._ran, self.place, self._is_closed = stage, ran, place, is_closed
        for index in ran.indexes.values():
            index.read()
        self._workspace = os.fsencode(ran.request.plan.workspace)
        self._resolution = detect_resolution()
        self._lock = threading.RLock()
        self._laid: dict[str, Mark] = {}
        self._bases: dict[str, Mark | None] = {}
        self._directories: dict[str, KnownDirectory] = {}
        self._dead: set[str] = set()
        self.hidden = frozenset(ran.request.plan.hidden)
        """What it may not see, as far as that was there."""
        self.own: set[str] = set()
        """What somebody else changed and the command had changed before: it keeps its own."""
        self.unseen: set[str] = set()
        """What somebody else changed and could not be changed in the view."""

    def ground(self, start: CommandBaseline) -> CommandBaseline:
        """Return what its changes are compared with by now."""
        with self._lock:
            directories = {**start.directories, **self._directories}
            return replace(start, directories=directories, bases=dict(self._bases))

    def ask_to_end(self) -> None:
        """Send its processes the signal by which a program is asked to end."""
        with contextlib.suppress(OSError):
            self._stage.control.send(protocol.TERMINATE)

    def end(self) -> None:
        """Have all of it killed."""
        with contextlib.suppress(OSError):
            # Its first process sees our end close.
            self._stage.control.shutdown(socket.SHUT_WR)

    @contextlib.contextmanager
    def held(self) -> Generator[socket.socket]:
        """Have its processes stand still. Raises: HostError: they do not, or have ended."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock, ours, host_error("a running command cannot be held"):
            with theirs:
                socket.send_fds(self._stage.control, [protocol.HOLD], [theirs.fileno()])
            ours.settimeout(_ANSWER_S)
            if ours.recv(16) != protocol.HELD:
                raise HostError("a running command does not stand still", hint="try again")
            yield ours

    def lay(self, paths: Collection[str]) -> bool:
        """Show what stands at these paths now; False where it does not stand still, or has ended.

        Then `unseen` says so: what somebody changed is done, whoever sees it.
        """
        try:
            self._lay_all(paths)
        except HostError:
            self.unseen.update(paths)
            return False
        return True

    def _lay_all(self, paths: Iterable[str]) -> None:
        """Parents first."""
        wanted = {above for path in paths for above in (*directories_above(path), path)}
        root = self._stage.workspace_fd
        with self.held() as door, held_open(self._stage.open_upper()) as upper:
            found = {path: look_at(root, path) for path in sorted(wanted)}
            gone = [path for path in reversed(found) if found[path] is None]
            # What is gone goes first, from below: a file may take the place of a directory.
            for path in (*gone, *(path for path in found if found[path] is not None)):
                # Threat: a secret that comes while it runs, and that nothing hides from it.
                look = None if self._is_closed(path) else found[path]
                if look is None or look.kind in _SHOWN_KINDS:
                    self._lay(door, upper, path, look)

    def _lay(self, door: socket.socket, upper: int, path: str, now: Look | None) -> None:
        seen = _mark_at(upper, path)
        if seen is not None and stat.S_ISDIR(seen[0]) and _is_plain_directory(upper, path):
            # Of a layer: something below it was changed, by the command or for it.
            if now is not None and now.kind is NodeKind.DIRECTORY:
                return
        elif now is None and seen == _WHITEOUT:
            # Both removed it.
            self._laid[path] = _WHITEOUT
            self._know(path, None)
            return
        elif self._is_own(upper, path, seen):
            self.own.add(path)
            self._bases.setdefault(path, _NEVER)
            return
        content, laid = self._content(path, now)
        try:
            socket.send_fds(door, [laid.encode()], [content] if content >= 0 else [])
        finally:
            if content >= 0:
                os.close(content)
        is_done = door.recv(16) == b"0"
        made = _mark_at(upper, path)
        if made is None:
            self._laid.pop(path, None)
        else:
            self._laid[path] = made
        if not is_done and now is None and (made is None or stat.S_ISDIR(made[0])):
            # A directory that went with the layer below cannot be removed from the view (its place
            # is dead, overlayfs says): it stays there, and looks empty whatever comes into it.
            self._dead.add(path)
        elif not is_done:
            self.unseen.add(path)
            return
        is_listed = now is None or self._dead.isdisjoint(directories_above(path))
        (self.unseen.discard if is_listed else self.unseen.add)(path)
        self._know(path, now)

    def _content(self, path: str, now: Look | None) -> tuple[int, Laid]:
        at = b"%b/%b" % (self._workspace, os.fsencode(path))
        if now is None:
            return -1, Laid(b"gone", at)
        if now.kind is NodeKind.DIRECTORY:
            return -1, Laid(b"directory", at, mode=now.mode)
        if now.kind is NodeKind.LINK:
            text = os.readlink(os.fsencode(path), dir_fd=self._stage.workspace_fd)
            return -1, Laid(b"link", at, text=os.fsencode(text))
        fd = self._resolution.open(self._stage.workspace_fd, path, READ_FILE)
        modified_ns = now.status.modified_ns
        return fd, Laid(b"file", at, mode=now.mode, modified_ns=modified_ns)

    def _has_own(self, upper: int, path: str) -> bool:
        """Whether the command put something of its own in the way there."""
        for above in directories_above(path):
            found = _mark_at(upper, above)
            if found is not None and (found == _WHITEOUT or not _is_plain_directory(upper, above)):
                return above not in self._laid or self._laid[above] != found
        return False

    def _is_own(self, upper: int, path: str, seen: Mark | None) -> bool:
        """Decide whether the command changed it; of git's index, more than what that notes."""
        if seen == self._laid.get(path) and not self._has_own(upper, path):
            return False
        index = self._ran.indexes.get(path)
        return index is None or not index.is_known(
            find_content(upper, path, INDEX_BYTES_MAX), is_last=False
        )

    def _know(self, path: str, now: Look | None) -> None:
        if path in self._ran.indexes:
            self._ran.indexes[path].learn(self._stage.workspace_fd)
        self._bases[path] = None if now is None else now.mark
        if now is not None and now.kind is NodeKind.DIRECTORY:
            identity = (*now.identity, 0, 0)
            self._directories[path] = KnownDirectory(identity, now.mode, True, (), ())

    # --- what it changed so far ------------------------------------------------------

    def copy(self) -> tuple[CopiedLayer, Ran]:
        """Copy its changes while it stands still, as a command that has ended with them.

        Raises: HostError; SandboxUnavailableError where its repository stands outside.
        """
        if self._ran.git is not None:
            raise SandboxUnavailableError(
                "the repository of this workspace stands outside of it: what a running command "
                "changes there cannot be taken apart",
                hint="end it with shell_stop; then its changes are brought in",
            )
        copied = CopiedLayer.make(self._stage.running)
        with (
            contextlib.ExitStack() as undo,
            host_error("the changes of a command cannot be copied"),
        ):
            undo.callback(copied.close)
            with self.held(), held_open(self._stage.open_upper()) as upper:
                _copy(upper, copied.fd, self._laid, copied.marks)
                ground = self.ground(self._ran.ground)
            undo.pop_all()
        return copied, replace(self._ran, stage=copied, ground=ground)

    def landed(self, paths: Iterable[str], marks: Mapping[str, Mark]) -> None:
        """Take what landed for the new base, as far as the command has it so."""
        with self._lock:
            for path in paths:
                if path in marks:
                    self._laid[path] = marks[path]
                self._know(path, look_at(self._stage.workspace_fd, path))

    def take_out(self) -> None:
        """Remove from the layer of an ended command what was laid and left alone."""
        with held_open(self._stage.open_upper()) as upper:
            for path in sorted(self._laid, reverse=True):
                mark = _mark_at(upper, path)
                if mark is None or mark != self._laid[path]:
                    continue
                with contextlib.suppress(OSError):
                    # A directory that holds something of its own stays.
                    _remove(upper, path, is_directory=stat.S_ISDIR(mark[0]))


def _mark_at(upper: int, path: str) -> Mark | None:
    """Return the mark of what the layer has there, following no link."""
    parent, _, name = path.rpartition("/")
    try:
        with held_open(detect_resolution().open(upper, parent or ".", DIRECTORY)) as fd:
            return _mark(os.stat(name, dir_fd=fd, follow_symlinks=False))
    except OSError:
        return None


def _mark(found: os.stat_result) -> Mark:
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
        # Overlays give all of them one inode.
        return _WHITEOUT
    if stat.S_ISDIR(found.st_mode):
        return found.st_mode, found.st_ino
    times = found.st_mtime_ns, found.st_ctime_ns
    return found.st_mode, found.st_ino, found.st_size, *times


def _is_plain_directory(upper: int, path: str) -> bool:
    try:
        with held_open(detect_resolution().open(upper, path, DIRECTORY)) as fd:
            return OPAQUE not in os.listxattr(fd)
    except OSError:
        return False


def _remove(upper: int, path: str, *, is_directory: bool) -> None:
    parent, _, name = path.rpartition("/")
    with held_open(detect_resolution().open(upper, parent or ".", DIRECTORY)) as fd:
        if is_directory:
            os.rmdir(name, dir_fd=fd)
        else:
            os.unlink(name, dir_fd=fd)


def _copy(
    source: int, target: int, laid: Mapping[str, Mark], marks: dict[str, Mark], prefix: str = ""
) -> None:
    """Copy a layer, marks of the overlay and all, but for what was laid and left alone."""
    for name in sorted(os.listdir(source)):
        path, found = prefix + name, os.stat(name, dir_fd=source, follow_symlinks=False)
        mark = _mark(found)
        is_directory = stat.S_ISDIR(found.st_mode)
        if laid.get(path) == mark and not is_directory:
            continue
        if is_directory:
            os.mkdir(name, 0o700, dir_fd=target)
            with (
                _opened(source, name, found, DIRECTORY) as below,
                held_open(os.open(name, DIRECTORY, dir_fd=target)) as made,
            ):
                _copy_marks(below, made)
                _copy(below, made, laid, marks, f"{path}/")
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISREG(found.st_mode):
            with (
                _opened(source, name, found, os.O_RDONLY) as given,
                held_open(Disk().create(target, name)) as taken,
            ):
                Disk().copy(given, taken, found.st_size)
                _copy_marks(given, taken)
        else:
            os.mknod(name, found.st_mode, found.st_rdev, dir_fd=target)
        _look_like(target, name, found)
        if is_directory and path in laid:
            with contextlib.suppress(OSError):
                # It stays where it holds something of the command's own.
                os.rmdir(name, dir_fd=target)
        marks[path] = mark


@contextlib.contextmanager
def _opened(source: int, name: str, found: os.stat_result, flags: int) -> Generator[int]:
    """Open it. Without root, what its command closed is opened up for that moment."""
    mode = stat.S_IMODE(found.st_mode)
    wanted = mode | (stat.S_IRWXU if stat.S_ISDIR(found.st_mode) else stat.S_IRUSR)
    is_closed = mode != wanted and os.geteuid() != 0
    if is_closed:
        os.chmod(name, wanted, dir_fd=source)
    try:
        opened = os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=source)
        with held_open(opened):
            yield opened
    finally:
        if is_closed:
            os.chmod(name, mode, dir_fd=source)


def _copy_marks(source: int, target: int) -> None:
    for mark in os.listxattr(source):
        if mark.startswith(MARKS):
            os.setxattr(target, mark, os.getxattr(source, mark))


def _look_like(target: int, name: str, found: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=target)
    times = (found.st_atime_ns, found.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)
