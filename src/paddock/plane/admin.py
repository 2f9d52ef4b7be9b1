"""`HOT/config/admin_config.json`: the admin agent's configuration, read strictly.

What the file may hold is said a second time, for editors and other programs, by
the schema of `plane/admin_schema.py`; both give one verdict on every JSON value.
That `tools` equals what is registered is checked where tools are known.

A field that is absent has the default that stands here. What is not understood
does not load: an unknown key, a value of another type, a profile by another name.

Also here:

- The files of a plane that hold prompt contracts: which they are, and their digests.
"""

from pathlib import Path
from typing import Final, Literal

from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.plane.dual_gate import TOOL_PROFILES, ToolProfile
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.plane.strict_json import Fields, parse_object
from paddock.storage.atomic import host_errors, read_file, require_private
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import Permissions
from paddock.values.entries import digest_of
from paddock.values.models import BudgetMode

BUDGET_MODES: Final = tuple(BudgetMode)
ModelApi = Literal["responses", "chat"]
MODEL_APIS: Final[tuple[ModelApi, ...]] = ("responses", "chat")
Fallback = Literal["skip", "fail"]
FALLBACKS: Final[tuple[Fallback, ...]] = ("skip", "fail")
StageKind = Literal["tier", "ledger"]
STAGE_KINDS: Final[tuple[StageKind, ...]] = ("tier", "ledger")
STAGE_LEDGERS: Final = (LedgerName.GOVERNANCE, LedgerName.HO2M, LedgerName.HO1M)
Tier = Literal["HOT", "HO2", "HO1", "hot", "ho2", "ho1"]
TIERS: Final[tuple[Tier, ...]] = ("HOT", "HO2", "HO1", "hot", "ho2", "ho1")

ID_CHARS_MAX: Final = 64
NAME_CHARS_MAX: Final = 200
URL_PREFIXES: Final = ("http://", "https://")

DEFAULT_AGENT_ID: Final = "admin"
DEFAULT_AGENT_CLASS: Final = "ADMIN"
DEFAULT_FRAMEWORK_ID: Final = "FMWK-000"
DEFAULT_TIER: Final[Tier] = "HOT"
DEFAULT_PERMISSIONS: Final = Permissions(forbidden=("HOT/kernel/*", "HOT/scripts/*"))
DEFAULT_SYSTEM_PROMPT: Final = (
    "You are the admin agent of a Paddock control plane. You inspect its ledgers, files, "
    "packages and gates with your tools, and answer from what they return. Say so when a tool "
    "refuses, and do not guess what you have not looked at."
)


class Stage(Struct, frozen=True):
    """One piece of context that is added to a turn: the tier's name, or a ledger query."""

    kind: StageKind
    ledger: LedgerName = LedgerName.GOVERNANCE
    event_type: str | None = None
    max_entries: int = 10


class Attention(Struct, frozen=True):
    """What context the supervisor adds to a turn, and within which budget."""

    template_id: str = "ATT-ADMIN-001"
    stages: tuple[Stage, ...] = (
        Stage("tier"),
        Stage("ledger", LedgerName.HO2M, "TURN_RECORDED", 5),
    )
    token_budget: int = 4_000
    fallback: Fallback = "skip"
    """Where a stage cannot be made: leave it out, or fail the turn."""


class BudgetTable(Struct, frozen=True):
    """Tokens of a session, a turn and a work order; each draws on the one before."""

    session_tokens: int = 1_000_000
    turn_tokens: int = 200_000
    order_tokens: int = 100_000
    mode: BudgetMode = BudgetMode.ENFORCE


class ModelChoice(Struct, frozen=True):
    """Which model answers. Whether there is such a provider, the gateway says."""

    provider: str = "builtin"
    name: str | None = None
    base_url: str | None = None
    api: ModelApi | None = None


class DeclaredTool(Struct, frozen=True):
    """An entry of `tools`. It has to equal what is registered under that name."""

    tool_id: str
    description: str
    parameters: dict[str, Json]
    handler: str | None
    place: str
    """Where it stands, for a message."""


class PackageTool(Struct, frozen=True):
    """An entry of `package_tools`: a tool that an installed package brings."""

    tool_id: str
    package_id: str
    place: str
    """Where it stands, for a message."""


class AdminConfig(Struct, frozen=True):
    """The configuration as it was read once: what is decided is decided on this value."""

    file: Path
    digest: str
    """`sha256:` and the digest of the file's bytes."""
    agent_id: str = DEFAULT_AGENT_ID
    agent_class: str = DEFAULT_AGENT_CLASS
    framework_id: str = DEFAULT_FRAMEWORK_ID
    tier: Tier = DEFAULT_TIER
    tool_profile: ToolProfile = "production"
    system_prompt: str = DEFAULT_SYSTEM_PROMPT
    attention: Attention = field(default_factory=Attention)
    tools: tuple[DeclaredTool, ...] | None = None
    """None where the file has no such list: then every core tool is allowed."""
    package_tools: tuple[PackageTool, ...] = ()
    """Tools to be loaded from packages, where these are installed and unchanged."""
    classify: bool = True
    budget: BudgetTable = field(default_factory=BudgetTable)
    model: ModelChoice = field(default_factory=ModelChoice)
    permissions: Permissions = DEFAULT_PERMISSIONS
    text: bytes = b""
    """The file's bytes, in which a rule's line is looked up."""

    def tightened(self) -> "AdminConfig":
        """What holds of the file of a plane that nobody accepted: only what narrows.

        Threat: an unpacked archive brings a plane whose profile waits for the
        operator's variable, whose prompt speaks for somebody else, or whose
        `base_url` collects the API key.
        """
        forbidden = dict.fromkeys((*DEFAULT_PERMISSIONS.forbidden, *self.permissions.forbidden))
        return AdminConfig(
            self.file,
            self.digest,
            # Told as it stands there: the gate opens for an accepted plane alone.
            tool_profile=self.tool_profile,
            tools=self.tools,
            permissions=replace(self.permissions, forbidden=tuple(forbidden)),
            text=self.text,
        )


def read_admin_config(layout: PlaneLayout) -> AdminConfig:
    """The configuration of the bare plane of `layout`, read once.

    Threat: who can put another directory in the place of `HOT/config`, or write
    into it, answers for the operator, and so with keys, approvals, prompt contracts,
    ledgers and agents: directories must be real and private.

    Raises:
        ConfigError: it does not load, or stands where others can write.
    """
    for directory in (layout.root, *layout.own_directories()):
        require_private(directory)
    file = layout.admin_config
    content = read_file(file, limits.admin_config_bytes_max)
    return parse_admin_config(b"" if content is None else content, file)


def parse_admin_config(content: bytes, file: Path) -> AdminConfig:
    """The configuration that `content` is; `file` is for messages.

    Raises:
        ConfigError: with file, line and field: not strict JSON, an unknown key, a
            wrong type or value.
    """
    fields = parse_object(content, str(file))
    fields.require_only(frozenset(KEYS))
    absent = AdminConfig(file, "")
    return AdminConfig(
        file=file,
        digest=digest_of(content),
        agent_id=fields.short_text("agent_id", absent.agent_id, ID_CHARS_MAX),
        agent_class=fields.short_text("agent_class", absent.agent_class, ID_CHARS_MAX),
        framework_id=fields.short_text("framework_id", absent.framework_id, ID_CHARS_MAX),
        tier=fields.choice("tier", TIERS, absent.tier),
        tool_profile=fields.choice("tool_profile", TOOL_PROFILES, absent.tool_profile),
        system_prompt=_system_prompt(fields),
        attention=_attention(fields.table("attention")),
        tools=_tools(fields),
        package_tools=_package_tools(fields),
        classify=fields.flag("classify", default=absent.classify),
        budget=_budget(fields.table("budget")),
        model=_model(fields.table("model")),
        permissions=_permissions(fields.table("permissions")),
        text=content,
    )


KEYS: Final = (
    "agent_id",
    "agent_class",
    "framework_id",
    "tier",
    "tool_profile",
    "system_prompt",
    "attention",
    "tools",
    "package_tools",
    "classify",
    "budget",
    "model",
    "permissions",
)
ATTENTION_KEYS: Final = ("template_id", "stages", "token_budget", "fallback")
LEDGER_STAGE_KEYS: Final = ("type", "ledger", "event_type", "max_entries")
BUDGET_KEYS: Final = ("session_tokens", "turn_tokens", "order_tokens", "mode")
MODEL_KEYS: Final = ("provider", "name", "base_url", "api")
PERMISSION_KEYS: Final = ("read", "write", "forbidden")
PACKAGE_TOOL_KEYS: Final = ("tool_id", "package_id")
TOOL_KEYS: Final = ("tool_id", "description", "handler", "parameters")


def _system_prompt(fields: Fields) -> str:
    if "system_prompt" not in fields.members:
        return DEFAULT_SYSTEM_PROMPT
    return fields.text("system_prompt")


def _attention(fields: Fields) -> Attention:
    fields.require_only(frozenset(ATTENTION_KEYS))
    absent = Attention()
    stages = absent.stages
    if "stages" in fields.members:
        stages = tuple(_stage(stage) for stage in fields.tables("stages"))
    return Attention(
        template_id=fields.short_text("template_id", absent.template_id, ID_CHARS_MAX),
        stages=stages,
        token_budget=fields.count("token_budget", absent.token_budget, limits.json_integer_max),
        fallback=fields.choice("fallback", FALLBACKS, absent.fallback),
    )


def _stage(fields: Fields) -> Stage:
    fields.text("type")
    kind: StageKind = fields.choice("type", STAGE_KINDS, STAGE_KINDS[0])
    if kind == "tier":
        fields.require_only(frozenset({"type"}))
        return Stage(kind)
    fields.require_only(frozenset(LEDGER_STAGE_KEYS))
    event_type = None
    if "event_type" in fields.members:
        event_type = fields.short_text("event_type", "", ID_CHARS_MAX)
    return Stage(
        kind,
        fields.choice("ledger", STAGE_LEDGERS, LedgerName.GOVERNANCE),
        event_type,
        fields.count("max_entries", Stage(kind).max_entries, limits.attention_entries_max),
    )


def _tools(fields: Fields) -> tuple[DeclaredTool, ...] | None:
    if "tools" not in fields.members:
        return None
    return tuple(_tool(each) for each in fields.tables("tools"))


def _tool(fields: Fields) -> DeclaredTool:
    fields.require_only(frozenset(TOOL_KEYS))
    fields.text("tool_id")
    if "parameters" not in fields.members:
        raise fields.error("parameters", "'parameters' is missing", "write the tool's schema")
    return DeclaredTool(
        tool_id=fields.short_text("tool_id", "", ID_CHARS_MAX),
        description=fields.text("description"),
        parameters=dict(fields.table("parameters").members),
        handler=fields.text("handler") if "handler" in fields.members else None,
        place=fields.place("tool_id"),
    )


def _package_tools(fields: Fields) -> tuple[PackageTool, ...]:
    if "package_tools" not in fields.members:
        return ()
    return tuple(_package_tool(each) for each in fields.tables("package_tools"))


def _package_tool(fields: Fields) -> PackageTool:
    fields.require_only(frozenset(PACKAGE_TOOL_KEYS))
    fields.text("tool_id")
    fields.text("package_id")
    return PackageTool(
        fields.short_text("tool_id", "", ID_CHARS_MAX),
        fields.short_text("package_id", "", limits.package_id_chars_max),
        fields.place("tool_id"),
    )


def _budget(fields: Fields) -> BudgetTable:
    fields.require_only(frozenset(BUDGET_KEYS))
    absent, most = BudgetTable(), limits.json_integer_max
    return BudgetTable(
        session_tokens=fields.count("session_tokens", absent.session_tokens, most),
        turn_tokens=fields.count("turn_tokens", absent.turn_tokens, most),
        order_tokens=fields.count("order_tokens", absent.order_tokens, most),
        mode=fields.choice("mode", BUDGET_MODES, absent.mode),
    )


def _model(fields: Fields) -> ModelChoice:
    fields.require_only(frozenset(MODEL_KEYS))
    absent = ModelChoice()
    name = None
    if fields.members.get("name") is not None:
        name = fields.short_text("name", "", NAME_CHARS_MAX)
    return ModelChoice(
        provider=fields.short_text("provider", absent.provider, ID_CHARS_MAX),
        name=name,
        base_url=_base_url(fields),
        api=_api(fields),
    )


def _api(fields: Fields) -> ModelApi | None:
    if fields.members.get("api") is None:
        return None
    api: ModelApi = fields.choice("api", MODEL_APIS, MODEL_APIS[0])
    return api


def _base_url(fields: Fields) -> str | None:
    url = fields.text_or_null("base_url")
    if url is None:
        return None
    rest = next((url.removeprefix(each) for each in URL_PREFIXES if url.startswith(each)), "")
    if not rest or not all("!" <= character <= "~" for character in url):
        raise fields.error(
            "base_url", f"{quote(url)} is no http or https address", "for example https://host/v1"
        )
    return url


def _permissions(fields: Fields) -> Permissions:
    fields.require_only(frozenset(PERMISSION_KEYS))
    absent = DEFAULT_PERMISSIONS
    return Permissions(
        read=fields.texts("read", absent.read),
        write=fields.texts("write", absent.write),
        forbidden=fields.texts("forbidden", absent.forbidden),
    )


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
