"""The manifest: a package's identity and files, read strictly.

The identity of a package is the SHA-256 of its manifest in canonical form: compact JSON in UTF-8
with sorted keys, sorted assets and dependencies, and one LF. `pack` writes this form, and the
plane stores it: `sha256sum manifest.json` prints the identity. The layout of the source does not
count.
"""

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from types import MappingProxyType
from typing import Annotated, Final, Literal, cast

from msgspec import Meta, to_builtins
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ConfigError
from paddock.packages.rows import Failure, GateRefusedError
from paddock.pattern import lazy_pattern
from paddock.plane.json_files import JsonFile, parse_file
from paddock.policy.compiled import fold
from paddock.text.json import Strict, Way, canonical_json
from paddock.text.show import quote, show_name
from paddock.values.entries import digest_of
from paddock.workspace.paths import is_temporary_name

# One file has one name: a path that another file system or program could read differently, and two
# paths that it could read as the same, are refused before any comparison.

FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
"""The only modes of a package's files."""
MANIFEST: Final = "manifest.json"
RECEIPT: Final = "receipt.json"
INSTALLED: Final = "HOT/installed"
APPROVALS: Final = "HOT/registries/approvals"
KEYS: Final = "HOT/registries/keys"

PLANE_MARKER: Final = "HOT/config/admin_config.json"

TIERS_OF: Final = {
    "hot": ("HOT", "HO2", "HO1"),
    "ho2": ("HO2", "HO1"),
    "ho1": ("HO1",),
}
"""Where a package of this tier may have files: in that tier and in the lower ones."""

OWN_PLACES: Final = (
    INSTALLED,
    "HOT/ledger",
    APPROVALS,
    KEYS,
    "HO2/ledger",
    "HO2/scratch",
    "HO1/ledger",
)
"""The plane's own paths, where no package may have a file."""

_PACKAGE_ID: Final = lazy_pattern(r"PKG-[A-Z0-9-]+", re.ASCII)
_DIGEST: Final = lazy_pattern(r"sha256:[0-9a-f]{64}", re.ASCII)


def is_package_id(text: str) -> bool:
    return len(text) <= limits.package_id_chars_max and _PACKAGE_ID.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    return _DIGEST.fullmatch(text) is not None


def manifest_path(package_id: str) -> str:
    return f"{INSTALLED}/{package_id}/{MANIFEST}"


def receipt_path(package_id: str) -> str:
    return f"{INSTALLED}/{package_id}/{RECEIPT}"


def approval_file(wo_id: str) -> str:
    return f"{APPROVALS}/{wo_id}.json"


def key_file(key_id: str) -> str:
    return f"{KEYS}/{key_id}.json"


def path_problem(path: str) -> str:
    """Return why this name is invalid for a package's file; empty if it is valid.

    Threat: a name that leads out (`..`, `/etc/x`), that hides what it is (control, direction and
    zero-width characters), or that another system reads differently (a backslash, an `é` of two
    characters).
    """
    if not path:
        return "the name is empty"
    if show_name(path) != path:
        return "the name contains control, direction or zero-width characters"
    # Threat: a very long name compresses to nothing, and each of its directories costs a check.
    if not _fits(path.encode()):
        return "the name is too long for an archive: at most 100 bytes, or 155, a slash and 100"
    if path.startswith("/"):
        return "the name is absolute"
    if "\\" in path:
        return "the name contains a backslash"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "the name has a component that is empty, `.` or `..`"
    if fold_unicode(path) != path:
        return "the name is not in Unicode's composed form (NFC)"
    if any(is_temporary_name(part) for part in parts):
        return "the name is reserved for Paddock's temporary files"
    if fold(path) == MANIFEST:
        return "the name is the manifest's own"
    return ""


def _fits(name: bytes) -> bool:
    cut = name.find(b"/", max(len(name) - 101, 0))
    return len(name) <= 100 or (0 < cut <= 155 and cut + 1 < len(name))


def fold_unicode(text: str) -> str:
    import unicodedata  # noqa: PLC0415 - names are nearly always ASCII

    return text if text.isascii() else unicodedata.normalize("NFC", text)


def place_problem(path: str, plane_id: str) -> str:
    """Return why a package of this tier may not have a file there; empty if it may.

    Threat: a package with a key or an approval would vouch for itself, one with a receipt would
    count as installed without any check, and one of a lower tier would govern the tier above.
    """
    folded = fold(path)
    for place in OWN_PLACES:
        if f"{folded}/".startswith(f"{fold(place)}/"):
            return f"{place} belongs to the plane itself"
    tiers = TIERS_OF[plane_id]
    if not any(path.startswith(f"{tier}/") for tier in tiers):
        return f"a package of {plane_id} may have files only in {', '.join(tiers)}"
    return ""


def find_collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Find two names that are the same on some file system, or one inside the other.

    Compare without letter case and Unicode form, including every parent directory: `Kernel/a` and
    `kernel/b` would be in one directory or in two.
    """
    # Sorted by components, a file comes right before the paths inside it, and paths of one
    # directory are adjacent: comparing neighbours is enough.
    rows = sorted((fold(path).replace("/", "\0"), at, path) for at, path in enumerate(paths))
    for one, two in pairwise(rows):
        (_, known), (_, path) = sorted((one[1:], two[1:]))
        found = _collision_of(known, path)
        if found is not None:
            return found
    return None


def _collision_of(known: str, path: str) -> tuple[str, str] | None:
    one, two = known.split("/"), path.split("/")
    depth = 0
    for mine, other in zip(one, two, strict=False):
        if mine != other and fold(mine) != fold(other):
            return None
        depth += 1
        if depth < min(len(one), len(two)) and mine != other:
            return "/".join(one[:depth]), path
    if len(one) == len(two):
        return known, path
    shorter, longer = sorted((one, two), key=len)
    return "/".join(shorter), "/".join(longer[:depth]) + "/"


def shown_collision(found: tuple[str, str]) -> str:
    return f"{quote(found[0])} and {quote(found[1])} are the same name on some file systems"


# The grammar of semver.org, section "Is there a suggested regular expression".
_NUMBER: Final = r"(0|[1-9]\d*)"
_IDENTIFIER: Final = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = lazy_pattern(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_VERSION_CHARS_MAX: Final = 128

VersionKey = tuple[int, int, int, bool, tuple[tuple[int, int, str], ...]]


def version_key(text: str) -> VersionKey | None:
    """Return a sort key by precedence (semver.org, point 11); None: not a version.

    Build metadata does not count. A release sorts after its pre-releases, whose identifiers are
    (0, number, "") or (1, 0, text).
    """
    found = _SEMVER.fullmatch(text) if len(text) <= _VERSION_CHARS_MAX else None
    if found is None:
        return None
    major, minor, patch, before = found.groups()
    identifiers = tuple(
        (0, int(each), "") if each.isdigit() else (1, 0, each)
        for each in (before.split(".") if before else ())
    )
    return int(major), int(minor), int(patch), before is None, identifiers


SCHEMA_VERSION: Final = 1
Digest = Annotated[str, Meta(pattern=r"^sha256:[0-9a-f]{64}\Z")]
CONFIG: Final = "config"
"""The classification of a file that operators edit: its path is owned, its content is not."""
LAYER_MAX: Final = 99

_Reference = Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")]
_Word = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]{0,31}\Z")]


class Asset(Strict, frozen=True):
    path: str
    sha256: str
    classification: _Word

    @property
    def is_config(self) -> bool:
        return self.classification == CONFIG


class Acceptance(Strict, frozen=True):
    """A command line for the sandboxed shell, run in the plane's root; it must exit with 0."""

    command: Annotated[str, Meta(max_length=limits.acceptance_command_chars_max)]
    timeout_s: Annotated[int, Meta(ge=1, le=limits.acceptance_timeout_s_max)]


class Manifest(Strict, frozen=True, kw_only=True, dict=True):
    """A package's declaration; assets sorted by path, dependencies by name."""

    package_id: str
    version: str
    schema_version: int
    title: Annotated[str, Meta(min_length=1, max_length=limits.package_title_chars_max)]
    description: Annotated[str, Meta(min_length=1, max_length=limits.package_description_chars_max)]
    spec_id: _Reference
    framework_id: _Reference
    plane_id: Literal["hot", "ho2", "ho1"]
    layer: Annotated[int, Meta(ge=0, le=LAYER_MAX)]
    dependencies: tuple[str, ...]
    assets: Annotated[tuple[Asset, ...], Meta(min_length=1, max_length=limits.package_files_max)]
    acceptance: tuple[Acceptance, ...] = ()

    @cached_property
    def canonical(self) -> bytes:
        return f"{canonical_json(to_builtins(self))}\n".encode()

    @cached_property
    def digest(self) -> str:
        return digest_of(self.canonical)

    @cached_property
    def by_path(self) -> Mapping[str, Asset]:
        return MappingProxyType({asset.path: asset for asset in self.assets})


def parse_manifest(content: bytes, file: str) -> Manifest:
    if len(content) > limits.manifest_bytes_max:
        raise ConfigError(
            f"the manifest has {len(content)} bytes, more than {limits.manifest_bytes_max}",
            where=file,
        )
    given = parse_file(content, file)
    if given.members.get("schema_version", SCHEMA_VERSION) != SCHEMA_VERSION:
        raise given.error(
            "schema_version",
            f"unknown schema_version {quote(given.members['schema_version'])}",
            f"this version of Paddock reads {SCHEMA_VERSION}",
        )
    read = given.convert(Manifest)
    if version_key(read.version) is None:
        said = f"invalid semantic version {quote(read.version)}"
        raise given.error("version", said, "such as 1.4.0 (semver.org)")
    _require_packages(given, read)
    for position, asset in enumerate(read.assets):
        _require_asset(given, ("assets", position), asset)
    collision = find_collision(asset.path for asset in read.assets)
    if collision is not None:
        raise given.error("assets", shown_collision(collision), "name each file once")
    if len(read.acceptance) > limits.acceptance_commands_max:
        raise given.error(
            "acceptance",
            f"the package declares {len(read.acceptance)} acceptance commands",
            f"at most {limits.acceptance_commands_max}: let one run the others",
        )
    for position, each in enumerate(read.acceptance):
        if not each.command.strip():
            said = f"the command is {quote(each.command)}"
            raise given.error(("acceptance", position, "command"), said, "a line for a shell")
    return replace(
        read,
        dependencies=tuple(sorted(read.dependencies)),
        assets=tuple(sorted(read.assets, key=lambda asset: asset.path.encode())),
    )


def _require_packages(given: JsonFile, read: Manifest) -> None:
    for way, name in (
        ("package_id", read.package_id),
        *(("dependencies", each) for each in read.dependencies),
    ):
        if not is_package_id(name):
            raise given.error(
                way, f"invalid package id {quote(name)}", "PKG- and A-Z, 0-9, hyphens"
            )
    given.require_once("dependencies", read.dependencies)
    if read.package_id in read.dependencies:
        raise given.error("dependencies", "the package depends on itself", "remove it")


def _require_asset(given: JsonFile, way: Way, asset: Asset) -> None:
    problem = path_problem(asset.path)
    if problem:
        said = f"{quote(asset.path)}: {problem}"
        raise given.error((*way, "path"), said, "name it relative to the plane")
    if not is_digest(asset.sha256):
        raise given.error(
            (*way, "sha256"),
            f"invalid digest {quote(asset.sha256)}",
            "`sha256:` and 64 lower-case hexadecimal digits: paddock package hash",
        )


def find_place_problems(manifest: Manifest) -> list[Failure]:
    """G0B: find the files whose paths are invalid for a package of this tier."""
    problems = (
        (each.path, place_problem(each.path, manifest.plane_id)) for each in manifest.assets
    )
    return [Failure(path, problem) for path, problem in problems if problem]


def install_order(manifests: Iterable[Manifest]) -> tuple[Manifest, ...]:
    """Sort packages after their dependencies, lowest layer first, then by name.

    Raises: GateRefusedError: G3: as `find_graph_problems`, or one id twice.
    """
    waiting: dict[str, Manifest] = {}
    for manifest in manifests:
        if manifest.package_id in waiting:
            raise GateRefusedError("G3", [Failure(manifest.package_id, "it occurs twice")])
        waiting[manifest.package_id] = manifest
    problems = find_graph_problems(waiting)
    if problems:
        raise GateRefusedError("G3", problems)
    done: dict[str, Manifest] = {}
    while waiting:
        # Never empty: the graph has no cycle.
        ready = [each for each in waiting.values() if done.keys() >= set(each.dependencies)]
        first = min(ready, key=lambda each: (each.layer, each.package_id))
        done[first.package_id] = waiting.pop(first.package_id)
    return tuple(done.values())


def find_graph_problems(packages: Mapping[str, Manifest]) -> tuple[Failure, ...]:
    """Find dependencies that are missing, on a higher layer, or in a cycle."""
    found: list[Failure] = []
    for name in sorted(packages):
        manifest = packages[name]
        for needed in manifest.dependencies:
            other = packages.get(needed)
            if other is None:
                found.append(Failure(name, f"it depends on {needed}, which is not installed"))
            elif other.layer > manifest.layer:
                found.append(
                    Failure(
                        name,
                        f"it is of layer {manifest.layer}, and depends on {needed} of layer"
                        f" {other.layer}",
                    )
                )
    cycle = _find_cycle(packages)
    if cycle:
        found.append(Failure(cycle[0], f"its dependencies form a cycle: {' → '.join(cycle)}"))
    return tuple(found)


def _find_cycle(packages: Mapping[str, Manifest]) -> tuple[str, ...]:
    graph = {name: packages[name].dependencies for name in sorted(packages)}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        *circle, _ = reversed(cast("list[str]", error.args[1]))
        start = circle.index(min(circle))
        return (*circle[start:], *circle[: start + 1])
    return ()
