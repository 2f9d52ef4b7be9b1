"""Read objects with the host's git, in a private repository that has only objects.

Git gets the object directories as descriptors: no configuration, hook, ref, replacement or remote
applies, nothing is fetched, and only git is started.

Threat: a command wrote the objects, and a tree can expand to any number of paths: only trees on
the way to a requested path are read, with limits on bytes, time and memory. Git trusts a pack, so
each object is checked against its id. A failure is a HostError, and means a refusal.
"""

import hashlib
import os
import re
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Self

from paddock.errors import HostError
from paddock.pattern import lazy_pattern

SHA1_BYTES: Final = 20
SHA256_BYTES: Final = 32
TREE_MODE: Final = 0o040000

_DIRECTORIES: Final = "/usr/local/bin:/usr/bin:/bin:/run/current-system/sw/bin"
"""Threat: the first git on the user's PATH may be in a workspace."""
GIT_ENVIRONMENT: Final = {
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
GIT_OPTIONS: Final = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
"""Threat: a repository's configuration names programs that git starts there."""
_TIMEOUT_S: Final = 10.0
_BYTES_MAX: Final = 64_000_000
_MEMORY_BYTES: Final = 4_000_000_000
"""Address space: a tree that unpacks to more ends git, not the host."""
_ANSWER_BYTES_MAX: Final = 4096
_ANSWER: Final = lazy_pattern(rb"[0-9a-f]+ (commit|tree) (\d+)\n")
_COMMIT: Final = lazy_pattern(rb"tree ([0-9a-f]+)\n")


class TreeEntry(NamedTuple):
    mode: int
    oid: bytes


Tree = Mapping[bytes, TreeEntry]


def find_digest(content: bytes, hash_bytes: int) -> bytes:
    kind = hashlib.sha256 if hash_bytes == SHA256_BYTES else hashlib.sha1
    return kind(content, usedforsecurity=False).digest()


def find_object_name(kind: bytes, content: bytes, hash_bytes: int = SHA1_BYTES) -> bytes:
    """Return the digest of kind, size and content. Source: gitformat-pack(5)."""
    return find_digest(b"%b %d\0%b" % (kind, len(content), content), hash_bytes)


class TreeReader:
    """Reader of trees, each read once. A context manager; one thread at a time."""

    def __init__(self, objects: Sequence[int], hash_bytes: int) -> None:
        """`objects`: descriptors of object directories, owned by the caller. Raises: HostError."""
        self._oid_bytes = hash_bytes
        self._left_bytes = _BYTES_MAX
        self._trees: dict[bytes, Tree] = {}
        self._home = tempfile.TemporaryDirectory(prefix="paddock-names-")
        try:
            self._process = _start(self._home.name, ("cat-file", "--batch"), objects, hash_bytes)
        except BaseException:
            self._home.cleanup()
            raise
        self._timer = threading.Timer(_TIMEOUT_S, self._process.kill)
        self._timer.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        self._process.kill()
        # Closes the pipes, and waits.
        self._process.communicate()
        self._home.cleanup()

    def find(self, commit: bytes, paths: Iterable[bytes]) -> dict[bytes, TreeEntry]:
        """Return a commit's entries at these paths, directories too. Raises: HostError."""
        top = _COMMIT.match(self._ask(commit, b"commit"))
        if top is None:
            raise unknown_names("invalid commit")
        known: dict[bytes, Tree] = {b"": self._read(top[1])}
        found = ((path, self._at(known, path)) for path in paths)
        return {path: mark for path, mark in found if mark is not None}

    def below(self, path: bytes, mark: TreeEntry) -> Iterator[tuple[bytes, TreeEntry]]:
        """Yield every file of the entry at `path`. Raises: HostError."""
        waiting = [(path, mark)]
        while waiting:
            path, mark = waiting.pop()
            if mark.mode != TREE_MODE:
                yield path, mark
                continue
            # Threat: ten trees, each ten times in the next, expand to endless paths: count them.
            self._spend(len(path))
            tree = self._read(mark.oid.hex().encode())
            waiting += [(path + b"/" + name, each) for name, each in tree.items()]

    def _at(self, known: dict[bytes, Tree], path: bytes) -> TreeEntry | None:
        above, _, name = path.rpartition(b"/")
        if above not in known:
            mark = self._at(known, above)
            is_tree = mark is not None and mark.mode == TREE_MODE
            known[above] = self._read(mark.oid.hex().encode()) if mark and is_tree else {}
        return known[above].get(name)

    def _read(self, oid: bytes) -> Tree:
        tree = self._trees.get(oid)
        if tree is None:
            tree = self._trees[oid] = _parse(self._ask(oid, b"tree"), self._oid_bytes)
        return tree

    def _ask(self, oid: bytes, kind: bytes) -> bytes:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("started without pipes")
        try:
            stdin.write(oid + b"\n")
            stdin.flush()
        except OSError as error:
            raise unknown_names("git ended early") from error
        answer = _ANSWER.fullmatch(stdout.readline(_ANSWER_BYTES_MAX))
        if answer is None or answer[1] != kind:
            raise unknown_names(f"an object is missing, or not a {kind.decode()}")
        size = int(answer[2])
        self._spend(size)
        content = stdout.read(size + 1)[:-1]
        named = find_object_name(kind, content, self._oid_bytes)
        if named.hex().encode() != oid:
            raise unknown_names("the content of an object does not match its id")
        return content

    def _spend(self, size: int) -> None:
        self._left_bytes -= size + 1
        if self._left_bytes < 0:
            raise unknown_names(f"its trees have more than {_BYTES_MAX} bytes")


def join_split_index(content: bytes, name: str, shared: bytes, hash_bytes: int) -> bytes:
    """Join a split index and the shared file of that name. Raises: HostError."""
    with tempfile.TemporaryDirectory(prefix="paddock-index-") as home:
        (Path(home) / name).write_bytes(shared)
        (Path(home) / "index").write_bytes(content)
        arguments = ("update-index", "--no-split-index")
        process = _start(home, arguments, (), hash_bytes)
        try:
            process.communicate(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        if process.returncode:
            raise unknown_names("git cannot read its split index")
        return (Path(home) / "index").read_bytes()


def _start(
    home: str, arguments: Sequence[str], objects: Sequence[int], hash_bytes: int
) -> subprocess.Popen[bytes]:
    program = shutil.which("git", path=_DIRECTORIES)
    if program is None:
        raise unknown_names("git is not installed on this host")
    is_long = hash_bytes == SHA256_BYTES
    more = "[extensions]\n\tobjectFormat = sha256\n" if is_long else ""
    config = f"[core]\n\trepositoryformatversion = {int(is_long)}\n\tpackedGitWindowSize = 32m\n"
    os.mkdir(f"{home}/refs")
    os.mkdir(f"{home}/objects")
    Path(home, "HEAD").write_text("ref: refs/heads/none\n")
    Path(home, "config").write_text(config + more)
    lent = [f"/proc/self/fd/{fd}" for fd in objects]
    environment = {**GIT_ENVIRONMENT, "GIT_ALTERNATE_OBJECT_DIRECTORIES": ":".join(lent)}
    try:
        process = subprocess.Popen(
            [program, *GIT_OPTIONS, f"--git-dir={home}", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=home,
            env=environment,
            pass_fds=tuple(objects),
        )
    except OSError as error:
        raise unknown_names(f"cannot start git: {os.strerror(error.errno or 0)}") from error
    # In time: git unpacks a command's objects only once it is asked for them.
    resource.prlimit(process.pid, resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    return process


def _parse(content: bytes, oid_bytes: int) -> Tree:
    tree: dict[bytes, TreeEntry] = {}
    at = 0
    while at < len(content):
        end = content.find(b"\0", at)
        mode, blank, name = content[at:end].partition(b" ")
        oid = content[end + 1 : end + 1 + oid_bytes]
        is_sound = end > 0 and blank and name and b"/" not in name and len(oid) == oid_bytes
        # Threat: two entries with the same name, of which readers may take either.
        if not is_sound or not re.fullmatch(rb"[0-7]{1,6}", mode) or name in tree:
            raise unknown_names("invalid tree")
        tree[name] = TreeEntry(int(mode, 8), oid)
        at = end + 1 + oid_bytes
    return tree


def unknown_names(why: str) -> HostError:
    return HostError(f"cannot read the repository: {why}")
