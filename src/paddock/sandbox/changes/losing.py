"""What a command's changes could lose, counted: so much lands without a question, more waits.

Not counted is what somebody makes again or has elsewhere: what is `generated`, lies in a folder
of dependencies, git ignores, or stood in git's index as on the disk, for a step of git.
"""

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from paddock.policy.engine import PathGuards
from paddock.policy.settings import ConfineMax
from paddock.sandbox.changes.differences import OpenLayers
from paddock.sandbox.changes.judging import ChangeKind
from paddock.sandbox.changes.settling import Settled
from paddock.sandbox.git.objects import GIT_ENVIRONMENT, GIT_OPTIONS, find_object_name
from paddock.sandbox.git.rules import NodeKind
from paddock.sandbox.git.tracked import IndexPlace, find_indexed
from paddock.sandbox.host.host_facts import find_content

_MEGABYTE: Final = 1_000_000
_COMPARED_BYTES_MAX: Final = 500_000_000
_GIT_WAIT_S: Final = 10.0
_CHECK_IGNORE: Final = ("git", *GIT_OPTIONS, "check-ignore", "-z", "--stdin")


def find_excess(
    settled: Sequence[Settled], layers: OpenLayers, guards: PathGuards, most: ConfineMax
) -> str:
    """Say what of the changes that land is more than may without a question; else empty."""
    lost = [each for each in settled if _could_lose(each, guards)]
    if not _excess(lost, most):
        return ""
    # What is looked at only now takes a while.
    ignored = _find_ignored(layers.lower_fd, map(_path, lost))
    lost = [each for each in lost if _path(each) not in ignored]
    if any(_is_gits(_path(each)) for each in settled if each.lands):
        known = _find_known(layers.lower_fd, lost)
        lost = [each for each in lost if _path(each) not in known]
    return _excess(lost, most)


def _could_lose(settled: Settled, guards: PathGuards) -> bool:
    change = settled.judgement.change
    path = change.path
    return (
        settled.lands
        and change.kind in (ChangeKind.MODIFIED, ChangeKind.DELETED)
        and change.node is not NodeKind.DIRECTORY
        and not _is_gits(path)
        and guards.find_generated(path) is None
        and not guards.is_below_generated(path)
        and not guards.is_in_dependency(path)
    )


def _path(settled: Settled) -> str:
    return settled.judgement.change.path


def _is_gits(path: str) -> bool:
    return ".git" in path.split("/")


def _excess(lost: Sequence[Settled], most: ConfineMax) -> str:
    deleted = sum(each.judgement.change.kind is ChangeKind.DELETED for each in lost)
    size = sum(each.difference.lower.size_bytes for each in lost if each.difference.lower)
    if len(lost) > most.files:
        return f"{len(lost)} files are changed or gone, and [shell] confine_max is {most.files}"
    if deleted > most.deleted:
        return f"{deleted} files are gone, and [shell] confine_max is {most.deleted} deleted"
    if size > most.mb * _MEGABYTE:
        return f"{size} bytes are replaced or gone, and [shell] confine_max is {most.mb} mb"
    return ""


def _find_ignored(root_fd: int, paths: Iterable[str]) -> frozenset[str]:
    try:
        done = subprocess.run(
            _CHECK_IGNORE,
            input=b"".join(os.fsencode(path) + b"\0" for path in paths),
            # The workspace itself, wherever its name leads by now.
            cwd=f"/proc/self/fd/{root_fd}",
            pass_fds=(root_fd,),
            env=GIT_ENVIRONMENT,
            capture_output=True,
            timeout=_GIT_WAIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return frozenset(map(os.fsdecode, done.stdout.split(b"\0")[:-1]))


def _find_known(root_fd: int, lost: Sequence[Settled]) -> frozenset[str]:
    wanted = frozenset(os.fsencode(_path(each)) for each in lost)
    found = find_indexed(IndexPlace(".", root_fd, ".git/"), wanted)
    entries = {entry.path: entry.object_id for entry in found}
    return frozenset(_as_indexed(root_fd, lost, entries))


def _as_indexed(
    root_fd: int, lost: Sequence[Settled], entries: dict[bytes, bytes]
) -> Iterator[str]:
    left = _COMPARED_BYTES_MAX
    for each in lost:
        path, lower = _path(each), each.difference.lower
        named = entries.get(os.fsencode(path))
        if named is None or lower is None or lower.size_bytes > left:
            continue
        left -= lower.size_bytes
        content = find_content(root_fd, path, lower.size_bytes)
        if content is not None and find_object_name(b"blob", content, len(named)) == named:
            yield path
