"""Specs and frameworks: one file each, brought by packages like any other file.

    HOT/registries/specs/<spec_id>.json            {spec_id, framework_id, title}
    HOT/registries/frameworks/<framework_id>.json  {framework_id, title, specs[]}

There is no file that several packages would have to share: the registry of packages is
`HOT/installed`, and the others are directories. `specs` of a framework are those that it
expects. Whether all of it resolves is for the gates to say; here it is read.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from paddock import limits
from paddock.errors import ConfigError
from paddock.packages.refusals import Failure
from paddock.plane.files import host_errors, read_file
from paddock.plane.layout import PlaneLayout
from paddock.plane.strict_json import Fields, parse_object
from paddock.text.show import quote
from paddock.workspace.temporary import is_temporary_name

SPECS: Final = "HOT/registries/specs"
FRAMEWORKS: Final = "HOT/registries/frameworks"
_ENDING: Final = ".json"


@dataclass(frozen=True, slots=True)
class Spec:
    """What packages are made to, and the framework that it is part of."""

    spec_id: str
    framework_id: str
    title: str


@dataclass(frozen=True, slots=True)
class Framework:
    """A number of specs that belong together."""

    framework_id: str
    title: str
    specs: tuple[str, ...]
    """Those that it expects."""


@dataclass(frozen=True, slots=True)
class Registries:
    """All of them, by id, and the files that do not load."""

    specs: Mapping[str, Spec]
    frameworks: Mapping[str, Framework]
    problems: tuple[Failure, ...] = ()


def read_registries(layout: PlaneLayout) -> Registries:
    """Read both directories. Raises: HostError."""
    problems: list[Failure] = []
    specs = _read(layout, SPECS, parse_spec, problems)
    frameworks = _read(layout, FRAMEWORKS, parse_framework, problems)
    return Registries(specs, frameworks, tuple(problems))


def parse_spec(content: bytes, file: str) -> Spec:
    """The spec that `content` is. Raises: ConfigError."""
    fields = parse_object(content, file)
    fields.require_only(frozenset({"spec_id", "framework_id", "title"}))
    spec = Spec(fields.text("spec_id"), fields.text("framework_id"), fields.text("title"))
    _require_named_after(file, spec.spec_id, fields, "spec_id")
    return spec


def parse_framework(content: bytes, file: str) -> Framework:
    """The framework that `content` is. Raises: ConfigError."""
    fields = parse_object(content, file)
    fields.require_only(frozenset({"framework_id", "title", "specs"}))
    found = Framework(fields.text("framework_id"), fields.text("title"), fields.texts("specs", ()))
    _require_named_after(file, found.framework_id, fields, "framework_id")
    return found


_Found = TypeVar("_Found", Spec, Framework)


def _read(
    layout: PlaneLayout,
    place: str,
    parse: Callable[[bytes, str], _Found],
    problems: list[Failure],
) -> dict[str, _Found]:
    directory = layout.root / place
    if not directory.is_dir():
        return {}
    with host_errors("listing", directory):
        names = sorted(name for name in os.listdir(directory) if not is_temporary_name(name))
    found: dict[str, _Found] = {}
    for name in names:
        path = f"{place}/{name}"
        try:
            found[name.removesuffix(_ENDING)] = parse(_content(directory / name), path)
        except ConfigError as error:
            problems.append(Failure(path, error.message))
    return found


def _content(path: Path) -> bytes:
    content = read_file(path, limits.registry_file_bytes_max)
    if content is None or path.suffix != _ENDING:
        raise ConfigError(f"{quote(path.name)} is no file of a registry")
    return content


def _require_named_after(file: str, name: str, fields: Fields, key: str) -> None:
    if file.rpartition("/")[2] != f"{name}{_ENDING}":
        raise fields.error(key, f"{key} is {quote(name)}, and the file is not", "rename the file")
