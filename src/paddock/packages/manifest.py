"""The manifest: what a package is and what it brings, read strictly, with one identity.

The identity of a package is the SHA-256 of its manifest in canonical form: compact JSON in
UTF-8 with sorted keys, sorted assets and dependencies, and one LF. `pack` writes it so, and
so it stands in the plane: `sha256sum manifest.json` prints the identity. How somebody laid
out the text that it was read from does not count.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.packages.names import (
    find_collision,
    is_digest,
    is_package_id,
    path_problem,
    shown_collision,
)
from paddock.packages.versions import Version, parse_version
from paddock.plane.strict_json import Fields, parse_object
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.digests import digest_of

SCHEMA_VERSION: Final = 1
CONFIG: Final = "config"
"""The classification of what operators edit: owned by path, not by hash."""
PLANE_IDS: Final = ("hot", "ho2", "ho1")
LAYER_MAX: Final = 99

_KEYS: Final = frozenset(
    {
        "package_id",
        "version",
        "schema_version",
        "title",
        "description",
        "spec_id",
        "framework_id",
        "plane_id",
        "layer",
        "dependencies",
        "assets",
        "acceptance",
    }
)
_ASSET_KEYS: Final = frozenset({"path", "sha256", "classification"})
_ACCEPTANCE_KEYS: Final = frozenset({"command", "timeout_s"})
_REFERENCE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
_CLASSIFICATION: Final = re.compile(r"[a-z][a-z0-9_-]{0,31}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of a package. `path` is relative to the plane."""

    path: str
    sha256: str
    classification: str

    @property
    def is_config(self) -> bool:
        """Whether it is owned by path: operators edit it."""
        return self.classification == CONFIG


@dataclass(frozen=True, slots=True)
class Acceptance:
    """A line for the sandboxed shell in the plane's root, which has to exit with 0."""

    command: str
    timeout_s: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a package declares. Assets are sorted by path, dependencies by name."""

    package_id: str
    version: Version
    title: str
    description: str
    spec_id: str
    framework_id: str
    plane_id: str
    layer: int
    dependencies: tuple[str, ...]
    assets: tuple[Asset, ...]
    acceptance: tuple[Acceptance, ...] = ()
    canonical: bytes = field(init=False, repr=False, compare=False)
    """The bytes that stand in an archive and in the plane."""
    digest: str = field(init=False, repr=False, compare=False)
    """The identity: `sha256:` and the digest of the canonical form."""
    by_path: Mapping[str, Asset] = field(init=False, repr=False, compare=False)
    """Its assets by their paths."""

    def __post_init__(self) -> None:
        text = json.dumps(self.as_json(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        canonical = text.encode("utf-8") + b"\n"
        digest = digest_of(canonical)
        by_path = MappingProxyType({asset.path: asset for asset in self.assets})
        # Worked out once; a frozen value takes its own fields only so.
        object.__setattr__(self, "canonical", canonical)
        object.__setattr__(self, "digest", digest)
        object.__setattr__(self, "by_path", by_path)

    def as_json(self) -> dict[str, Json]:
        """All that counts."""
        return {
            "package_id": self.package_id,
            "version": self.version.text,
            "schema_version": SCHEMA_VERSION,
            "title": self.title,
            "description": self.description,
            "spec_id": self.spec_id,
            "framework_id": self.framework_id,
            "plane_id": self.plane_id,
            "layer": self.layer,
            "dependencies": list(self.dependencies),
            "assets": [
                {
                    "path": asset.path,
                    "sha256": asset.sha256,
                    "classification": asset.classification,
                }
                for asset in self.assets
            ],
            "acceptance": [
                {"command": each.command, "timeout_s": each.timeout_s} for each in self.acceptance
            ],
        }


def parse_manifest(content: bytes, file: str) -> Manifest:
    """The manifest that `content` is; `file` is its name for messages.

    Raises:
        ConfigError: not strict JSON, a key that is missing or unknown, a value of
            another type or out of range, a name that no file of a package can have,
            two assets that are one file on some file system. `where` says the line.
    """
    if len(content) > limits.manifest_bytes_max:
        raise ConfigError(
            f"the manifest has {len(content)} bytes, over {limits.manifest_bytes_max}", where=file
        )
    fields = parse_object(content, file)
    fields.require_only(_KEYS)
    if fields.number("schema_version") != SCHEMA_VERSION:
        raise fields.error(
            "schema_version",
            f"schema_version {quote(fields.members['schema_version'])} is not known",
            f"this version of Paddock reads {SCHEMA_VERSION}",
        )
    package_id = _package_id(fields)
    return Manifest(
        package_id=package_id,
        version=_version(fields),
        title=_text(fields, "title", limits.package_title_chars_max),
        description=_text(fields, "description", limits.package_description_chars_max),
        spec_id=_reference(fields, "spec_id"),
        framework_id=_reference(fields, "framework_id"),
        plane_id=_plane_id(fields),
        layer=_layer(fields),
        dependencies=_dependencies(fields, package_id),
        assets=_assets(fields),
        acceptance=_acceptances(fields),
    )


def _package_id(fields: Fields) -> str:
    text = fields.text("package_id")
    if not is_package_id(text):
        raise fields.error(
            "package_id", f"{quote(text)} is no package id", "PKG- and A-Z, 0-9, hyphens"
        )
    return text


def _version(fields: Fields) -> Version:
    text = fields.text("version")
    version = parse_version(text)
    if version is None:
        raise fields.error(
            "version", f"{quote(text)} is no semantic version", "such as 1.4.0 (semver.org)"
        )
    return version


def _text(fields: Fields, name: str, chars_max: int) -> str:
    fields.text(name)
    return fields.short_text(name, "", chars_max)


def _reference(fields: Fields, name: str) -> str:
    text = fields.text(name)
    if _REFERENCE.fullmatch(text) is None:
        raise fields.error(
            name, f"{name} is {quote(text)}", "1 to 64 letters, digits, dots, hyphens, underscores"
        )
    return text


def _plane_id(fields: Fields) -> str:
    fields.text("plane_id")
    return fields.choice("plane_id", PLANE_IDS, PLANE_IDS[0])


def _layer(fields: Fields) -> int:
    layer = fields.number("layer")
    if not 0 <= layer <= LAYER_MAX:
        raise fields.error("layer", f"layer is {layer}", f"a whole number from 0 to {LAYER_MAX}")
    return layer


def _dependencies(fields: Fields, package_id: str) -> tuple[str, ...]:
    _require(fields, "dependencies")
    found = fields.texts("dependencies", ())
    for name in found:
        if not is_package_id(name):
            raise fields.error(
                "dependencies", f"{quote(name)} is no package id", "PKG- and A-Z, 0-9, hyphens"
            )
        if name == package_id:
            raise fields.error("dependencies", "the package depends on itself", "take it out")
    return tuple(sorted(found))


def _assets(fields: Fields) -> tuple[Asset, ...]:
    _require(fields, "assets")
    tables = fields.tables("assets")
    if not 0 < len(tables) <= limits.package_files_max:
        raise fields.error(
            "assets",
            f"the package declares {len(tables)} files",
            f"1 to {limits.package_files_max} can be",
        )
    found = tuple(map(_asset, tables))
    collision = find_collision(asset.path for asset in found)
    if collision is not None:
        raise fields.error("assets", shown_collision(collision), "name each file once")
    return tuple(sorted(found, key=_by_path))


def _by_path(asset: Asset) -> bytes:
    return asset.path.encode()


def _asset(fields: Fields) -> Asset:
    fields.require_only(_ASSET_KEYS)
    path, sha256 = fields.text("path"), fields.text("sha256")
    problem = path_problem(path)
    if problem:
        raise fields.error("path", f"{quote(path)}: {problem}", "name it relative to the plane")
    if not is_digest(sha256):
        raise fields.error(
            "sha256",
            f"{quote(sha256)} is no digest",
            "`sha256:` and 64 lower-case hexadecimal digits: paddock package hash",
        )
    classification = fields.text("classification")
    if _CLASSIFICATION.fullmatch(classification) is None:
        raise fields.error(
            "classification", f"classification is {quote(classification)}", "one lower-case word"
        )
    return Asset(path, sha256, classification)


def _acceptances(fields: Fields) -> tuple[Acceptance, ...]:
    tables = fields.tables("acceptance")
    if len(tables) > limits.acceptance_commands_max:
        raise fields.error(
            "acceptance",
            f"the package declares {len(tables)} acceptance commands",
            f"{limits.acceptance_commands_max} at most: let one run the others",
        )
    return tuple(map(_acceptance, tables))


def _acceptance(fields: Fields) -> Acceptance:
    fields.require_only(_ACCEPTANCE_KEYS)
    command = fields.text("command")
    if not command.strip() or len(command) > limits.acceptance_command_chars_max:
        raise fields.error(
            "command",
            f"the command is {quote(command)}",
            f"a line of 1 to {limits.acceptance_command_chars_max} characters",
        )
    timeout_s = fields.number("timeout_s")
    if not 1 <= timeout_s <= limits.acceptance_timeout_s_max:
        raise fields.error(
            "timeout_s",
            f"timeout_s is {timeout_s}",
            f"a whole number from 1 to {limits.acceptance_timeout_s_max}",
        )
    return Acceptance(command, timeout_s)


def _require(fields: Fields, name: str) -> None:
    if name not in fields.members:
        raise fields.error(name, f"{quote(name)} is missing", f"add {quote(name)}: a list")
