"""What a command would change, for whoever is asked about it or wanted to see it first.

What is refused is not shown: it may be secret. The digest binds an answer to all of it.
"""

import os
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.ledger.format.line import encode_json
from paddock.sandbox.changes.differences import Comparing, OpenLayers
from paddock.sandbox.changes.judging import ChangeKind, CommandChange
from paddock.sandbox.changes.settling import Settled
from paddock.sandbox.changes.upper import Kind, Look
from paddock.sandbox.git.rules import NodeKind
from paddock.storage.atomic import held_open, host_error
from paddock.storage.disk import digest_of_file
from paddock.text.changes import unified_diff
from paddock.text.show import show_name
from paddock.values.entries import digest_of
from paddock.workspace.resolve import READ_FILE

_FILE_BYTES_MAX: Final = 400_000
_FILE_LINES_WHOLE: Final = 20_000
_FILE_LINES_MAX: Final = 400
_PERMISSIONS: Final = 0o777
_USUAL_MODES: Final = {NodeKind.FILE: 0o644, NodeKind.DIRECTORY: 0o755}
"""Of what is new: under these nothing is said."""


class ShownDiff(Struct, frozen=True):
    text: str
    digest: str
    warnings: tuple[str, ...]


def show_settled(
    settled: Sequence[Settled], layers: OpenLayers, hidden: Sequence[str]
) -> ShownDiff:
    """Return the diff of all that would land, without `hidden` names. Raises: HostError."""
    closed = tuple(f"{name}/" for name in hidden)
    with host_error("the changes of a command cannot be read"):
        return _show([each for each in settled if each.lands], layers, closed)


def _show(landing: Sequence[Settled], layers: OpenLayers, closed: tuple[str, ...]) -> ShownDiff:
    comparing = Comparing(layers.upper_fd, layers.lower_fd, layers.resolution)
    rows: list[str] = []
    bound: list[list[str | int]] = []
    left = limits.shell_diff_bytes_max
    hidden = 0
    for each in landing:
        bound.append(_bound(each, comparing, layers))
        row = ""
        if left > 0:
            row = _row(each, comparing, layers, closed, _FILE_LINES_WHOLE)
        if len(row) > left > 0:
            row = _row(each, comparing, layers, closed, _FILE_LINES_MAX)
        left -= len(row)
        if left < 0:
            hidden += 1
        else:
            rows.append(row)
    if hidden:
        rows.append(f"[{hidden} more changed paths are not shown: the diff is cut]")
    text = "\n".join(rows) if rows else "[nothing would change]"
    digest = digest_of(encode_json(bound).encode("utf-8", "surrogateescape"))
    warnings = dict.fromkeys(said for each in landing for said in each.judgement.warnings)
    return ShownDiff(text, digest, tuple(warnings))


def _bound(settled: Settled, comparing: Comparing, layers: OpenLayers) -> list[str | int]:
    change = settled.judgement.change
    version = settled.difference.version or ""
    is_written = change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED)
    if is_written and change.node is NodeKind.FILE:
        with held_open(comparing.resolution.open(layers.upper_fd, change.path, READ_FILE)) as fd:
            version = digest_of_file(fd, os.fstat(fd).st_size)
    return [
        change.path,
        change.kind.value,
        change.node.value,
        change.mode,
        change.link_text,
        version,
    ]


def _row(
    settled: Settled,
    comparing: Comparing,
    layers: OpenLayers,
    closed: tuple[str, ...],
    lines_max: int,
) -> str:
    difference, change = settled.difference, settled.judgement.change
    name, is_file = _name(change), change.node is NodeKind.FILE
    if change.kind is ChangeKind.MODE:
        return f"{name}: {', '.join(_marks(settled, difference.lower))}"
    said = f"link {change.kind.value}" if change.node is NodeKind.LINK else change.kind.value
    # Threat: `dry_run` over a file that may be written and not read.
    if f"{change.path}/".startswith(closed):
        closing = ["and may not be read"] if is_file else []
        return ", ".join((f"{name}: {said}", *closing, *_marks(settled, None)))
    notes = [*_was(settled, comparing), *_marks(settled, difference.lower)]
    before = _content(comparing, layers.lower_fd, change.path, difference.lower)
    after = _content(comparing, layers.upper_fd, change.path, difference.upper)
    if before is None or after is None or b"\0" in before + after:
        return ", ".join((f"{name}: {said}", "binary or too large to compare", *notes))
    diff = unified_diff(before, after, show_name(change.path), lines_max)
    if diff and not notes:
        return diff
    if diff:
        return f"{name}: {', '.join((said, *notes))}\n{diff}"
    return ", ".join((f"{name}: {said}", *(["empty"] if is_file else []), *notes))


def _name(change: CommandChange) -> str:
    name = show_name(change.path)
    if change.node is NodeKind.DIRECTORY and change.kind is not ChangeKind.MODE:
        return f"{name}/"
    return f"{name} -> {show_name(change.link_text)}" if change.link_text else name


def _was(settled: Settled, comparing: Comparing) -> list[str]:
    change, lower = settled.judgement.change, settled.difference.lower
    if change.kind is not ChangeKind.CREATED or lower is None:
        return []
    if lower.kind is not Kind.LINK:
        return [f"was a {lower.kind.value}"]
    return [f"was a link -> {show_name(comparing.link_text(change.path) or '?')}"]


def _marks(settled: Settled, old: Look | None) -> list[str]:
    change, upper = settled.judgement.change, settled.difference.upper
    usual = _USUAL_MODES.get(change.node)
    if usual is None or upper is None:
        return []
    if old is not None and old.kind is upper.kind:
        usual = old.mode & _PERMISSIONS
    mode = change.mode & _PERMISSIONS
    marks = [f"mode {mode:04o}"] if mode != usual else []
    if change.kind is ChangeKind.MODE and change.node is NodeKind.FILE:
        marks += ["time"] if old is None or old.mtime_ns != upper.mtime_ns else []
    return marks


def _content(comparing: Comparing, root_fd: int, path: str, look: Look | None) -> bytes | None:
    if look is None or look.kind is not Kind.FILE:
        return b""
    try:
        fd = comparing.resolution.open(root_fd, path, READ_FILE)
    except OSError:
        return None
    try:
        content = os.pread(fd, _FILE_BYTES_MAX + 1, 0)
    except OSError:
        return None
    finally:
        os.close(fd)
    return content if len(content) <= _FILE_BYTES_MAX else None
