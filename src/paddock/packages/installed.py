"""Read the installed packages from `HOT/installed`, and find the owner of a file.

A package is installed if its manifest and its receipt exist there and agree. Anything else in that
directory is reported as a problem, except temporary files of a write.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct

from paddock import limits
from paddock.errors import ConfigError, PaddockError
from paddock.packages.manifest import (
    MANIFEST,
    PLANE_MARKER,
    RECEIPT,
    Asset,
    Digest,
    Manifest,
    find_collision,
    find_place_problems,
    is_package_id,
    parse_manifest,
    path_problem,
    shown_collision,
)
from paddock.packages.rows import Failure, GateRefusedError, OwnershipRefusedError
from paddock.packages.signing import Signature
from paddock.plane.admin import is_contract, parse_admin_config
from paddock.plane.json_files import names_in, parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.policy.engine import PolicySource, load_policy
from paddock.storage.atomic import read_file
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.decisions import PlaneKind
from paddock.values.entries import digest_of
from paddock.workspace import Workspace
from paddock.workspace.changes import EntryState, entry_state
from paddock.workspace.paths import EntryKind, is_temporary_name

FORMAT: Final = 1


class InstalledFile(Strict, frozen=True):
    """One original file of a package; an operator may have edited a `config` file since."""

    path: str
    sha256: Digest
    mode: Literal["644", "755"]

    @property
    def bits(self) -> int:
        return int(self.mode, 8)


class InstallReceipt(Strict, frozen=True, kw_only=True):
    format: int = FORMAT
    package_id: str
    version: str
    digest: Digest
    archive: Digest
    transaction: str
    ledger_entry: str = ""
    """The id of its entry in the packages ledger; empty in a draft."""
    installed_at: str
    wo_id: str | None = None
    """The approval that was used; None if the plane, or `--dev`, required none."""
    dev: bool
    signature: Signature | None = None
    files: tuple[InstalledFile, ...] = ()
    handed_over: tuple[Any, ...] = ()

    def to_bytes(self) -> bytes:
        return write_object(self)


def parse_receipt(content: bytes, file: str) -> InstallReceipt:
    given = parse_file(content, file)
    read = given.convert(InstallReceipt)
    if read.format != FORMAT:
        raise given.error("format", "the format is not known", f"this version reads {FORMAT}")
    if read.handed_over:
        raise given.error(
            "handed_over",
            "it took a file over from another package, and a file has only one package",
            "uninstall it with the version of paddock that installed it",
        )
    for each in read.files:
        problem = path_problem(each.path)
        if problem:
            raise given.error("files", problem, "a path of the plane")
    return read


class InstalledPackage(Struct, frozen=True, dict=True):
    manifest: Manifest
    receipt: InstallReceipt

    @cached_property
    def files(self) -> Mapping[str, InstalledFile]:
        return {each.path: each for each in self.receipt.files}

    @property
    def package_id(self) -> str:
        return self.manifest.package_id


class InstalledSet(Struct, frozen=True):
    packages: Mapping[str, InstalledPackage]
    problems: tuple[Failure, ...] = ()

    def owner_of(self, path: str) -> InstalledPackage | None:
        owners = [each for each in self.packages.values() if path in each.manifest.by_path]
        return owners[0] if len(owners) == 1 else None

    def dependents_of(self, package_id: str) -> tuple[str, ...]:
        found = [
            name
            for name, package in self.packages.items()
            if package_id in package.manifest.dependencies
        ]
        return tuple(sorted(found))

    @property
    def digest(self) -> str:
        return digest_of_set(package.manifest for package in self.packages.values())


SetRow = tuple[str, str, str]
"""Id, version and digest of one package of a set."""


def digest_of_set(manifests: Iterable[Manifest]) -> str:
    return digest_of_rows(map(row_of, manifests))


def row_of(manifest: Manifest) -> SetRow:
    return manifest.package_id, manifest.version, manifest.digest


def digest_of_rows(rows: Iterable[SetRow]) -> str:
    """SHA-256 over `<id> <version> <digest>` LF of every package, sorted by id."""
    text = "".join(f"{' '.join(row)}\n" for row in sorted(rows))
    return digest_of(text.encode("utf-8"))


def read_installed(layout: PlaneLayout) -> InstalledSet:
    packages: dict[str, InstalledPackage] = {}
    problems: list[Failure] = []
    for name in names_in(layout.installed):
        if is_temporary_name(name):
            continue  # of a write that is not over
        try:
            packages[name] = _read_package(layout.installed / name)
        except ConfigError as error:
            problems.append(Failure(f"HOT/installed/{name}", error.message))
    return InstalledSet(packages, tuple(problems))


def _read_package(directory: Path) -> InstalledPackage:
    name = directory.name
    if not is_package_id(name):
        raise ConfigError("it is not an installed package")
    manifest_bytes = read_file(directory / MANIFEST, limits.manifest_bytes_max)
    receipt_bytes = read_file(directory / RECEIPT, limits.receipt_bytes_max)
    if manifest_bytes is None or receipt_bytes is None:
        missing = MANIFEST if manifest_bytes is None else RECEIPT
        raise ConfigError(f"it has no {missing}")
    manifest = parse_manifest(manifest_bytes, f"{name}/{MANIFEST}")
    receipt = parse_receipt(receipt_bytes, f"{name}/{RECEIPT}")
    if manifest.canonical != manifest_bytes:
        raise ConfigError(f"its {MANIFEST} is not in canonical form")
    if manifest.package_id != name or receipt.package_id != name:
        raise ConfigError("it is named after another package")
    if not receipt.ledger_entry:
        raise ConfigError("it is being changed: the packages ledger has no entry of it yet")
    if receipt.digest != manifest.digest or receipt.version != manifest.version:
        raise ConfigError(f"its {RECEIPT} and its {MANIFEST} are of different packages")
    brought = {(each.path, each.sha256) for each in receipt.files}
    if brought != {(asset.path, asset.sha256) for asset in manifest.assets}:
        raise ConfigError(f"its {RECEIPT} and its {MANIFEST} list different files")
    return InstalledPackage(manifest, receipt)


#     HOT/registries/specs/<spec_id>.json            {spec_id, framework_id, title}
#     HOT/registries/frameworks/<framework_id>.json  {framework_id, title, specs[]}
#
# Each row is a separate file, so no two packages share one; the registry of packages is
# `HOT/installed`. `specs` of a framework are those that it expects. This module reads rows; the
# gates G1 and G1-COMPLETE check their references.

SPECS: Final = "HOT/registries/specs"
FRAMEWORKS: Final = "HOT/registries/frameworks"
_ENDING: Final = ".json"


class Spec(Strict, frozen=True):
    spec_id: str
    framework_id: str
    title: str


class Framework(Strict, frozen=True):
    framework_id: str
    title: str
    specs: tuple[str, ...] = ()


class Registries(Struct, frozen=True):
    specs: Mapping[str, Spec]
    frameworks: Mapping[str, Framework]
    problems: tuple[Failure, ...] = ()


_Row = TypeVar("_Row", Spec, Framework)


def read_registries(layout: PlaneLayout) -> Registries:
    problems: list[Failure] = []
    specs = _read_registry(layout, SPECS, Spec, problems)
    frameworks = _read_registry(layout, FRAMEWORKS, Framework, problems)
    return Registries(specs, frameworks, tuple(problems))


def _read_registry(
    layout: PlaneLayout, place: str, type_: type[_Row], problems: list[Failure]
) -> dict[str, _Row]:
    found: dict[str, _Row] = {}
    for name in names_in(layout.root / place):
        path = f"{place}/{name}"
        try:
            if not is_temporary_name(name):
                found[name.removesuffix(_ENDING)] = _read_row(layout.root / path, path, type_)
        except ConfigError as error:
            problems.append(Failure(path, error.message))
    return found


def _read_row(path: Path, file: str, type_: type[_Row]) -> _Row:
    content = read_file(path, limits.registry_file_bytes_max)
    if content is None or path.suffix != _ENDING:
        raise ConfigError(f"{quote(path.name)} is not a file of a registry")
    given = parse_file(content, file)
    row = given.convert(type_)
    if isinstance(row, Framework):
        given.require_once("specs", row.specs)
    key, name = (
        ("spec_id", row.spec_id) if isinstance(row, Spec) else ("framework_id", row.framework_id)
    )
    if path.name != f"{name}{_ENDING}":
        raise given.error(
            key, f"{key} is {quote(name)}, but the file has another name", "rename the file"
        )
    return row


def check_package(package: InstalledPackage, workspace: Workspace) -> tuple[Failure, ...]:
    """Check every file of the package.

    For `config`, check only that it is a regular file: its content belongs to the operators.
    """
    problems = ((path, file_problem(package, path, workspace)) for path in package.manifest.by_path)
    return tuple(Failure(path, problem) for path, problem in problems if problem)


def file_problem(package: InstalledPackage, path: str, workspace: Workspace) -> str:
    try:
        state = entry_state(workspace, workspace.resolve_entry(path))
    except PaddockError as error:
        return error.message
    return _difference(package, path, state)


def _difference(package: InstalledPackage, path: str, state: EntryState | None) -> str:
    if state is None:
        return "it is missing"
    if state.kind is not EntryKind.FILE:
        return f"it is a {state.kind.value}"
    if package.manifest.by_path[path].is_config:
        return ""
    brought = package.files[path]
    if state.version != brought.sha256:
        return f"its digest is {state.version}, not {brought.sha256}"
    if state.mode != brought.bits:
        return f"its mode is {state.mode:04o}, not {brought.bits:04o}"
    return ""


class Put(Struct, frozen=True):
    asset: Asset
    before: InstalledFile | None

    @property
    def path(self) -> str:
        return self.asset.path


class Remove(Struct, frozen=True):
    path: str
    before: InstalledFile


Act = Put | Remove


def plan_ownership(
    new: Manifest | None, old: InstalledPackage | None, installed: InstalledSet
) -> tuple[Act, ...]:
    own = {each.package_id for each in (new, old) if each is not None}
    others = [package for name, package in installed.packages.items() if name not in own]
    wanted: Mapping[str, Asset] = {} if new is None else new.by_path
    had: Mapping[str, InstalledFile] = {} if old is None else old.files
    problems = [] if new is None else find_place_problems(new)
    if problems:
        raise GateRefusedError("G0B", problems)
    failures = [
        Failure(path, f"it belongs to {other.package_id}")
        for path in sorted(wanted)
        for other in others
        if path in other.manifest.by_path
    ]
    if failures:
        raise OwnershipRefusedError(failures)
    theirs = (path for package in others for path in package.manifest.by_path)
    found = find_collision(dict.fromkeys((*theirs, *wanted))) if wanted else None
    if found is not None:
        raise OwnershipRefusedError([Failure(found[1], shown_collision(found))])
    return tuple(
        Put(wanted[path], had.get(path)) if path in wanted else Remove(path, had[path])
        for path in sorted(wanted.keys() | had.keys())
    )


# If a plane's configuration or policy does not load, no command works, not even one that removes
# the package again. So these files are loaded before the package is installed.

POLICIES: Final = ("HOT/config/policy.toml", "HOT/config/policy.json")
"""A plane has at most one of them."""
_CONTRACTS: Final = "HO1/contracts/"


Load = Callable[[str, bytes], None]
"""Loads the new content of `PLANE_MARKER` or of one of `POLICIES`. Raises: ConfigError."""


def load_alone(path: str, content: bytes) -> None:
    if path == PLANE_MARKER:
        parse_admin_config(content, Path(path))
    else:
        load_policy(PolicySource(Path(path).name, content, True), None, PlaneKind.BARE)


def find_loading_problems(
    put: Mapping[str, bytes], standing: frozenset[str], load: Load
) -> Iterator[Failure]:
    """`put`: files that a change writes; `standing`: the policies that exist after it."""
    for path, content in put.items():
        try:
            load_governed(path, content, load)
        except ConfigError as error:
            yield Failure(path, f"it does not load: {error.message}")
    if len(standing) > 1 and not standing.isdisjoint(put):
        yield Failure(POLICIES[1], "the plane would have two policies")


def load_governed(path: str, content: bytes, load: Load) -> None:
    if path == PLANE_MARKER:
        _require_size(content, limits.admin_config_bytes_max)
        load(path, content)
    elif path in POLICIES:
        _require_size(content, limits.policy_bytes_max)
        load(path, content)
    elif path.startswith(_CONTRACTS):
        name, below, _ = path.removeprefix(_CONTRACTS).partition("/")
        if not is_contract(name):
            return
        if below:
            raise ConfigError("a directory is in the place of a prompt contract")
        _require_size(content, limits.prompt_contract_bytes_max)


def _require_size(content: bytes, bytes_max: int) -> None:
    if len(content) > bytes_max:
        raise ConfigError(f"it has {len(content)} bytes, over {bytes_max}")
