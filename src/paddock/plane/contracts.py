"""The files of a plane that hold prompt contracts: which they are, and their digests."""

from pathlib import Path

from paddock import limits
from paddock.storage.atomic import host_errors, read_file
from paddock.values.calls import Json
from paddock.values.digests import digest_of


def contract_names(directory: Path) -> list[str]:
    """The names of a directory's contracts, sorted; none where there is no directory.

    Raises: ConfigError, HostError: it cannot be listed.
    """
    with host_errors("listing", directory):
        try:
            names = sorted(file.name for file in directory.iterdir())
        except FileNotFoundError:
            return []
    return [name for name in names if is_contract(name)]


def contract_digests(directory: Path, root: Path) -> dict[str, Json]:
    """The digests of a directory's contracts by their names below `root`, which holds it.

    Raises: ConfigError: one is no file, or too large.
    """
    return {
        file.relative_to(root).as_posix(): _digest(file)
        for file in (directory / name for name in contract_names(directory))
    }


def is_contract(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.startswith("PRC-") and file.endswith(".json")


def _digest(file: Path) -> str:
    content = read_file(file, limits.prompt_contract_bytes_max)
    return digest_of(content or b"")
