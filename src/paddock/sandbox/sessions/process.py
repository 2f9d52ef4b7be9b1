"""A running background command: its output, its input, its view of the workspace, its end.

`LiveView` keeps the view and the workspace in step:

    update        apply other processes' changes to the view, through the command's own mount
    copy          copy the command's changes so far, to be judged and landed while it runs
    drop_applied  at its end, remove applied changes that the command did not touch

All work is done through descriptors, from outside: a hostile program writes to the layer at the
same time. `update` and `copy` stop the processes meanwhile (`protocol.HOLD`).
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
from paddock.sandbox.inside.protocol import ViewChange
from paddock.sandbox.launcher import CopiedLayer, StageDirectories
from paddock.sandbox.staged import Ran, StagedCommand
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
"""Time between SIGTERM and SIGKILL."""
_WRITE_S: Final = 5.0
_WRITE_AGAIN_S: Final = 0.02
_END_OF_INPUT: Final = "\x04"
SHOWN_MAX: Final = 5_000
"""Limit of paths per change that a running command is shown; with more it must be restarted."""
_SHOWN_KINDS: Final = (NodeKind.FILE, NodeKind.DIRECTORY, NodeKind.LINK)
_ANSWER_S: Final = 10.0

Mark = tuple[int, ...]
"""Identifies the state of an entry: if the mark is the same, the entry has not changed."""
_WHITEOUT: Final[Mark] = (0,)
_NEVER: Final[Mark] = (-1,)
"""Matches no entry: another process changed the path after the command did, so it conflicts."""


class Printed(Struct, frozen=True):
    """A range of the output, as text; `begins` and `ends` are byte offsets."""

    text: str
    begins: int
    ends: int
    missing: int = 0
    """Requested bytes before `begins` that are no longer kept."""


class Transcript:
    """The tail of a command's output, both streams in order. Thread-safe."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._total = 0
        self._read_to = 0
        self._is_ended = False
        self._changed = threading.Condition()

    def add(self, _: Literal["stdout", "stderr"], chunk: bytes) -> None:
        with self._changed:
            self._kept += chunk
            self._total += len(chunk)
            # Allow half as much again, so that not every chunk moves the whole buffer.
            if len(self._kept) > OUTPUT_BYTES * 3 // 2:
                del self._kept[: len(self._kept) - OUTPUT_BYTES]
            self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify_all()

    def read(self, offset: int | None, wait_s: float, cancel: Cancel) -> Printed:
        """Return the output from `offset` on, or since the last read; wait until there is some.

        It waits at most `wait_s`, and not if the command has ended.
        """
        undo = cancel.on_cancel(self._wake)
        try:
            with self._changed:
                begin = self._read_to if offset is None else offset
                self._changed.wait_for(
                    lambda: self._end > begin or self._is_ended or cancel.is_cancelled, wait_s
                )
                first = self._total - len(self._kept)
                at = min(max(begin, first), self._end)
                content = bytes(self._kept[at - first : self._end - first])
                if len(content) > OUTPUT_BYTES:
                    content = whole_characters(content[:OUTPUT_BYTES])
                self._read_to = end = at + len(content)
        finally:
            undo()
        return Printed(safe_text(content), at, end, max(0, at - begin))

    @property
    def _end(self) -> int:
        """Return the end of the readable output: an incomplete character waits for the rest."""
        last = bytes(self._kept[-BYTES_A_CHARACTER_MAX:])
        return self._total - (0 if self._is_ended else len(last) - len(whole_characters(last)))

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


class Process:
    """A command, owned by one shell; `begin` runs it in a separate thread."""

    def __init__(self, name: str, prepared: PreparedLine, spooling: Spooling) -> None:
        self.name = name
        self.prepared = prepared
        self.spooling = spooling
        self.transcript = Transcript()
        self.turn = threading.Lock()
        """Held while finishing it, or landing its changes."""
        self.view: LiveView | None = None
        self.command: StagedCommand | None = None
        self.failure: PaddockError | None = None
        self.outcome: ShellOutcome | None = None
        """Set when it has ended and its changes were handled."""
        self.has_terminal = prepared.line.terminal[1] > 0
        self._input = -1
        self._input_lock = threading.Lock()
        self._typing = threading.Lock()
        """Held while writing text; `stop` does not wait for it."""
        self._thread: threading.Thread | None = None
        self.begun = threading.Event()
        """Set when its command was sent into the sandbox, or could not be."""
        self._has_input = threading.Event()
        self._ended = threading.Event()

    def begin(self, run: Callable[[], StagedCommand], on_end: Callable[[], None]) -> None:
        """Start it; return when its sandbox is ready. Raises: any error of `run` before that."""

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
        """Wait until `on_end` has returned."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def show(self, view: "LiveView") -> None:
        self.view = view

    @property
    def is_running(self) -> bool:
        return not self._ended.is_set()

    def open_input(self) -> int:
        """Return the read end of a pipe, for the command's standard input."""
        read_end, self._input = os.pipe()
        os.set_blocking(self._input, False)
        self._has_input.set()
        return read_end

    def take_terminal(self, fd: int) -> None:
        self._close_input()
        self._input = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
        self._has_input.set()

    def write(self, text: str) -> int:
        """Write text to it; return how many bytes it accepted within five seconds.

        Without a terminal, a lone end of input (^D) closes its input. Raises:
        InvalidArgumentsError if it accepts no input any more.
        """
        self._has_input.wait(_WRITE_S)
        with self._typing:
            if self._input < 0 or not self.is_running:
                raise InvalidArgumentsError(
                    f"{self.name} accepts no input: it has ended, or its input was closed",
                    where="process",
                    hint="shell_output shows what it printed",
                )
            if text == _END_OF_INPUT and not self.has_terminal:
                self._close_input()
                return 1
            return self._write(text.encode("utf-8", "surrogateescape"))

    def offer(self, content: bytes) -> int:
        """Write without blocking; return the number of bytes written."""
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
        """Terminate it, then kill it with all its processes; return when it has ended."""
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
        """`is_closed(path)`: policy hides the path from the command."""
        self._stage, self._ran, self.place, self._is_closed = stage, ran, place, is_closed
        for index in ran.indexes.values():
            index.read()
        self._workspace = os.fsencode(ran.request.plan.workspace)
        self._resolution = detect_resolution()
        self._lock = threading.RLock()
        self._applied: dict[str, Mark] = {}
        self._bases: dict[str, Mark | None] = {}
        self._directories: dict[str, KnownDirectory] = {}
        self._dead: set[str] = set()
        self.hidden = frozenset(ran.request.plan.hidden)
        """Existing paths that are hidden from it."""
        self.own: set[str] = set()
        """Paths that another process changed after the command did: it keeps its version."""
        self.unseen: set[str] = set()
        """Paths that another process changed and that could not be updated in the view."""

    def ground(self, start: CommandBaseline) -> CommandBaseline:
        """Return the current base to compare its changes with."""
        with self._lock:
            directories = {**start.directories, **self._directories}
            return replace(start, directories=directories, bases=dict(self._bases))

    def ask_to_end(self) -> None:
        """Send SIGTERM to its processes."""
        with contextlib.suppress(OSError):
            self._stage.control.send(protocol.TERMINATE)

    def end(self) -> None:
        """Kill all its processes."""
        with contextlib.suppress(OSError):
            # Its first process sees the end of file.
            self._stage.control.shutdown(socket.SHUT_WR)

    @contextlib.contextmanager
    def held(self) -> Generator[socket.socket]:
        """Stop its processes meanwhile. Raises: HostError: they do not stop, or have ended."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with self._lock, ours, host_error("a running command cannot be stopped for a moment"):
            with theirs:
                socket.send_fds(self._stage.control, [protocol.HOLD], [theirs.fileno()])
            ours.settimeout(_ANSWER_S)
            if ours.recv(16) != protocol.HELD:
                raise HostError("the processes of a running command do not stop", hint="try again")
            yield ours

    def update(self, paths: Collection[str]) -> bool:
        """Show the current entries at these paths; return False if it does not stop, or has ended.

        Then the paths are added to `unseen`: the change itself is done and is not undone.
        """
        try:
            self._update_all(paths)
        except HostError:
            self.unseen.update(paths)
            return False
        return True

    def _update_all(self, paths: Iterable[str]) -> None:
        wanted = {above for path in paths for above in (*directories_above(path), path)}
        root = self._stage.workspace_fd
        with self.held() as channel, held_open(self._stage.open_upper()) as upper:
            found = {path: look_at(root, path) for path in sorted(wanted)}
            gone = [path for path in reversed(found) if found[path] is None]
            # Removals first, children before parents: a file may replace a directory. Then
            # additions, parents before children.
            for path in (*gone, *(path for path in found if found[path] is not None)):
                # Threat: a secret file is created while it runs; no whiteout hides it yet.
                look = None if self._is_closed(path) else found[path]
                if look is None or look.kind in _SHOWN_KINDS:
                    self._update(channel, upper, path, look)

    def _update(self, channel: socket.socket, upper: int, path: str, now: Look | None) -> None:
        seen = _mark_at(upper, path)
        if seen is not None and stat.S_ISDIR(seen[0]) and _is_plain_directory(upper, path):
            # A directory in the layer: an entry below it was changed, by the command or for it.
            if now is not None and now.kind is NodeKind.DIRECTORY:
                return
        elif now is None and seen == _WHITEOUT:
            # The command and another process both removed it.
            self._applied[path] = _WHITEOUT
            self._record_base(path, None)
            return
        elif self._is_changed(upper, path, seen):
            self.own.add(path)
            self._bases.setdefault(path, _NEVER)
            return
        content, change = self._content(path, now)
        try:
            socket.send_fds(channel, [change.encode()], [content] if content >= 0 else [])
        finally:
            if content >= 0:
                os.close(content)
        is_done = channel.recv(16) == b"0"
        mark = _mark_at(upper, path)
        if mark is None:
            self._applied.pop(path, None)
        else:
            self._applied[path] = mark
        if not is_done and now is None and (mark is None or stat.S_ISDIR(mark[0])):
            # overlayfs cannot remove a directory whose lower directory is gone ("dead"): it stays
            # in the view and looks empty, whatever is created in it.
            self._dead.add(path)
        elif not is_done:
            self.unseen.add(path)
            return
        is_listed = now is None or self._dead.isdisjoint(directories_above(path))
        (self.unseen.discard if is_listed else self.unseen.add)(path)
        self._record_base(path, now)

    def _content(self, path: str, now: Look | None) -> tuple[int, ViewChange]:
        at = b"%b/%b" % (self._workspace, os.fsencode(path))
        if now is None:
            return -1, ViewChange(b"gone", at)
        if now.kind is NodeKind.DIRECTORY:
            return -1, ViewChange(b"directory", at, mode=now.mode)
        if now.kind is NodeKind.LINK:
            text = os.readlink(os.fsencode(path), dir_fd=self._stage.workspace_fd)
            return -1, ViewChange(b"link", at, text=os.fsencode(text))
        fd = self._resolution.open(self._stage.workspace_fd, path, READ_FILE)
        modified_ns = now.status.modified_ns
        return fd, ViewChange(b"file", at, mode=now.mode, modified_ns=modified_ns)

    def _is_shadowed(self, upper: int, path: str) -> bool:
        """Return True if the command replaced or removed a directory above the path."""
        for above in directories_above(path):
            found = _mark_at(upper, above)
            if found is not None and (found == _WHITEOUT or not _is_plain_directory(upper, above)):
                return above not in self._applied or self._applied[above] != found
        return False

    def _is_changed(self, upper: int, path: str, seen: Mark | None) -> bool:
        """Return True if the command changed it. For git's index, refreshed data does not count."""
        if seen == self._applied.get(path) and not self._is_shadowed(upper, path):
            return False
        index = self._ran.indexes.get(path)
        return index is None or not index.is_known(
            find_content(upper, path, INDEX_BYTES_MAX), is_last=False
        )

    def _record_base(self, path: str, now: Look | None) -> None:
        if path in self._ran.indexes:
            self._ran.indexes[path].learn(self._stage.workspace_fd)
        self._bases[path] = None if now is None else now.mark
        if now is not None and now.kind is NodeKind.DIRECTORY:
            identity = (*now.identity, 0, 0)
            self._directories[path] = KnownDirectory(identity, now.mode, True, (), ())

    # --- its changes so far ----------------------------------------------------------

    def copy(self) -> tuple[CopiedLayer, Ran]:
        """Stop it and copy its changes, in the form that an ended command leaves them.

        Raises: HostError; SandboxUnavailableError if its git directory is outside the workspace.
        """
        if self._ran.git is not None:
            raise SandboxUnavailableError(
                "the git directory of this workspace is outside it: the changes of a running "
                "command cannot be separated there",
                hint="end it with shell_stop; then its changes are brought in",
            )
        copied = CopiedLayer.make(self._stage.running)
        with (
            contextlib.ExitStack() as undo,
            host_error("the changes of a command cannot be copied"),
        ):
            undo.callback(copied.close)
            with self.held(), held_open(self._stage.open_upper()) as upper:
                _copy(upper, copied.fd, self._applied, copied.marks)
                ground = self.ground(self._ran.ground)
            undo.pop_all()
        return copied, replace(self._ran, stage=copied, ground=ground)

    def landed(self, paths: Iterable[str], marks: Mapping[str, Mark]) -> None:
        """Make the landed entries the new base, if the command still has them unchanged."""
        with self._lock:
            for path in paths:
                if path in marks:
                    self._applied[path] = marks[path]
                self._record_base(path, look_at(self._stage.workspace_fd, path))

    def drop_applied(self) -> None:
        """Remove applied changes that an ended command did not touch from its layer."""
        with held_open(self._stage.open_upper()) as upper:
            for path in sorted(self._applied, reverse=True):
                mark = _mark_at(upper, path)
                if mark is None or mark != self._applied[path]:
                    continue
                with contextlib.suppress(OSError):
                    # A directory with entries of the command stays.
                    _remove(upper, path, is_directory=stat.S_ISDIR(mark[0]))


def _mark_at(upper: int, path: str) -> Mark | None:
    """Return the mark of the layer's entry at the path, following no link."""
    parent, _, name = path.rpartition("/")
    try:
        with held_open(detect_resolution().open(upper, parent or ".", DIRECTORY)) as fd:
            return _mark(os.stat(name, dir_fd=fd, follow_symlinks=False))
    except OSError:
        return None


def _mark(found: os.stat_result) -> Mark:
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
        # All whiteouts of an overlay have the same inode.
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
    source: int, target: int, applied: Mapping[str, Mark], marks: dict[str, Mark], prefix: str = ""
) -> None:
    """Copy a layer with its overlay attributes, except applied changes that were not touched."""
    for name in sorted(os.listdir(source)):
        path, found = prefix + name, os.stat(name, dir_fd=source, follow_symlinks=False)
        mark = _mark(found)
        is_directory = stat.S_ISDIR(found.st_mode)
        if applied.get(path) == mark and not is_directory:
            continue
        if is_directory:
            os.mkdir(name, 0o700, dir_fd=target)
            with (
                _opened(source, name, found, DIRECTORY) as below,
                held_open(os.open(name, DIRECTORY, dir_fd=target)) as created,
            ):
                _copy_marks(below, created)
                _copy(below, created, applied, marks, f"{path}/")
        elif stat.S_ISLNK(found.st_mode):
            os.symlink(os.readlink(name, dir_fd=source), name, dir_fd=target)
        elif stat.S_ISREG(found.st_mode):
            with (
                _opened(source, name, found, os.O_RDONLY) as source_file,
                held_open(Disk().create(target, name)) as target_file,
            ):
                Disk().copy(source_file, target_file, found.st_size)
                _copy_marks(source_file, target_file)
        else:
            os.mknod(name, found.st_mode, found.st_rdev, dir_fd=target)
        _copy_metadata(target, name, found)
        if is_directory and path in applied:
            with contextlib.suppress(OSError):
                # It stays if it has entries of the command.
                os.rmdir(name, dir_fd=target)
        marks[path] = mark


@contextlib.contextmanager
def _opened(source: int, name: str, found: os.stat_result, flags: int) -> Generator[int]:
    """Open it. Without root, first add read permission that the command removed, then restore."""
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


def _copy_metadata(target: int, name: str, found: os.stat_result) -> None:
    if os.geteuid() == 0:
        os.chown(name, found.st_uid, found.st_gid, dir_fd=target, follow_symlinks=False)
    if not stat.S_ISLNK(found.st_mode):
        os.chmod(name, stat.S_IMODE(found.st_mode), dir_fd=target)
    times = (found.st_atime_ns, found.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=target, follow_symlinks=False)
