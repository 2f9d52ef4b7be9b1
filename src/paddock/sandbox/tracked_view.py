"""Closed files that git tracks, as the commands of one agent see them: looked for before each.

A missing file looks deleted to git, and the next `git add -A` deletes it for everybody. So what
the index says stands in its place, as git itself, asked in a sandbox over the same workspace,
would check it out.

Threat: a repository names programs that git runs: fsmonitor, filters, a transport, an alias. In
the sandbox they reach what a command of this agent reaches; what can be switched off, is.

A path with a filter driver is shown as the object has it; a missing or large object as an
empty file. No change of such a path that a command records may land.
"""

import hashlib
import os
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.sandbox.changes.differences import Comparing, OpenLayers
from paddock.sandbox.git.index import FILE_MODES, LINK_MODE, SUBMODULE_MODE
from paddock.sandbox.git.tracked import (
    FileIdentity,
    Tracked,
    TrackedName,
    TrackedNames,
    stamp_of,
)
from paddock.sandbox.git_layer import OpenedGit
from paddock.sandbox.host.host_facts import directories_above
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.plan import contained
from paddock.sandbox.values import CommandRequest, Ending, SandboxPlan, ShownFile
from paddock.storage.atomic import host_error

_FILE_BYTES_MAX: Final = 4_000_000
_ALL_BYTES_MAX: Final = 16_000_000
_NAMES_MAX: Final = 2_000
"""What is not shown for these limits is shown as an empty file."""
_ARGUMENT_BYTES_MAX: Final = 100_000
"""An argument has at most 128 KiB (execve(2), MAX_ARG_STRLEN)."""
_OUTPUT_BYTES_MAX: Final = 4 * _ALL_BYTES_MAX
_TIMEOUT_S: Final = 30.0
_CONTENTS_KEPT: Final = 4 * _NAMES_MAX

_TIMES_FROM_S: Final = 946_684_800
_TIMES_S: Final = 20 * 365 * 86_400
"""Between 2000 and 2020: the past for every program, and no time that a file of today has."""

_ATTRIBUTES: Final = ("filter", "text", "eol", "crlf", "ident", "working-tree-encoding")
_UNSET: Final = frozenset({"unspecified", "unset"})
_PREAMBLE: Final = """\
export GIT_NO_LAZY_FETCH=1 GIT_NO_REPLACE_OBJECTS=1 GIT_OPTIONAL_LOCKS=0
git() { command git -c core.fsmonitor=false -c core.hooksPath=/dev/null -c protocol.allow=never \\
  --no-pager "$@"; }
mark=$1 paths=$2 plain=$3 converted=$4
"""
_LOOK: Final = (
    _PREAMBLE
    + """\
git config --type=bool core.autocrlf || git config core.autocrlf
printf '%s\\n' "$mark"
printf '%s' "$plain" | git cat-file --batch-check='%(objecttype) %(objectsize)'
printf '%s\\n' "$mark"
printf '%s' "$paths" | tr '\\n' '\\0' | git check-attr -z --stdin """
    + " ".join(_ATTRIBUTES)
)
_READ: Final = (
    _PREAMBLE
    + """\
printf '%s' "$plain" | git cat-file --batch="$mark %(objectsize)"
printf '%s' "$converted" | git cat-file --filters --batch="$mark %(objectsize)"
"""
)


class ShownNames(Struct, frozen=True):
    names: tuple[str, ...]
    differing: tuple[str, ...]


class TrackedFiles(Struct, frozen=True):
    files: Mapping[str, ShownFile]
    tracked: Tracked


class _Content(Struct, frozen=True):
    content: bytes
    is_faithful: bool


_EMPTY: Final = _Content(b"", is_faithful=False)


class TrackedView:
    __slots__ = ("_known", "_lock", "_names")

    def __init__(self) -> None:
        self._names = TrackedNames()
        self._known: dict[tuple[object, ...], _Content] = {}
        self._lock = threading.Lock()

    def look(
        self, launcher: Launcher, plan: SandboxPlan, root_fd: int, git: OpenedGit | None = None
    ) -> TrackedFiles:
        """Raises: SandboxUnavailableError, HostError: git could not be asked."""
        with self._lock:
            outside = None if git is None else git.index
            tracked = self._names.find(root_fd, plan.workspace, plan.hidden, outside)
            if not tracked.names:
                return TrackedFiles({}, tracked)
            place = _Place(launcher, replace(contained(plan), network="none"), root_fd, git)
            shown = self._show(tracked.names, place)
        return TrackedFiles({each.path: each for each in shown}, tracked)

    def _show(self, names: Sequence[TrackedName], place: "_Place") -> list[ShownFile]:
        found: dict[str, _Content] = {}
        by_repository: dict[str, list[TrackedName]] = {}
        for each in names[:_NAMES_MAX]:
            if each.mode != SUBMODULE_MODE:
                by_repository.setdefault(each.repository, []).append(each)
        for repository, tracked in by_repository.items():
            keys = {
                each.path: (each.object_id, each.size_bytes, *place.stamps(repository, each.path))
                for each in tracked
            }
            unknown = [each for each in tracked if keys[each.path] not in self._known]
            if unknown:
                asked = _Asking(place, repository).ask(unknown)
                if len(self._known) > _CONTENTS_KEPT:
                    self._known.clear()
                self._known |= {keys[each.path]: asked.get(each.path, _EMPTY) for each in unknown}
            found |= {path: self._known.get(key, _EMPTY) for path, key in keys.items()}
        return [_shown(each, found.get(each.path, _EMPTY)) for each in names]


class _Place(Struct, frozen=True):
    launcher: Launcher
    plan: SandboxPlan
    root_fd: int
    git: OpenedGit | None
    _stamps: dict[str, FileIdentity] = field(default_factory=dict[str, FileIdentity])

    def above(self, repository: str) -> str:
        """Return what git has before a path of this work tree, to ask for its content."""
        return self.git.index.above if self.git is not None and repository == "." else ""

    def run(self, argv: Sequence[str], cwd: str) -> bytes:
        """Return what it printed; nothing where that is too much, or not all of it."""
        layer = None if self.git is None else self.git.layer
        request = CommandRequest(self.plan, tuple(argv), cwd, _TIMEOUT_S, _OUTPUT_BYTES_MAX)
        with self.launcher.open_stage(self.plan, self.root_fd, git=layer) as stage:
            end = self.launcher.run(request, stage)
        if end.ending is not Ending.EXITED or end.stdout.missing_bytes:
            return b""
        return end.stdout.head + end.stdout.tail

    def stamps(self, repository: str, path: str) -> tuple[object, ...]:
        """Stat the files by which git decides how a path is converted."""
        prefix = "" if repository == "." else f"{repository}/"
        folders = ("", *(f"{each}/" for each in directories_above(path[len(prefix) :])))
        names = [f"{folder}.gitattributes" for folder in folders]
        names += [".git", ".git/config", ".git/info/attributes"]
        return (path, *(self._stamp(f"{prefix}{name}") for name in names))

    def _stamp(self, name: str) -> FileIdentity:
        if name not in self._stamps:
            is_outside = self.git is not None and name.startswith(".git/")
            fd = self.git.beside.fd if self.git is not None and is_outside else self.root_fd
            inner = name.removeprefix(".git/") if is_outside else name
            self._stamps[name] = stamp_of(fd, inner)
        return self._stamps[name]


class _Asking(Struct, frozen=True):
    place: _Place
    repository: str

    def ask(self, names: Sequence[TrackedName]) -> dict[str, _Content]:
        found: dict[str, _Content] = {}
        left_bytes = _ALL_BYTES_MAX
        for batch in _batches(names):
            looked = self._look(batch)
            wanted: list[tuple[TrackedName, _Look]] = []
            for each, look in looked:
                if look.size_bytes <= min(_FILE_BYTES_MAX, left_bytes):
                    left_bytes -= look.size_bytes
                    wanted.append((each, look))
            found |= self._read(wanted)
        return found

    def _look(self, batch: Sequence[TrackedName]) -> "list[tuple[TrackedName, _Look]]":
        mark = secrets.token_hex(16)
        said = self._said(_LOOK, mark, batch, batch, ())
        parts = said.split(f"{mark}\n".encode())
        if len(parts) != 3:
            return []
        converts = parts[0].strip() not in (b"", b"false")
        attributes = _attributes(parts[2])
        found: list[tuple[TrackedName, _Look]] = []
        for each, row in zip(batch, parts[1].splitlines(), strict=False):
            kind, _, size = row.partition(b" ")
            if kind != b"blob" or not size.isdigit():
                continue
            inner = self._inner(each)
            said_of = attributes.get(inner, {})
            has_filter = said_of.pop("filter", "unspecified") not in _UNSET
            is_encoded = said_of.get("working-tree-encoding", "unset") not in _UNSET
            is_converted = converts or any(value not in _UNSET for value in said_of.values())
            if each.mode == LINK_MODE:
                has_filter = is_converted = False
            look = _Look(int(size), is_converted and not has_filter, is_encoded, has_filter)
            found.append((each, look))
        return found

    def _read(self, wanted: "Sequence[tuple[TrackedName, _Look]]") -> dict[str, _Content]:
        if not wanted:
            return {}
        converted = [each for each, look in wanted if look.is_converted]
        mark = secrets.token_hex(16)
        said = self._said(_READ, mark, (), [each for each, _ in wanted], converted)
        # Nothing that was there before can hold the mark.
        rows = [row.removesuffix(b"\n") for row in re.split(rf"{mark} \d+\n".encode(), said)[1:]]
        made = {each.path: row for each, row in zip(converted, rows[len(wanted) :], strict=False)}
        return {
            each.path: _Content(
                _checked_out(each, look, row, made.get(each.path, row)),
                is_faithful=not (look.has_filter or each.is_intended),
            )
            for (each, look), row in zip(wanted, rows, strict=False)
        }

    def _said(
        self,
        script: str,
        mark: str,
        paths: Sequence[TrackedName],
        plain: Sequence[TrackedName],
        converted: Sequence[TrackedName],
    ) -> bytes:
        above = self.place.above(self.repository)
        argv = (
            *("/bin/sh", "-c", script, "sh", mark),
            "".join(f"{self._inner(each)}\n" for each in paths),
            "".join(f"{each.object_id}\n" for each in plain),
            "".join(f"{each.object_id} {above}{self._inner(each)}\n" for each in converted),
        )
        return self.place.run(argv, self.repository)

    def _inner(self, name: TrackedName) -> str:
        if self.repository == ".":
            return name.path
        return name.path[len(self.repository) + 1 :]


class _Look(Struct, frozen=True):
    size_bytes: int
    is_converted: bool
    is_encoded: bool
    has_filter: bool


def _checked_out(name: TrackedName, look: _Look, plain: bytes, converted: bytes) -> bytes:
    """Return the converted content, or the plain one where git found that to be unchanged.

    A file of another size than the index noted is modified, whatever is in it (`ie_modified`).
    """
    is_plain = name.size_bytes == len(plain) != len(converted)
    return plain if is_plain and not look.is_encoded else converted


def _batches(names: Sequence[TrackedName]) -> list[list[TrackedName]]:
    batches: list[list[TrackedName]] = [[]]
    room = _ARGUMENT_BYTES_MAX
    for each in names:
        size = len(os.fsencode(each.path)) + len(each.object_id) + 2
        if size > room:
            batches.append([])
            room = _ARGUMENT_BYTES_MAX
        batches[-1].append(each)
        room -= size
    return batches


def _attributes(said: bytes) -> dict[str, dict[str, str]]:
    fields = [os.fsdecode(field) for field in said.split(b"\0")]
    found: dict[str, dict[str, str]] = {}
    for path, name, value in zip(fields[0::3], fields[1::3], fields[2::3], strict=False):
        found.setdefault(path, {})[name] = value
    return found


def _shown(name: TrackedName, content: _Content) -> ShownFile:
    is_submodule = name.mode == SUBMODULE_MODE
    digest = hashlib.sha256(content.content)
    digest.update(name.object_id.encode())
    # By the content: two of one size and one time would be the same file for git, where
    # `core.checkStat` is `minimal`.
    seconds = _TIMES_FROM_S + int.from_bytes(digest.digest()[:8], "big") % _TIMES_S
    if seconds == name.modified_ns // 1_000_000_000:
        seconds += 1
    return ShownFile(
        name.path,
        name.mode,
        content.content,
        seconds * 1_000_000_000,
        is_faithful=is_submodule or content.is_faithful,
    )


def differing(shown: Mapping[str, ShownFile], layers: OpenLayers) -> ShownNames:
    comparing = Comparing(layers.upper_fd, layers.lower_fd)
    found: list[str] = []
    with host_error("a working copy cannot be read"):
        for path, file in sorted(shown.items()):
            if file.mode in FILE_MODES and not comparing.is_lower(path, file.content):
                found.append(path)
    return ShownNames(tuple(sorted(shown)), tuple(found))
