"""Read `HOT/config/admin_config.json`, the admin agent's configuration, strictly.

The schema in `HOT/schemas/` is generated from `AdminTable` and accepts the same files, except that
it cannot refuse a duplicate key or a pattern that can match nothing. The caller that knows the
registered tools checks the names in `tools`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

from msgspec import UNSET, Meta, UnsetType, field
from msgspec.structs import asdict, replace

from paddock import limits
from paddock.plane.environment import ToolProfile
from paddock.plane.json_files import JsonFile, names_in, parse_file, write_object
from paddock.plane.layout import PlaneLayout
from paddock.storage.atomic import read_file, require_private
from paddock.text.json import Strict, Way
from paddock.values.calls import Json
from paddock.values.decisions import Permissions
from paddock.values.entries import digest_of
from paddock.values.models import BudgetMode

ModelApi = Literal["responses", "chat"]
StageLedger = Literal["governance", "ho2m", "ho1m"]
Tier = Literal["HOT", "HO2", "HO1", "hot", "ho2", "ho1"]

ID_CHARS_MAX: Final = 64
NAME_CHARS_MAX: Final = 200

DEFAULT_PERMISSIONS: Final = Permissions(forbidden=("HOT/kernel/*", "HOT/scripts/*"))
DEFAULT_SYSTEM_PROMPT: Final = (
    "You are the admin agent of a Paddock control plane. You inspect its ledgers, files, "
    "packages and gates with your tools, and answer from what they return. Say so when a tool "
    "refuses, and do not guess what you have not inspected."
)


_Id = Annotated[str, Meta(min_length=1, max_length=ID_CHARS_MAX)]
_Count = Annotated[int, Meta(ge=1, le=limits.json_integer_max)]
_Patterns = Annotated[tuple[str, ...], Meta(extra_json_schema={"uniqueItems": True})]


class TierStage(Strict, frozen=True, tag_field="type", tag="tier"):
    """The tier's name."""


class LedgerStage(Strict, frozen=True, tag_field="type", tag="ledger"):
    ledger: Annotated[StageLedger, Meta(description="Which ledger.")] = "governance"
    event_type: Annotated[_Id, Meta(description="Only entries of this type; absent: any type.")] = (
        ""
    )
    max_entries: Annotated[
        int,
        Meta(ge=1, le=limits.attention_entries_max, description="How many of the newest entries."),
    ] = 10


Stage = TierStage | LedgerStage


class Attention(Strict, frozen=True):
    """The context that the supervisor adds to a turn, and its token budget."""

    template_id: Annotated[_Id, Meta(description="The template that formats it.")] = "ATT-ADMIN-001"
    stages: tuple[Stage, ...] = (TierStage(), LedgerStage("ho2m", "TURN_RECORDED", 5))
    token_budget: Annotated[_Count, Meta(description="Tokens of all stages together.")] = 4_000
    fallback: Annotated[
        Literal["skip", "fail"],
        Meta(description="If a stage fails: skip it, or fail the turn."),
    ] = "skip"


class BudgetTable(Strict, frozen=True):
    """Tokens of a session, a turn and a work order; each draws on the one before."""

    session_tokens: _Count = 1_000_000
    turn_tokens: _Count = 200_000
    order_tokens: _Count = 100_000
    mode: Annotated[BudgetMode, Meta(description="What happens when one is used up.")] = (
        BudgetMode.ENFORCE
    )


class ModelChoice(Strict, frozen=True):
    """The model that answers. The gateway checks that the provider exists."""

    provider: Annotated[_Id, Meta(description="builtin, anthropic, openai, or your own.")] = (
        "builtin"
    )
    name: Annotated[str, Meta(min_length=1, max_length=NAME_CHARS_MAX)] | None = None
    # ECMA 262 and Python read this expression alike; `$` they do not.
    base_url: Annotated[str, Meta(pattern=r"^https?://(?=[\s\S])(?![\s\S]*[^!-~])")] | None = None
    api: ModelApi | None = None


class DeclaredTool(Strict, frozen=True):
    """An entry of `tools`: one core tool, exactly as it is registered under that name."""

    tool_id: _Id
    description: str
    parameters: dict[str, Json]
    handler: str = ""


class PackageTool(Strict, frozen=True):
    """An entry of `package_tools`: a tool that an installed package brings."""

    tool_id: Annotated[_Id, Meta(description="The tool's name, also its file's name.")]
    package_id: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=limits.package_id_chars_max,
            description="The package that contains it.",
        ),
    ]


class AdminTable(Strict, frozen=True):
    """The admin agent of a bare plane. An absent field has its default."""

    agent_id: Annotated[_Id, Meta(description="The agent's name in records.")] = "admin"
    agent_class: Annotated[_Id, Meta(description="What kind of agent it is.")] = "ADMIN"
    framework_id: Annotated[_Id, Meta(description="The framework that governs it.")] = "FMWK-000"
    tier: Annotated[Tier, Meta(description="The tier that it belongs to.")] = "HOT"
    tool_profile: Annotated[
        ToolProfile,
        Meta(description="Half of the dual gate; development tools need the environment's too."),
    ] = "production"
    system_prompt: Annotated[str, Meta(description="The model's system prompt.")] = (
        DEFAULT_SYSTEM_PROMPT
    )
    attention: Attention = field(default_factory=Attention)
    tools: Annotated[
        tuple[DeclaredTool, ...] | UnsetType,
        Meta(description="Core tools offered to the model; absent: all registered ones."),
    ] = UNSET
    package_tools: Annotated[
        tuple[PackageTool, ...],
        Meta(description="Tools of packages: code that runs in Paddock's own process."),
    ] = ()
    classify: Annotated[
        bool, Meta(description="Whether a message is classified before it is answered.")
    ] = True
    budget: BudgetTable = field(default_factory=BudgetTable)
    model: ModelChoice = field(default_factory=ModelChoice)
    permissions: Permissions = DEFAULT_PERMISSIONS


class AdminConfig(AdminTable, frozen=True, kw_only=True):
    file: Path
    digest: str
    text: bytes = b""

    def place(self, way: Way) -> str:
        return JsonFile(str(self.file), {}, self.text).place(way)

    def tightened(self) -> "AdminConfig":
        """Return the part that counts on a plane that was never accepted: only what narrows.

        Threat: an unpacked archive contains a plane whose profile waits for the operator's
        variable, whose prompt speaks for an attacker, or whose `base_url` collects the API key.
        """
        forbidden = dict.fromkeys((*DEFAULT_PERMISSIONS.forbidden, *self.permissions.forbidden))
        return AdminConfig(
            file=self.file,
            digest=self.digest,
            # Kept to be shown: the gate opens only for an accepted plane.
            tool_profile=self.tool_profile,
            tools=self.tools,
            permissions=replace(self.permissions, forbidden=tuple(forbidden)),
            text=self.text,
        )


def read_admin_config(layout: PlaneLayout) -> AdminConfig:
    """Read the configuration of the bare plane. Raises: ConfigError.

    Threat: who can replace `HOT/config`, or write into it, speaks for the operator; so with keys,
    approvals, prompt contracts, ledgers and agents. So each of the plane's own directories must
    be a real directory that others cannot write.
    """
    for directory in (layout.root, *layout.own_directories()):
        require_private(directory)
    file = layout.admin_config
    content = read_file(file, limits.admin_config_bytes_max)
    return parse_admin_config(b"" if content is None else content, file)


def parse_admin_config(content: bytes, file: Path) -> AdminConfig:
    given = parse_file(content, str(file))
    table = given.with_whole_numbers().convert(AdminTable)
    permissions = table.permissions
    given.require_once_each("permissions", permissions)
    if "forbidden" not in cast("Mapping[str, Json]", given.members.get("permissions", {})):
        permissions = replace(permissions, forbidden=DEFAULT_PERMISSIONS.forbidden)
    fields: dict[str, Any] = asdict(replace(table, permissions=permissions))
    return AdminConfig(
        **fields,
        file=file,
        digest=digest_of(content),
        text=content,
    )


def admin_config_schema() -> dict[str, Json]:
    from msgspec import json  # noqa: PLC0415 - a new plane alone needs it

    made = json.decode(json.encode(json.schema(AdminTable)))  # defaults are our own values
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **made}


def admin_config_schema_bytes() -> bytes:
    return write_object(admin_config_schema())


def contract_names(directory: Path) -> list[str]:
    return [name for name in names_in(directory) if is_contract(name)]


def contract_digests(directory: Path, root: Path) -> dict[str, Json]:
    return {
        file.relative_to(root).as_posix(): digest_of(
            read_file(file, limits.prompt_contract_bytes_max) or b""
        )
        for file in (directory / name for name in contract_names(directory))
    }


def is_contract(name: str) -> bool:
    file = name.rpartition("/")[2]
    return file.startswith("PRC-") and file.endswith(".json")
