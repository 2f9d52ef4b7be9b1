"""The tables of a policy other than rules: typed, frozen, with their defaults.

Paths of `[shell]` and `[hook]` are paths of the host; they are parsed, never opened, here.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Annotated, Final, Literal, TypeVar, get_args

from msgspec import Meta, Struct, field
from msgspec.structs import fields, replace

from paddock import limits as hard
from paddock.pattern import lazy_pattern
from paddock.policy.compiled import matches_wild
from paddock.policy.positions import NonEmpty, PatternError, Table, Text, quote_toml
from paddock.text.json import Strict
from paddock.values.decisions import Permissions

Network = Literal["none", "loopback", "policy", "host"]
Git = Literal["safe", "read-only", "none"]
EnforcementMode = Literal["required", "best-effort"]
Approve = Literal["command", "diff"]
Commit = Literal["each", "all", "none"]
OnAllow = Literal["silent", "approve"]
HookWarnings = Literal["all", "once", "off"]
HookShell = Literal["confine", "read"]
McpFiles = Literal["none", "read", "write"]
McpRecord = Literal["whole", "digest"]
Provider = Literal["", "builtin", "scripted", "anthropic", "openai"]
Api = Literal["", "responses", "chat"]

NETWORKS: Final[tuple[Network, ...]] = get_args(Network)
"""From the strictest to the loosest. `policy`: as `tool:net:` rules allow, else `loopback`."""
ENFORCEMENTS: Final[tuple[EnforcementMode, ...]] = get_args(EnforcementMode)
COMMITS: Final[tuple[Commit, ...]] = get_args(Commit)
"""From the loosest to the strictest."""

_SYSTEM_ETC: Final = (
    "alternatives ant.conf ant.d ca-certificates crypto-policies "
    "debian_version dotnet fonts gai.conf ghostscript glvnd groff group gtk-3.0 host.conf hosts "
    "ImageMagick-6 ImageMagick-7 inputrc java jvm jvm-common ld.so.cache ld.so.conf "
    "ld.so.conf.d locale.alias localtime lsb-release magic magic.mime mailcap manpath.config "
    "maven mime.types networks nsswitch.conf openal OpenCL os-release papersize passwd perl pki "
    "protocols python3 R resolv.conf rpc services sgml shells ssl system-release terminfo texmf "
    "timezone vulkan xml"
).split()
"""Names below /etc that packages install, readable by every user and free of secrets."""
_VERSIONED_ETC: Final = (
    *(f"java-{version}-openjdk" for version in range(8, 31)),
    *(f"python3.{version}" for version in range(9, 20)),
)
SYSTEM_READ: Final = (
    *("/bin", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr"),
    *(f"/etc/{name}" for name in (*_SYSTEM_ETC, *_VERSIONED_ETC)),
)
"""System directories (hier(7)): programs and libraries; no home, no secrets."""


class ShellLimits(Struct, frozen=True):
    """Resources of a command: processes and memory of its tree, CPU and file size per process."""

    processes: Annotated[int, Meta(ge=1, le=65_536)] = 4096
    memory_mb: Annotated[int, Meta(ge=0, le=1_048_576)] = 0
    """0: three quarters of the machine's memory, which also caps every other value."""
    file_mb: Annotated[int, Meta(ge=1, le=1_048_576)] = 4096
    cpu_s: Annotated[int, Meta(ge=0, le=86_400)] = 0
    """0: no limit besides the command's timeout."""

    def stricter(self, other: "ShellLimits") -> "ShellLimits":
        """Return the smaller of each; for memory and processor time 0 counts as the largest."""
        return ShellLimits(
            processes=min(self.processes, other.processes),
            memory_mb=_smaller(self.memory_mb, other.memory_mb),
            file_mb=min(self.file_mb, other.file_mb),
            cpu_s=_smaller(self.cpu_s, other.cpu_s),
        )


def _smaller(one: int, other: int) -> int:
    return min(one or other, other or one)


class ConfineMax(Struct, frozen=True):
    """How much existing content one confined command may change without asking."""

    files: Annotated[int, Meta(ge=0, le=10**9)] = 500
    """Existing files that it changes or deletes."""
    mb: Annotated[int, Meta(ge=0, le=10**9)] = 200
    """Total former size of those files."""
    deleted: Annotated[int, Meta(ge=0, le=10**9)] = 50


class ShellSettings(Struct, frozen=True):
    """`[shell]`: what a command may read, write and reach, and what a person approves."""

    network: Network = "policy"
    git: Git = "safe"
    read: tuple[NonEmpty, ...] = SYSTEM_READ
    write: tuple[NonEmpty, ...] = ()
    enforcement: EnforcementMode = "required"
    approve: Approve = "command"
    commit: Commit = "each"
    limits: ShellLimits = field(default_factory=ShellLimits)
    env: tuple[NonEmpty, ...] = ()
    """Environment variables that a call may set; a name may end in `*`."""
    caches: bool = True
    """If true, commands of one workspace share a private directory for tool caches."""
    confine_max: ConfineMax = field(default_factory=ConfineMax)


class HookSettings(Struct, frozen=True):
    """`[hook]`. `also_write` None: the client's default.

    `outside`: patterns of commands that are left to the client unchanged.
    """

    on_allow: OnAllow = "silent"
    warnings: HookWarnings = "once"
    also_write: tuple[NonEmpty, ...] | None = None
    shell: HookShell = "confine"
    outside: tuple[NonEmpty, ...] = ()
    paranoid: bool = False
    sandbox_ignored: bool = True
    scratch: bool = True
    """If true, agents are told which directory is for scratch work."""


class AgentBinding(Struct, frozen=True):
    """`[agents."NAME"]`: a profile for an agent or a client's agent type.

    With a `workspace` or a `parent` it declares an agent, which `paddock trust` creates.
    """

    name: str
    profile: str
    workspace: NonEmpty = ""
    """A directory, relative to the project's root or absolute; empty: the parent's."""
    parent: NonEmpty = ""
    permissions: Permissions = field(default_factory=Permissions)

    @property
    def is_declared(self) -> bool:
        return bool(self.workspace or self.parent)


class LoweredLimits(Struct, frozen=True):
    """`[limits]`: the limits of `paddock.limits` that a file may lower.

    Only `shell_timeout_s` may be raised, and only for `run_shell`. All other limits are fixed.
    """

    change_set_bytes_max: int = hard.change_set_bytes_max
    dev_context_max: int = hard.dev_context_max
    dev_matches_max: int = hard.dev_matches_max
    find_entries_max: int = hard.find_entries_max
    grep_matches_max: int = hard.grep_matches_max
    ledger_entries_listed_max: int = hard.ledger_entries_listed_max
    listed_depth_max: int = hard.listed_depth_max
    listed_entries_max: int = hard.listed_entries_max
    ls_entries_max: int = hard.ls_entries_max
    search_context_max: int = hard.search_context_max
    search_output_bytes_max: int = hard.search_output_bytes_max
    shell_timeout_s: int = hard.shell_timeout_s
    view_bytes_max: int = hard.view_bytes_max

    def lowered(self) -> dict[str, int]:
        return {
            each.name: value
            for each in fields(self)
            if (value := getattr(self, each.name)) != each.default
        }


class HistorySettings(Struct, frozen=True):
    """`[history]`: how much replaced content is kept."""

    bytes_max: Annotated[int, Meta(ge=0, le=10**15)] = 2_000_000_000


CREDENTIAL: Final = "credential:"
"""Prefix of a credential's name in `env` and `headers`: the server gets its placeholder."""
_HTTPS: Final = lazy_pattern(r"https://(?:\[([^\]]+)\]|([^:/\[]+))(?::([0-9]+))?(?:/|$)")
_SEES: Final = {
    "none": "sees no file of the workspace",
    "read": "reads the workspace",
    "write": "reads and writes the workspace",
}


class McpTools(Struct, frozen=True):
    """Which tools of a server are offered. Profiles decide which calls are allowed."""

    allow: tuple[NonEmpty, ...] = ("*",)
    """`*` matches any part."""
    deny: tuple[NonEmpty, ...] = ()


class McpServer(Struct, frozen=True):
    """`[mcp.servers.NAME]`: a third-party server, started by `command` or reached at `url`.

    Exactly one of the two is given.
    """

    name: str
    command: tuple[NonEmpty, ...] = ()
    url: str = ""
    env: tuple[tuple[str, str], ...] = ()
    """Variables and values; a value may be `credential:NAME`."""
    network: tuple[NonEmpty, ...] = ()
    """The hosts that it may reach: targets of `tool:net:connect` or `tool:net:request`."""
    addresses: tuple[NonEmpty, ...] = ()
    """Networks that its hosts may be in, besides public addresses."""
    packages: bool = False
    """True: it also reaches the hosts of the user's package clients, and gets their indexes."""
    headers: tuple[tuple[str, str], ...] = ()
    """Of requests to `url`; a value may be `credential:NAME`, optionally after a scheme."""
    files: McpFiles = "none"
    """Its access to the workspace."""
    tools: McpTools = field(default_factory=McpTools)
    record: McpRecord = "whole"
    """How the ledger keeps the arguments of a call."""
    redact: tuple[NonEmpty, ...] = ()
    """JSON pointers to arguments that the ledger leaves out."""

    @property
    def host(self) -> tuple[str, int] | None:
        """Host and port of its URL; None for a command and for a local `http` URL."""
        match = _HTTPS.match(self.url)
        return None if match is None else ((match[1] or match[2]).lower(), int(match[3] or 443))


class McpSettings(Struct, frozen=True):
    """`[mcp]`: the server of an agent's tools, and the third-party servers behind it."""

    calls_max: Annotated[int, Meta(ge=1, le=1024)] = 32
    """Calls that run at once."""
    servers: tuple[McpServer, ...] = ()


class ApprovalSettings(Struct, frozen=True):
    """`[approvals]`: who is notified of a pending request; only in the user's configuration.

    `notify` is a program that gets the request as JSON on its standard input.
    """

    notify: tuple[NonEmpty, ...] = ()


class AnchorSettings(Struct, frozen=True):
    """`[ledger] anchor`: where checkpoints of the governance ledger go.

    At most one of the three is given; none means the default, a directory beside the planes.
    """

    directory: NonEmpty = ""
    git: NonEmpty = ""
    command: tuple[NonEmpty, ...] = ()


class LedgerSettings(Struct, frozen=True):
    """`[ledger]`. `anchor` and `signer` are read only from the user's own configuration."""

    keep_model_contents: bool = False
    anchor: AnchorSettings = field(default_factory=AnchorSettings)
    signer: tuple[NonEmpty, ...] = ()
    """The program that signs checkpoints; empty: this process does."""


class ProviderSettings(Struct, frozen=True):
    """`[providers.NAME]`: how a model is reached. Empty values mean the default.

    A key is never in a file: `api_key_env` names a variable, `api_key_command` a program
    that prints it.
    """

    name: str
    provider: Provider = ""
    model: NonEmpty = ""
    base_url: NonEmpty = ""
    api: Api = ""
    api_key_env: NonEmpty = ""
    api_key_command: tuple[NonEmpty, ...] = ()


class CredentialSource(Struct, frozen=True):
    """`from` of a credential: a variable, a file, a program that prints it, or a keyring's entry.

    Exactly one is given; of a keyring's, `SERVICE` or `SERVICE/USER`.
    """

    env: NonEmpty = ""
    file: NonEmpty = ""
    command: tuple[NonEmpty, ...] = ()
    keyring: NonEmpty = ""


class CredentialSettings(Struct, frozen=True):
    """`[credentials.NAME]`: the hosts that get a value which commands never see.

    In the sandbox `variable` holds a placeholder for it.
    """

    name: str
    hosts: tuple[tuple[str, int], ...] = ()
    variable: NonEmpty = ""
    source: CredentialSource = field(default_factory=CredentialSource)


class NetworkSettings(Struct, frozen=True):
    """`[network]`. `packages`: whether the hosts of the user's package clients may be reached."""

    packages: bool = False


class PackageRule(Strict, frozen=True):
    """A connection of a package client, and networks its host may be in besides public ones."""

    action: str
    addresses: tuple[str, ...] = ()


class Settings(Struct, frozen=True):
    """All tables other than rules and paths, in force together."""

    shell: ShellSettings = field(default_factory=ShellSettings)
    hook: HookSettings = field(default_factory=HookSettings)
    agents: tuple[AgentBinding, ...] = ()
    limits: LoweredLimits = field(default_factory=LoweredLimits)
    history: HistorySettings = field(default_factory=HistorySettings)
    mcp: McpSettings = field(default_factory=McpSettings)
    approvals: ApprovalSettings = field(default_factory=ApprovalSettings)
    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    providers: tuple[ProviderSettings, ...] = ()
    credentials: tuple[CredentialSettings, ...] = ()

    def profile_for(self, agent: str) -> str | None:
        return next((each.profile for each in self.agents if each.name == agent), None)


_HOST_PATH: Final = lazy_pattern(r"(/|~/)[^\0]*|~", re.DOTALL)

_ENV_PATTERN: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\*?")
_ENV_RESERVED: Final = (
    *("PATH", "LD_*", "BASH_ENV", "GIT_*", "NODE_OPTIONS", "PYTHON*"),
    # Also variables that a shell reads at startup, and that locate programs' configuration.
    *("ENV", "SHELLOPTS", "BASHOPTS", "BASH_FUNC_*", "IFS", "PS4", "CDPATH", "PERL5*", "RUBYOPT"),
    *("RUBYLIB", "HOME", "TMPDIR", "PWD", "XDG_CONFIG_*"),
)
"""Threat: a call for an allowed command changes which program the command's name runs."""

Given = TypeVar("Given", bound=Struct)


class ShellChanges(Struct, frozen=True):
    network: Network | None = None
    git: Git | None = None
    read: tuple[NonEmpty, ...] | None = None
    write: tuple[NonEmpty, ...] | None = None
    enforcement: EnforcementMode | None = None
    approve: Approve | None = None
    commit: Commit | None = None
    limits: ShellLimits | None = None
    env: tuple[NonEmpty, ...] | None = None
    caches: bool | None = None
    confine_max: ConfineMax | None = None

    def over(self, base: Given) -> Given:
        return lay_over(base, self)


def lay_over(base: Given, changes: Struct) -> Given:
    """Replace fields of `base` by those of `changes` that are not None."""
    values = ((each.name, getattr(changes, each.name)) for each in fields(changes))
    return replace(base, **{name: value for name, value in values if value is not None})


def read_shell_changes(table: Table) -> ShellChanges:
    readers = {"read": host_paths, "write": host_paths, "env": _env_names}
    return table.fill(ShellChanges(), readers)


def covers(pattern: str, name: str) -> bool:
    """Return True if a pattern of `env` covers the whole of a name or another pattern."""
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else pattern == name


def _env_names(table: Table, name: str) -> tuple[str, ...]:
    def parse(given: Text) -> str:
        why = reserved_problem(given.text)
        if _ENV_PATTERN.fullmatch(given.text) is None:
            why = "which is not a variable name; it may end in *"
        if why:
            message = f"env in {table.title} has {quote_toml(given.text)}, {why}"
            raise PatternError(message, 'name what tests read, as ["CI", "PYTEST_*"]')
        return given.text

    return table.parsed(name, parse)


def reserved_problem(pattern: str) -> str:
    for reserved in _ENV_RESERVED:
        if covers(pattern, reserved) or covers(reserved, pattern):
            return f"which would cover {reserved}: that changes what a command's names run"
    return ""


def host_paths(table: Table, name: str) -> tuple[str, ...]:
    def parse(given: Text) -> str:
        if _HOST_PATH.fullmatch(given.text) is None or ".." in given.text.split("/"):
            message = f"{name} in {table.title} has {quote_toml(given.text)}, not an absolute path"
            raise PatternError(message, "write it from / or ~/, without ..")
        return given.text

    return table.parsed(name, parse)


def offers(server: McpServer, tool: str) -> bool:
    is_denied = any(matches_wild(each.casefold(), tool.casefold()) for each in server.tools.deny)
    return not is_denied and any(matches_wild(each, tool) for each in server.tools.allow)


def describe_server(server: McpServer) -> str:
    """Describe what the server is given, for a person who is asked to approve it."""
    what = f"runs {shlex.join(server.command)}"
    kept = [f"{each} of arguments is not recorded" for each in server.redact]
    if server.record == "digest":
        kept = ["of arguments a digest is recorded"]
    where = f" in {', '.join(server.addresses)}" if server.addresses else ""
    if server.url:
        headers = (f"is sent {name}: {value}" for name, value in server.headers)
        return "; ".join((f"is reached at {server.url}{where}", *headers, *kept))
    hosts = (*server.network, *["the hosts of your package clients"] * server.packages)
    network = f"reaches {', '.join(hosts) or 'nothing'}{where}"
    variables = (f"has {name}={value}" for name, value in server.env)
    return "; ".join((what, network, *variables, _SEES[server.files], *kept))


class CredentialUse(Struct, frozen=True):
    """An entry of a server's `env` or `headers` (`key`) that names a credential."""

    key: str
    name: str
    variable: str
    """The variable that holds its placeholder in the server's sandbox."""
    credential: str


def credential_uses(server: McpServer) -> Iterator[CredentialUse]:
    for name, value in server.env:
        if value.startswith(CREDENTIAL):
            yield CredentialUse("env", name, name, value.removeprefix(CREDENTIAL))
    for number, (name, value) in enumerate(server.headers):
        if credential := value.partition(CREDENTIAL)[2]:
            yield CredentialUse("headers", name, f"PADDOCK_HEADER_{number}", credential)


def credential_problems(
    server: McpServer, known: Iterable[CredentialSettings]
) -> Iterator[tuple[CredentialUse, str, str]]:
    """Yield each credential that the server cannot get, with a message and a hint."""
    hosts = {each.name: each.hosts for each in known}
    for use in credential_uses(server):
        given, where = hosts.get(use.credential), server.host
        message = f"{use.name} of the MCP server {server.name} wants the credential "
        message += quote_toml(use.credential)
        table = f"[credentials.{use.credential}]"
        if given is None:
            hint = f"add {table} to the user's configuration"
            yield use, f"{message}, which is not defined", hint
        elif where is not None and where not in given:
            place = f"{where[0]}:{where[1]}"
            yield use, f"{message}, whose hosts do not name {place}", f"add it to hosts of {table}"


def net_action(text: str) -> str:
    """Return an entry of `network` as an action."""
    return f"tool:net:{'request' if ' ' in text.strip() else 'connect'} {text}"
