"""G0B: every file under a governed root is owned, and every owned file is there, unchanged.

Proves: below HOT, HO2 and HO1 there are only files of installed packages, with their exact
content, type and mode, and the plane's own files, each in its only valid form. Hidden files,
links, special files and empty directories count as well. Configuration is owned by path: it
loads, governance has the digest of its current content, and its mode grants no more than the
original one. Files beside a ledger have names that a ledger uses. Others can write to no directory
there, and no file belongs to another user.

Cannot prove: anything about `HO2/scratch`, `agents` and `objects`, where work is stored, or about
files beside the tiers in the plane's root; what a ledger says (G6); whose keys and approvals
these are (G2, G5). It describes the present, not a moment ago.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError
from paddock.gates.evidence import NOTHING_INSTALLED, GateEvidence
from paddock.gates.results import G0B, GateResult, Tally
from paddock.ledger.checkpoint import Detail, find_detail
from paddock.packages.installed import InstalledPackage, file_problem, load_alone, load_governed
from paddock.packages.manifest import (
    APPROVALS,
    approval_file,
    key_file,
    manifest_path,
    receipt_path,
)
from paddock.pattern import lazy_pattern
from paddock.plane.json_files import parse_file
from paddock.plane.layout import BARE_DIRECTORIES, TIERS, LedgerName
from paddock.storage.atomic import (
    WRITABLE_BY_OTHERS,
    held_open,
    host_errors,
    read_file,
    trusted_owners,
)
from paddock.text.show import quote
from paddock.values.entries import digest_of
from paddock.workspace.metadata import kind_of
from paddock.workspace.paths import EntryKind


def config_problem(path: str, evidence: GateEvidence) -> str:
    content = read_file(evidence.layout.root / path, limits.admin_config_bytes_max)
    if content is None:
        return "it is missing"
    try:
        load_governed(path, content, load_alone)
        if path.endswith(".json"):
            _load_json(path, content)
        elif path.endswith(".toml"):
            tomllib.loads(content.decode())
    except ConfigError as error:
        return f"it does not load: {error.message}"
    except (ValueError, RecursionError) as error:
        return f"it does not load: {error}"
    digest = digest_of(content)
    if evidence.recorded_config.get(path) != digest:
        return f"governance has no record of its digest {digest}"
    return ""


def _load_json(path: str, content: bytes) -> None:
    if content.lstrip().startswith(b"{"):
        parse_file(content, path)  # refuses a duplicate key
    else:
        json.loads(content)


# A directory that became a link since it was listed is not entered (open(2), O_NOFOLLOW).
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


_WORDS: Final = {EntryKind.SPECIAL: "FIFO, socket or device"}


class OwnedEntry(Struct, frozen=True):
    path: str
    """Relative to the root, owned or not; bytes that are not UTF-8 are surrogates."""
    kind: EntryKind
    mode: int
    """Permission bits, set-id and sticky bits included."""
    owner: int
    is_too_deep: bool = False
    """A directory that was not entered, since it is `limits.path_depth_max` deep."""

    @property
    def word(self) -> str:
        return _WORDS.get(self.kind, self.kind.value)


def walk(root: Path, tops: Collection[str], closed: Collection[str]) -> Iterator[OwnedEntry]:
    """Yield everything at and below `tops`, parents first, without entering `closed`.

    A directory that is too deep is not entered either, and is marked `is_too_deep`. Entries that
    vanish meanwhile are left out. Raises: HostError: a directory cannot be listed.
    """
    with host_errors("opening", root):
        root_fd = os.open(root, _DIRECTORY)
    with held_open(root_fd):
        for top in tops:
            with host_errors("inspecting", root / top):
                os.stat(top, dir_fd=root_fd, follow_symlinks=False)
        yield from _walk(root_fd, "", tops, closed)


def _walk(
    dir_fd: int, prefix: str, names: Collection[str], closed: Collection[str]
) -> Iterator[OwnedEntry]:
    for name in names:
        path = f"{prefix}{name}"
        with host_errors("inspecting", Path(path)):
            try:
                found = _entry(path, os.stat(name, dir_fd=dir_fd, follow_symlinks=False))
            except FileNotFoundError:
                continue
        yield found
        # Threat: a chain of directories deeper than Python's stack or the limit of open descriptors
        # would crash the gate instead of failing it. So the depth is limited.
        if found.kind is not EntryKind.DIRECTORY or found.is_too_deep or path in closed:
            continue
        with host_errors("listing", Path(path)):
            try:
                fd = os.open(name, _DIRECTORY, dir_fd=dir_fd)
            except FileNotFoundError:
                continue
        with held_open(fd):
            with host_errors("listing", Path(path)):
                below = sorted(os.listdir(fd))
            yield from _walk(fd, f"{path}/", below, closed)


def _entry(path: str, status: os.stat_result) -> OwnedEntry:
    kind, mode = kind_of(status.st_mode), stat.S_IMODE(status.st_mode)
    is_too_deep = kind is EntryKind.DIRECTORY and path.count("/") >= limits.path_depth_max
    return OwnedEntry(path, kind, mode, status.st_uid, is_too_deep)


LEDGER_DIRECTORIES: Final[Mapping[str, re.Pattern[str]]] = {
    directory: lazy_pattern(rf"(?:{names})(?:(?:\.\d{{16}})?\.jsonl|(?P<details>\.d))", re.ASCII)
    for directory, names in (
        ("HOT/ledger", f"{LedgerName.GOVERNANCE}|{LedgerName.PACKAGES}"),
        ("HO2/ledger", LedgerName.HO2M),
        ("HO1/ledger", LedgerName.HO1M),
    )
}
"""The directories of ledgers, and valid names there: segments, and directories beside them."""
WAITING_CALLS: Final = f"{APPROVALS}/calls"
_WAITING_CALL: Final = lazy_pattern(r"APR-[0-9a-f]{16}\.[0-9a-f]{32}\.json", re.ASCII)
_BITS_NEVER_SET: Final = 0o7133
"""Set-id, sticky and execute bits, and write access for group or others."""


class OwnFile(Struct, frozen=True):
    digest: str | None = None
    """The required digest; None: any content."""
    found: str | None = None


def own_paths(evidence: GateEvidence) -> dict[str, OwnFile]:
    found: dict[str, OwnFile] = {}
    for name, package in evidence.installed.packages.items():
        manifest, receipt = package.manifest.canonical, package.receipt.to_bytes()
        for path, content in ((manifest_path(name), manifest), (receipt_path(name), receipt)):
            stands = read_file(evidence.layout.root / path, limits.receipt_bytes_max)
            digest = None if stands is None else digest_of(stands)
            found[path] = OwnFile(digest_of(content), digest)
    for key_id in evidence.keys:
        found[key_file(key_id)] = OwnFile()
    for wo_id in evidence.approvals:
        found[approval_file(wo_id)] = OwnFile()
    return found


def is_waiting_call(path: str) -> bool:
    directory, _, name = path.rpartition("/")
    return directory == WAITING_CALLS and _WAITING_CALL.fullmatch(name) is not None


def find_ledger_detail(path: str) -> Detail | None:
    place, separator, detail = path.partition(".d/")
    directory, _, name = place.rpartition("/")
    pattern = LEDGER_DIRECTORIES.get(directory)
    if not separator or pattern is None or pattern.fullmatch(f"{name}.d") is None:
        return None
    return find_detail(detail)


def find_own_problem(entry: OwnedEntry, own: OwnFile) -> str:
    if entry.kind is not EntryKind.FILE:
        return f"it is a {entry.word}, and should be a file"
    if entry.mode & _BITS_NEVER_SET:
        return f"its mode is {entry.mode:04o}: others can write it, or it is a program"
    if own.digest != own.found:
        return "its content has changed"
    return ""


def _place_problem(entry: OwnedEntry, wanted: EntryKind) -> str:
    if entry.kind is not wanted:
        return f"it is a {entry.word}, and should be a {wanted.value}"
    if entry.mode & WRITABLE_BY_OTHERS:
        return f"others can write to it: its mode is {entry.mode:04o}"
    return ""


FREE: Final = "HO2/scratch"  # not entered
_SPECIAL_BITS: Final = 0o7000
"""Set-id and sticky bits, which no package and no receipt has."""


def check_owned(evidence: GateEvidence) -> GateResult:
    tally = Tally(G0B)
    tally.fail(evidence.deviations)
    owners = _owners(evidence, tally)
    for path, owner in owners.items():
        tally.look(path, _owned_problem(path, owner, evidence))
    places = _ValidPlaces(evidence, owners)
    users = trusted_owners(evidence.layout.root)
    for entry in walk(evidence.layout.root, TIERS, (FREE,)):
        if entry.owner not in users:
            # Threat: the owner of a file can write it, whatever its mode is now.
            tally.look(entry.path, f"it belongs to user {entry.owner}")
        if entry.path not in owners:
            tally.look(entry.path, places.problem(entry))
        elif entry.kind is EntryKind.FILE and _is_too_open(entry, owners[entry.path]):
            tally.look(entry.path, f"its mode is {entry.mode:04o}")
    if not owners and not places.own:
        tally.discount()  # Directories alone prove nothing.
    return tally.result(NOTHING_INSTALLED)


def _owners(evidence: GateEvidence, tally: Tally) -> dict[str, InstalledPackage]:
    listing: dict[str, list[InstalledPackage]] = {}
    for package in evidence.installed.packages.values():
        for path in package.manifest.by_path:
            listing.setdefault(path, []).append(package)
    owners: dict[str, InstalledPackage] = {}
    for path, packages in sorted(listing.items()):
        if len(packages) != 1:
            names = ", ".join(package.package_id for package in packages)
            tally.look(path, f"it has {len(packages)} owners: {names}")
        owners[path] = packages[0]
    return owners


def _owned_problem(path: str, owner: InstalledPackage, evidence: GateEvidence) -> str:
    problem = file_problem(owner, path, evidence.workspace)
    if problem or not owner.manifest.by_path[path].is_config:
        return problem
    return config_problem(path, evidence)


def _is_too_open(entry: OwnedEntry, owner: InstalledPackage) -> bool:
    """Return True if its mode grants more than the original mode.

    Threat: operators edit configuration, so any recorded content is valid. But a policy that
    others can write is theirs. A stricter mode is fine.
    """
    if owner.manifest.by_path[entry.path].is_config:
        return bool(entry.mode & ~owner.files[entry.path].bits)
    return bool(entry.mode & _SPECIAL_BITS)


class _ValidPlaces:
    """The valid entries that belong to no package."""

    def __init__(self, evidence: GateEvidence, owners: Mapping[str, InstalledPackage]) -> None:
        self.own = own_paths(evidence)
        self._directories = {*BARE_DIRECTORIES, FREE, WAITING_CALLS}
        for path in (*owners, *self.own):
            self._directories |= set(map(str, PurePosixPath(path).parents))

    def problem(self, entry: OwnedEntry) -> str:
        path = entry.path
        if entry.is_too_deep:
            return f"it is {limits.path_depth_max} directories deep, and was not checked"
        detail = find_ledger_detail(path)
        if path in self._directories or detail is Detail.DIRECTORY:
            return _place_problem(entry, EntryKind.DIRECTORY)
        if path in self.own:
            return find_own_problem(entry, self.own[path])
        if is_waiting_call(path) or detail is not None:
            return find_own_problem(entry, OwnFile())
        directory, _, name = path.rpartition("/")
        if directory not in LEDGER_DIRECTORIES:
            return f"no package owns this {entry.word}"
        matched = LEDGER_DIRECTORIES[directory].fullmatch(name)
        if matched is None:
            return f"{quote(name)} is not a ledger's file name"
        is_details = matched["details"] is not None
        return _place_problem(entry, EntryKind.DIRECTORY if is_details else EntryKind.FILE)
