"""What is not refused of an archive, and should be known to whoever installs it."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from paddock.agent.contracts import parse_contract_file
from paddock.assembly.project import Project
from paddock.errors import ConfigError
from paddock.packages.archive import Archive
from paddock.packages.installed import FRAMEWORKS, SPECS, read_installed, read_registries
from paddock.plane.admin import is_contract
from paddock.text.show import quote

_CONTRACTS: Final = "HO1/contracts"


def archive_notes(project: Project, archive: Archive) -> tuple[str, ...]:
    """What a gate, or the next `run`, would meet once it is installed. Raises: HostError."""
    return (*_registry_notes(project, archive), *_contract_notes(archive))


def _registry_notes(project: Project, archive: Archive) -> Iterator[str]:
    manifest, registries = archive.manifest, read_registries(project.layout)
    old = read_installed(project.layout).packages.get(manifest.package_id)
    for kind, folder, name, known in (
        ("spec", SPECS, manifest.spec_id, registries.specs),
        ("framework", FRAMEWORKS, manifest.framework_id, registries.frameworks),
    ):
        row = f"{folder}/{name}.json"
        goes = old is not None and row in old.manifest.by_path
        if row not in manifest.by_path and (goes or name not in known):
            yield f"its {kind} {quote(name)} is in no registry: G1 fails until a package brings it"


def _contract_notes(archive: Archive) -> Iterator[str]:
    for packed in archive.files:
        file = PurePath(packed.path)
        if str(file.parent) != _CONTRACTS or not is_contract(packed.path):
            continue
        try:
            parse_contract_file(packed.content, file)
        except ConfigError as error:
            yield (
                f"the prompt contract {packed.path} does not load, and no session opens with it:"
                f" {error.message}"
            )
