"""What a commit names at given paths: read by git from object directories, and from nothing else.

Git is started on an empty repository of ours, and the object directories are lent to it as
descriptors. So no configuration, hook, ref, replacement or remote of the repository in
question counts, nor any of the user's; nothing is fetched, and nothing but git is started.

Threat: the objects are a command's. A tree can be as large as it likes, and stand for more
paths than there are atoms: only trees on the way to a path that is asked for are read, under
a limit of bytes, of time and of memory. Whatever git says is held against its name, since git
itself believes a pack. What cannot be read so is a HostError, which is a no.
"""

import hashlib
import os
import re
import resource
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from paddock.errors import HostError
from paddock.sandbox.git.entries import SHA256_BYTES

TREE_MODE: Final = 0o040000
_DIRECTORIES: Final = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin"
"""Threat: the first git on a PATH of the user's may lie in a workspace."""
_ENVIRONMENT: Final = {
    "PATH": _DIRECTORIES,
    "LC_ALL": "C",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
}
_CONFIG: Final = (
    "[core]\n\trepositoryformatversion = {version}\n\tpackedGitWindowSize = 32m\n{more}"
)
_TIMEOUT_S: Final = 10.0
_BYTES_MAX: Final = 64_000_000
"""Of all trees that one reader reads."""
_MEMORY_BYTES: Final = 4_000_000_000
"""Of addresses: a tree that unpacks to more ends git, and not the host."""
_ANSWER_BYTES_MAX: Final = 4096
_ANSWER: Final = re.compile(rb"[0-9a-f]+ (commit|tree) (\d+)")
_COMMIT: Final = re.compile(rb"tree ([0-9a-f]+)\n")


class TreeEntry(NamedTuple):
    """What an index or a tree has under a path."""

    mode: int
    oid: bytes


Tree = Mapping[bytes, TreeEntry]
_EMPTY: Final[Tree] = {}


class TreeReader:
    """Reads trees, each once. A context; one thread at a time."""

    __slots__ = ("_buffer", "_deadline", "_home", "_left_bytes", "_oid_bytes", "_process", "_trees")

    def __init__(self, objects: Sequence[int], hash_bytes: int) -> None:
        """`objects`: descriptors of object directories, which stay the caller's.

        Raises: HostError: git cannot be started.
        """
        self._oid_bytes = hash_bytes
        self._deadline = time.monotonic() + _TIMEOUT_S
        self._left_bytes = _BYTES_MAX
        self._buffer = b""
        self._trees: dict[bytes, Tree] = {}
        self._home = tempfile.TemporaryDirectory(prefix="paddock-names-")
        try:
            self._process = _start(Path(self._home.name), objects, hash_bytes)
        except BaseException:
            self._home.cleanup()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()
        self._home.cleanup()

    def find(self, commit: bytes, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """What a commit has at these paths, directories too. Raises: HostError."""
        top = _COMMIT.match(self._ask(commit, b"commit"))
        if top is None:
            raise _unknown("a commit is not as git writes it")
        known: dict[bytes, Tree] = {b"": self._read(top[1])}
        found: dict[bytes, TreeEntry] = {}
        for path in paths:
            above, _, name = path.rpartition(b"/")
            mark = self._directory(known, above).get(name)
            if mark is not None:
                found[path] = mark
        return found

    def below(self, path: bytes, mark: TreeEntry) -> Iterator[tuple[bytes, TreeEntry]]:
        """Every file of what was found at `path`. Raises: HostError."""
        waiting = [(path, mark)]
        while waiting:
            path, mark = waiting.pop()
            if mark.mode != TREE_MODE:
                yield path, mark
                continue
            # Threat: ten trees, each ten times in the next: read once, and no end of paths.
            self._spend(len(path))
            tree = self._read(mark.oid.hex().encode())
            waiting += [(path + b"/" + name, each) for name, each in tree.items()]

    def _directory(self, known: dict[bytes, Tree], path: bytes) -> Tree:
        tree = known.get(path)
        if tree is None:
            above, _, name = path.rpartition(b"/")
            mark = self._directory(known, above).get(name)
            is_tree = mark is not None and mark.mode == TREE_MODE
            tree = self._read(mark.oid.hex().encode()) if mark and is_tree else _EMPTY
            known[path] = tree
        return tree

    def _read(self, oid: bytes) -> Tree:
        tree = self._trees.get(oid)
        if tree is None:
            tree = self._trees[oid] = _parse(self._ask(oid, b"tree"), self._oid_bytes)
        return tree

    def _ask(self, oid: bytes, kind: bytes) -> bytes:
        stdin = self._process.stdin
        if stdin is None:
            raise AssertionError("started without a pipe")
        try:
            stdin.write(oid + b"\n")
            stdin.flush()
        except OSError as error:
            raise _unknown("git ended early") from error
        answer = _ANSWER.fullmatch(self._take_line())
        if answer is None or answer[1] != kind:
            raise _unknown(f"an object is missing, or is no {kind.decode()}")
        size = int(answer[2])
        self._spend(size)
        content = self._take(size + 1)[:-1]
        algorithm = "sha256" if self._oid_bytes == SHA256_BYTES else "sha1"
        named = hashlib.new(algorithm, b"%b %d\0" % (kind, size), usedforsecurity=False)
        named.update(content)
        if named.hexdigest().encode() != oid:
            raise _unknown("an object does not have the content that its name says")
        return content

    def _spend(self, size: int) -> None:
        self._left_bytes -= size + 1
        if self._left_bytes < 0:
            raise _unknown(f"its trees have more than {_BYTES_MAX} bytes")

    def _take_line(self) -> bytes:
        while b"\n" not in self._buffer:
            if len(self._buffer) > _ANSWER_BYTES_MAX:
                raise _unknown("git does not answer as it should")
            self._more()
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _take(self, size: int) -> bytes:
        parts, missing = [self._buffer], size - len(self._buffer)
        while missing > 0:
            self._buffer = b""
            self._more()
            parts.append(self._buffer)
            missing -= len(self._buffer)
        content = b"".join(parts)
        self._buffer = content[size:]
        return content[:size]

    def _more(self) -> None:
        stdout = self._process.stdout
        if stdout is None:
            raise AssertionError("started without a pipe")
        ready = select.poll()
        ready.register(stdout.fileno(), select.POLLIN)
        left_s = self._deadline - time.monotonic()
        if left_s <= 0 or not ready.poll(left_s * 1000):
            raise _unknown(f"git needs more than {_TIMEOUT_S:g} s")
        got = os.read(stdout.fileno(), 1 << 20)
        if not got:
            raise _unknown("git ended early")
        self._buffer += got


def _start(home: Path, objects: Sequence[int], hash_bytes: int) -> subprocess.Popen[bytes]:
    program = shutil.which("git", path=_DIRECTORIES)
    if program is None:
        raise _unknown("there is no git on this host")
    is_long = hash_bytes == SHA256_BYTES
    more = "[extensions]\n\tobjectFormat = sha256\n" if is_long else ""
    (home / "refs").mkdir()
    (home / "HEAD").write_text("ref: refs/heads/none\n")
    (home / "config").write_text(_CONFIG.format(version=int(is_long), more=more))
    first, *others = [f"/proc/self/fd/{fd}" for fd in objects]
    lent = {"GIT_OBJECT_DIRECTORY": first, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(others)}
    try:
        process = subprocess.Popen(
            [program, f"--git-dir={home}", "cat-file", "--batch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env={**_ENVIRONMENT, **lent},
            pass_fds=tuple(objects),
        )
    except OSError as error:
        raise _unknown(f"git cannot be started: {os.strerror(error.errno or 0)}") from error
    # Before it is asked for anything: until then it has read nothing of a command's.
    resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    return process


def _parse(content: bytes, oid_bytes: int) -> Tree:
    """Entries `mode SP name NUL oid`, one after another. Source: tree-walk.c of git."""
    tree: dict[bytes, TreeEntry] = {}
    at = 0
    while at < len(content):
        end = content.find(b"\0", at)
        mode, blank, name = content[at:end].partition(b" ")
        oid = content[end + 1 : end + 1 + oid_bytes]
        is_sound = end > 0 and blank and name and b"/" not in name and len(oid) == oid_bytes
        # Threat: of two entries with one name two readers believe another.
        if not is_sound or not mode.isdigit() or len(mode) > 6 or name in tree:
            raise _unknown("a tree is not as git writes it")
        try:
            tree[name] = TreeEntry(int(mode, 8), oid)
        except ValueError as error:
            raise _unknown("a tree is not as git writes it") from error
        at = end + 1 + oid_bytes
    return tree


def _unknown(why: str) -> HostError:
    return HostError(f"what the repository names is not known: {why}")
