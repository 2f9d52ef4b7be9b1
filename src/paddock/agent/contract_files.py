"""The prompt contracts of a plane: the files of `HO1/contracts`, read strictly."""

from pathlib import Path, PurePath

from paddock import limits
from paddock.agent.contract_defaults import default_contracts
from paddock.agent.contracts import Contracts, PromptContract, parse_contract
from paddock.errors import ConfigError
from paddock.plane.contracts import contract_names
from paddock.storage.atomic import read_file
from paddock.text.show import quote


def load_contracts(directory: Path | None) -> Contracts:
    """What Paddock brings, and in its place what `directory` holds as `PRC-….json`.

    Raises:
        ConfigError: a file does not load, or has another name than its contract's id.
    """
    own = () if directory is None else _read_all(directory)
    return Contracts((*default_contracts(), *own))


def _read_all(directory: Path) -> list[PromptContract]:
    files = contract_names(directory)
    if len(files) > limits.prompt_contracts_max:
        raise ConfigError(
            f"{len(files)} contracts, and {limits.prompt_contracts_max} are allowed",
            where=str(directory),
            hint="remove what nothing uses",
        )
    return [_read(directory / name) for name in files]


def _read(file: Path) -> PromptContract:
    return parse_contract_file(read_file(file, limits.prompt_contract_bytes_max) or b"", file)


def parse_contract_file(content: bytes, file: PurePath) -> PromptContract:
    """The contract that `file` holds. Raises: ConfigError, as `load_contracts`."""
    contract = parse_contract(content, str(file))
    if f"{contract.contract_id}.json" != file.name:
        raise ConfigError(
            f"the file holds the contract {quote(contract.contract_id)}",
            where=str(file),
            hint="a contract's file is called by its id",
        )
    return contract
