"""The plane's own files, which no package brings: which there are, and what each may be."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.gates.ground import Ground
from paddock.gates.walk import Kind, Standing
from paddock.ledger.details import Detail, find_detail
from paddock.packages.manifest import (
    APPROVALS,
    approval_file,
    key_file,
    manifest_path,
    receipt_path,
)
from paddock.plane.files import read_file
from paddock.plane.layout import LedgerName
from paddock.values.digests import digest_of

LEDGER_DIRECTORIES: Final[Mapping[str, re.Pattern[str]]] = {
    directory: re.compile(rf"(?:{names})(?:(?:\.\d{{16}})?\.jsonl|(?P<details>\.d))", re.ASCII)
    for directory, names in (
        ("HOT/ledger", f"{LedgerName.GOVERNANCE}|{LedgerName.PACKAGES}"),
        ("HO2/ledger", LedgerName.HO2M),
        ("HO1/ledger", LedgerName.HO1M),
    )
}
"""Where ledgers stand, and what may stand there: segments, and what is kept beside them."""
WAITING_CALLS: Final = f"{APPROVALS}/calls"
"""Where calls wait for an operator's answer."""
_WAITING_CALL: Final = re.compile(r"APR-[0-9a-f]{16}\.[0-9a-f]{32}\.json", re.ASCII)
_NOT_OURS: Final = 0o7133
"""Set-id, sticky and execute bits, and writing by others: of a file that we only read."""


@dataclass(frozen=True, slots=True)
class OwnFile:
    """A file of the plane's own: the digest that it has to have, where that is known, and has."""

    digest: str | None = None
    found: str | None = None


def own_paths(ground: Ground) -> dict[str, OwnFile]:
    """Manifests, receipts, keys and approvals; each of the last two was read and loads.

    Raises: ConfigError, HostError.
    """
    found: dict[str, OwnFile] = {}
    for name, package in ground.installed.packages.items():
        manifest, receipt = package.manifest.canonical, package.receipt.to_bytes()
        for path, content in ((manifest_path(name), manifest), (receipt_path(name), receipt)):
            stands = read_file(ground.layout.root / path, limits.receipt_bytes_max)
            digest = None if stands is None else digest_of(stands)
            found[path] = OwnFile(digest_of(content), digest)
    for key_id in ground.keys:
        found[key_file(key_id)] = OwnFile()
    for wo_id in ground.approvals:
        found[approval_file(wo_id)] = OwnFile()
    return found


def is_waiting_call(path: str) -> bool:
    """Whether a call that waits for an answer would be kept there."""
    directory, _, name = path.rpartition("/")
    return directory == WAITING_CALLS and _WAITING_CALL.fullmatch(name) is not None


def find_ledger_detail(path: str) -> Detail | None:
    """What a ledger keeps there, beside its text; None where it keeps nothing."""
    place, separator, detail = path.partition(".d/")
    directory, _, name = place.rpartition("/")
    pattern = LEDGER_DIRECTORIES.get(directory)
    if not separator or pattern is None or pattern.fullmatch(f"{name}.d") is None:
        return None
    return find_detail(detail)


def find_own_problem(standing: Standing, own: OwnFile) -> str:
    if standing.kind is not Kind.FILE:
        return f"it is a {standing.kind.value}, and should be a file"
    if standing.mode & _NOT_OURS:
        return f"its mode is {standing.mode:04o}: others can write it, or it is a program"
    if own.digest != own.found:
        return "it is not, byte for byte, what was written there"
    return ""
