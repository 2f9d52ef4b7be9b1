"""What a command would change, for whoever is asked about it or wanted to see it first.

Only what would land is shown with its content: what is refused is none of it, and may
be secret. The digest binds an answer to all of it, shown or cut.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.format_json import encode_json
from paddock.sandbox.comparing import Comparing
from paddock.sandbox.differences import Layers
from paddock.sandbox.git_rules import NodeKind
from paddock.sandbox.judging import ChangeKind
from paddock.sandbox.settling import Settled
from paddock.text.changes import unified_diff
from paddock.text.show import show_name
from paddock.values.digests import digest_of
from paddock.workspace.reading import version_of_file
from paddock.workspace.resolution import READ_FILE

_FILE_BYTES_MAX: Final = 400_000
_FILE_LINES_MAX: Final = 400


@dataclass(frozen=True, slots=True)
class Shown:
    """A diff, and the digest of everything that it is about."""

    text: str
    digest: str
    warnings: tuple[str, ...]
    """What policy warns of, each once."""


def show_settled(settled: Sequence[Settled], layers: Layers, hidden: Sequence[str]) -> Shown:
    """The diff of all that would land. Raises: HostError: the layer cannot be read.

    `hidden` are the names that the command could not see: what stands under them is not
    shown here either.
    """
    closed = tuple(f"{name}/" for name in hidden)
    try:
        return _show([each for each in settled if each.lands], layers, closed)
    except OSError as error:
        raise HostError(
            f"the changes of a command cannot be read: {os.strerror(error.errno or 0)}"
        ) from error


def _show(landing: Sequence[Settled], layers: Layers, closed: tuple[str, ...]) -> Shown:
    comparing = Comparing(layers.upper_fd, layers.lower_fd)
    rows: list[str] = []
    bound: list[list[str | int]] = []
    left = limits.shell_diff_bytes_max
    hidden = 0
    for each in landing:
        bound.append(_bound(each, comparing, layers))
        row = _row(each, comparing, layers, closed) if left > 0 else ""
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
    return Shown(text, digest, tuple(warnings))


def _bound(settled: Settled, comparing: Comparing, layers: Layers) -> list[str | int]:
    change = settled.judgement.change
    version = settled.difference.version or ""
    is_written = change.kind in (ChangeKind.CREATED, ChangeKind.MODIFIED)
    if is_written and change.node is NodeKind.FILE:
        fd = comparing.resolution.open(layers.upper_fd, change.path, READ_FILE)
        try:
            version = version_of_file(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)
    return [
        change.path,
        change.kind.value,
        change.node.value,
        change.mode,
        change.link_text,
        version,
    ]


def _row(settled: Settled, comparing: Comparing, layers: Layers, closed: tuple[str, ...]) -> str:
    change = settled.judgement.change
    name = show_name(change.path)
    if change.kind is ChangeKind.MODE:
        return f"{name}: mode {change.mode & 0o777:04o}"
    if change.node is NodeKind.DIRECTORY:
        return f"{name}/: {change.kind.value}"
    if change.node is NodeKind.LINK:
        leads = f" -> {show_name(change.link_text)}" if change.link_text else ""
        return f"{name}{leads}: link {change.kind.value}"
    # Threat: `dry_run` over a file that may be written and not read.
    if f"{change.path}/".startswith(closed):
        return f"{name}: {change.kind.value}, and may not be read"
    was_file = settled.difference.lower is not None and not settled.difference.is_replaced
    before = _content(comparing, layers.lower_fd, change.path) if was_file else b""
    after = b""
    if change.kind is not ChangeKind.DELETED:
        after = _content(comparing, layers.upper_fd, change.path)
    if before is None or after is None or b"\0" in before + after:
        return f"{name}: {change.kind.value}, binary or too large to compare"
    return (
        unified_diff(before, after, name, _FILE_LINES_MAX) or f"{name}: {change.kind.value}, empty"
    )


def _content(comparing: Comparing, root_fd: int, path: str) -> bytes | None:
    """None for what is too large, or is no file that can be read."""
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
