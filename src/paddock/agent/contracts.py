"""Parse prompt contracts: an order's input, its prompt, and the expected answer.

    {
      "contract_id": "PRC-SYNTHESIZE-001",
      "description": "…",
      "input_schema": {"type": "object", …},
      "output_schema": null,
      "template": "Answer this: {{user_message}}",
      "boundary": {"max_tokens": 8192, "temperature": null, "structured_output": false}
    }

`{{name}}` is replaced by a member of the input; any other use of two braces is an error, and so is
a name that is not in the input schema. Values are inserted once and unchanged: two braces in a
value are text. Pure, except `default_contracts` and `load_contracts`, which read files.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, TypeAlias

from msgspec import Meta, field
from msgspec.structs import asdict, replace

from paddock import limits
from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern
from paddock.plane.admin import contract_names
from paddock.plane.json_files import JsonFile, parse_file
from paddock.providers.structured import as_map, require_schema, schema_problem
from paddock.storage.atomic import read_file
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.values.models import OutputSchema

BUILT_IN: Final = "built-in"
_ID: Final = lazy_pattern(r"PRC-[A-Z0-9]+(?:-[A-Z0-9]+)*")
_VARIABLE: Final = lazy_pattern(r"\{\{([a-z][a-z0-9_]{0,63})\}\}")


class Boundary(Strict, frozen=True):
    """Limits and form of an answer. `temperature`: None lets the provider decide."""

    max_tokens: Annotated[int, Meta(ge=1, le=limits.json_integer_max)] = (
        limits.model_output_tokens_default
    )
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    structured_output: bool = False
    """True: the answer is an object of the output schema. False: it is text."""


class ContractFile(Strict, frozen=True):
    contract_id: str
    input_schema: dict[str, Any]
    template: str
    output_schema: dict[str, Any] | None = None
    boundary: Boundary = field(default_factory=Boundary)
    description: Any = None


class PromptContract(ContractFile, frozen=True):
    """The prompt of one kind of order. `digest` is its file's, or `built-in`."""

    digest: str = BUILT_IN

    @property
    def output(self) -> OutputSchema | None:
        if self.output_schema is None:
            return None
        return OutputSchema(self.contract_id.lower().replace("-", "_"), self.output_schema)

    @property
    def variables(self) -> list[str]:
        return _VARIABLE.findall(self.template)

    def input_problem(self, given: Mapping[str, Json]) -> str:
        wanted = OutputSchema(f"{self.contract_id} input", self.input_schema)
        return schema_problem(wanted, given).replace("the answer does", "the input does", 1)

    def output_problem(self, result: Mapping[str, Json]) -> str:
        return "" if self.output is None else schema_problem(self.output, result)

    def render(self, given: Mapping[str, Json]) -> str:
        # Threat: a value that contains {{name}} would insert another value if rendered again.
        return _VARIABLE.sub(lambda found: _text(given.get(found[1])), self.template)


def _text(value: Json) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Contracts: TypeAlias = Mapping[str, PromptContract]  # by their ids


def parse_contract(content: bytes, file: str) -> PromptContract:
    given = parse_file(content, file)
    read = given.with_whole_numbers().convert(ContractFile)
    if _ID.fullmatch(read.contract_id) is None:
        said = f"{quote(read.contract_id)} is not a contract id"
        raise given.error("contract_id", said, "such as PRC-CLASSIFY-001")
    _require_object_schema(given, "input_schema", read.input_schema)
    if read.output_schema is not None:
        _require_object_schema(given, "output_schema", read.output_schema)
    contract = PromptContract(**asdict(read), digest=digest_of(content))
    _require_usable_template(given, contract)
    if contract.boundary.structured_output is not (contract.output_schema is not None):
        raise given.error(
            "boundary",
            "structured_output and output_schema contradict each other",
            "give both, or neither: structured_output false and output_schema null",
        )
    return contract


def _require_object_schema(given: JsonFile, name: str, schema: Mapping[str, Json]) -> None:
    if schema.get("type") != "object":
        said = f"{quote(name)} is not an object schema"
        raise given.error(name, said, 'add "type": "object"')
    try:
        require_schema(OutputSchema(name, schema))
    except ConfigError as error:
        raise given.error(name, error.message, error.hint) from None


def _require_usable_template(given: JsonFile, contract: PromptContract) -> None:
    for literal in _VARIABLE.split(contract.template)[::2]:
        found = re.search(r"\{\{.{0,40}|.{0,40}\}\}", literal, re.DOTALL)
        if found is not None:
            raise given.error(
                "template",
                f"{quote(found[0])} is not a variable",
                "write {{name}}, lower case, with a name of the input",
            )
    known = set(as_map(contract.input_schema.get("properties")))
    for name in contract.variables:
        if name not in known:
            raise given.error(
                "template",
                f"the variable {quote(name)} is not a property of input_schema",
                f"known: {', '.join(sorted(known)) or 'none'}",
            )


CLASSIFY: Final = "PRC-CLASSIFY-001"
SYNTHESIZE: Final = "PRC-SYNTHESIZE-001"
EXECUTE: Final = "PRC-EXECUTE-001"

# Also a package of a new plane. In each the user's message comes last, in a tag: text before it
# cannot pass for the user's.
_SHIPPED: Final = Path(__file__).parents[1] / "bootstrap/packages/PKG-CONTRACTS-001/HO1/contracts"


def default_contracts() -> tuple[PromptContract, ...]:
    files = sorted(_SHIPPED.glob("PRC-*.json"))
    return tuple(
        replace(parse_contract_file(file.read_bytes(), file), digest=BUILT_IN) for file in files
    )


def load_contracts(directory: Path | None) -> Contracts:
    """Return the built-in contracts, and those of `directory`, which replace them by id."""
    own = () if directory is None else _read_all(directory)
    return {contract.contract_id: contract for contract in (*default_contracts(), *own)}


def _read_all(directory: Path) -> list[PromptContract]:
    files = contract_names(directory)
    if len(files) > limits.prompt_contracts_max:
        raise ConfigError(
            f"{len(files)} contracts, but only {limits.prompt_contracts_max} are allowed",
            where=str(directory),
            hint="remove unused ones",
        )
    paths = (directory / name for name in files)
    return [
        parse_contract_file(read_file(path, limits.prompt_contract_bytes_max) or b"", path)
        for path in paths
    ]


def parse_contract_file(content: bytes, file: PurePath) -> PromptContract:
    contract = parse_contract(content, str(file))
    if f"{contract.contract_id}.json" != file.name:
        raise ConfigError(
            f"the file has the contract {quote(contract.contract_id)}",
            where=str(file),
            hint="name the file by the contract's id",
        )
    return contract
