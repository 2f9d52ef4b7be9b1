"""What is not refused of an archive, and should be known to whoever installs it."""

from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from paddock.agent.contract_files import parse_contract_file
from paddock.assembly.project import Project
from paddock.errors import ConfigError
from paddock.packages.archive import Archive
from paddock.packages.installed import SPECS, read_installed, read_registries
from paddock.plane.contracts import is_contract
from paddock.text.show import quote

_CONTRACTS: Final = "HO1/contracts"


def archive_notes(project: Project, archive: Archive) -> tuple[str, ...]:
    """What a gate, or the next `run`, would meet once it is installed. Raises: HostError."""
    return (*_spec_notes(project, archive), *_contract_notes(archive))


def _spec_notes(project: Project, archive: Archive) -> Iterator[str]:
    manifest = archive.manifest
    row = f"{SPECS}/{manifest.spec_id}.json"
    if row in manifest.by_path:
        return
    old = read_installed(project.layout).packages.get(manifest.package_id)
    goes = old is not None and row in old.manifest.by_path
    if goes or manifest.spec_id not in read_registries(project.layout).specs:
        spec = quote(manifest.spec_id)
        yield f"its spec {spec} is in no registry: G1 fails until a package brings it"


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
