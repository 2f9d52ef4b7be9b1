"""What commands see in place of closed files that git tracks: their content in the index.

As git would check it out by its built-in conversions (line ends, `ident`, encodings), which
git itself is asked for, in a sandbox of its own over the same workspace.

Threat: a repository names programs that git runs: fsmonitor, filters, a transport of a
partial clone, an alias. On the host each of them would be a way out. In the sandbox they
reach what a command of this agent reaches, no network and no closed name, and what they
print is seen by commands of this agent alone. Those that can be switched off are, all the same.

A path with a filter driver is shown as the object has it, and one whose object is not here, or
is too large, as an empty file. These are not faithful: no change of such a path that a
command records may land.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from paddock.sandbox.git.entries import LINK_MODE, SUBMODULE_MODE
from paddock.sandbox.git.tracked import TrackedName
from paddock.sandbox.host.places import directories_above
from paddock.sandbox.plan import contained
from paddock.sandbox.values import CommandEnd, CommandRequest, Ending, SandboxPlan, ShownFile

FILE_BYTES_MAX: Final = 4_000_000
ALL_BYTES_MAX: Final = 16_000_000
NAMES_MAX: Final = 2_000
"""What is not shown for these limits is shown as an empty file."""
_ARGUMENT_BYTES_MAX: Final = 100_000
"""An argument has at most 128 KiB (execve(2), MAX_ARG_STRLEN)."""
_OUTPUT_BYTES_MAX: Final = 4 * ALL_BYTES_MAX
_TIMEOUT_S: Final = 30.0
_CONTENTS_KEPT: Final = 4 * NAMES_MAX

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

Run = Callable[[CommandRequest], CommandEnd]
"""Runs one command in a sandbox, and drops what it changes."""
Stamp = Callable[[str], tuple[int, ...]]
"""What tells whether a file of the workspace has changed."""


@dataclass(frozen=True, slots=True)
class _Content:
    content: bytes
    is_faithful: bool


_EMPTY: Final = _Content(b"", is_faithful=False)


class GitContents:
    """Knows what it was told before; one thread asks at a time."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], _Content] = {}

    def show(
        self,
        names: Sequence[TrackedName],
        plan: SandboxPlan,
        run: Run,
        stamp: Stamp,
        folder: str = "",
    ) -> tuple[ShownFile, ...]:
        """What stands for each of the names. `plan` hides them.

        `folder` is what the workspace is of a work tree whose git directory stands outside.

        Raises: SandboxUnavailableError, HostError: see `Run`.
        """
        plan = replace(contained(plan), network="none")
        found: dict[str, _Content] = {}
        by_repository: dict[str, list[TrackedName]] = {}
        for each in names[:NAMES_MAX]:
            if each.mode != SUBMODULE_MODE:
                by_repository.setdefault(each.repository, []).append(each)
        for repository, tracked in by_repository.items():
            rules = _Rules(repository, stamp)
            keys = {
                each.path: (each.object_id, each.size_bytes, *rules.stamps(each.path))
                for each in tracked
            }
            unknown = [each for each in tracked if keys[each.path] not in self._known]
            if unknown:
                above = f"{folder}/" if folder and repository == "." else ""
                asked = _Asking(plan, repository, run, above).ask(unknown)
                if len(self._known) > _CONTENTS_KEPT:
                    self._known.clear()
                self._known |= {keys[each.path]: asked.get(each.path, _EMPTY) for each in unknown}
            found |= {path: self._known.get(key, _EMPTY) for path, key in keys.items()}
        return tuple(_shown(each, found.get(each.path, _EMPTY)) for each in names)


class _Rules:
    """The files by which git decides how a path is converted."""

    __slots__ = ("_known", "_prefix", "_stamp")

    def __init__(self, repository: str, stamp: Stamp) -> None:
        self._prefix = "" if repository == "." else f"{repository}/"
        self._stamp = stamp
        self._known: dict[str, tuple[int, ...]] = {}

    def stamps(self, path: str) -> tuple[object, ...]:
        inner = path[len(self._prefix) :]
        folders = ("", *(f"{each}/" for each in directories_above(inner)))
        names = [f"{folder}.gitattributes" for folder in folders]
        names += [".git", ".git/config", ".git/info/attributes"]
        return (path, *(self._of(f"{self._prefix}{name}") for name in names))

    def _of(self, name: str) -> tuple[int, ...]:
        if name not in self._known:
            self._known[name] = self._stamp(name)
        return self._known[name]


@dataclass(frozen=True, slots=True)
class _Asking:
    plan: SandboxPlan
    repository: str
    run: Run
    above: str
    """What git has before a path of this work tree, where the content of one is asked for."""

    def ask(self, names: Sequence[TrackedName]) -> dict[str, _Content]:
        """What git says of these; what it does not say is missing."""
        found: dict[str, _Content] = {}
        left_bytes = ALL_BYTES_MAX
        for batch in _batches(names):
            looked = self._look(batch)
            wanted: list[tuple[TrackedName, _Look]] = []
            for each, look in looked:
                if look.size_bytes <= min(FILE_BYTES_MAX, left_bytes):
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
        """What the script printed; nothing where that is too much, or not all of it."""
        argv = (
            *("/bin/sh", "-c", script, "sh", mark),
            "".join(f"{self._inner(each)}\n" for each in paths),
            "".join(f"{each.object_id}\n" for each in plain),
            "".join(f"{each.object_id} {self.above}{self._inner(each)}\n" for each in converted),
        )
        end = self.run(
            CommandRequest(self.plan, argv, self.repository, _TIMEOUT_S, _OUTPUT_BYTES_MAX)
        )
        if end.ending is not Ending.EXITED or end.stdout.missing_bytes:
            return b""
        return end.stdout.head + end.stdout.tail

    def _inner(self, name: TrackedName) -> str:
        if self.repository == ".":
            return name.path
        return name.path[len(self.repository) + 1 :]


@dataclass(frozen=True, slots=True)
class _Look:
    size_bytes: int
    is_converted: bool
    is_encoded: bool
    has_filter: bool


def _checked_out(name: TrackedName, look: _Look, plain: bytes, converted: bytes) -> bytes:
    """The converted content, or the plain one where that is what git found to be unchanged.

    For git, a file of another size than the index has noted is modified, whatever is in it
    (`ie_modified` in read-cache.c). So is a file that has been added with line ends which
    a checkout would not give it.
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
    """By path: what `check-attr -z` says of each attribute."""
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


def stamp_of(root_fd: int, name: str) -> tuple[int, ...]:
    """See `Stamp`."""
    try:
        look = os.stat(name, dir_fd=root_fd, follow_symlinks=False)
    except OSError:
        return ()
    return look.st_dev, look.st_ino, look.st_size, look.st_mtime_ns, look.st_ctime_ns
