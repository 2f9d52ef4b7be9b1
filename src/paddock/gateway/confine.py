"""The sandbox of one server: its policy and its process.

Only its own configuration table grants a server access. From the agent's policy it gets the rules
for files, and only if it has access to files. It gets no host network, no writable host paths, only
the named variables, and private caches.
"""

import contextlib
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from paddock.errors import ConfigError, InvalidArgumentsError, ToolFailedError
from paddock.policy.engine import Policy, package_rules
from paddock.policy.rules import Profile, Rule, compile_rule
from paddock.policy.settings import (
    CREDENTIAL,
    SYSTEM_READ,
    CredentialSettings,
    McpServer,
    NetworkSettings,
    ShellChanges,
    ShellSettings,
    credential_problems,
    credential_uses,
    net_action,
)
from paddock.sandbox.host.host_facts import Closed, HostFacts
from paddock.sandbox.sessions.process import Process
from paddock.sandbox.shell import SandboxShell
from paddock.sandbox.staging_area import Caches
from paddock.sandbox.values import CommandWatch, ShellLine, ShellOutcome
from paddock.storage.atomic import held_open
from paddock.storage.disk import DIRECTORY
from paddock.text.show import quote, show_name
from paddock.values.calls import SHOW_NETWORK, RefusedConnection
from paddock.values.decisions import Outcome
from paddock.values.entries import digest_of
from paddock.workspace.workspace import READ_FILE, Resolution, detect_resolution

if TYPE_CHECKING:
    from paddock.gateway.connection import ServerWire
    from paddock.network.decisions import Witness
    from paddock.network.wall import Wall

_SESSION: Final = "server"
_LASTS_S: Final = 86_400
_NAMED_MAX: Final = 5


def server_policy(policy: Policy, server: McpServer) -> Policy:
    """Return the policy for a server's sandbox, derived from its agent's.

    Threat: a server would get the agent's network access and writable host paths; and the agent
    would get the server's network access.
    """
    known = {each.name: each for each in policy.settings.credentials}
    credentials = tuple(
        replace(known[use.credential], variable=use.variable)
        for use in credential_uses(server)
        if use.credential in known
    )
    rules = _rules(server, credentials)
    if server.packages:
        rules += package_rules(policy.packages, f"mcp.servers.{server.name}.packages")
    shell = replace(
        policy.settings.shell,
        network="policy",
        git="read-only" if server.files == "write" else "none",
        read=SYSTEM_READ,
        write=(),
        enforcement="required",
        approve="command",
        env=tuple(name for name, _ in server.env),
        caches=True,
    )
    return replace(
        policy,
        settings=replace(
            policy.settings,
            shell=shell,
            network=NetworkSettings(server.packages),
            credentials=credentials,
        ),
        profile_table=tuple(_confined(each, rules, shell) for each in policy.profile_table),
        overlays=tuple(_confined(each, (), shell) for each in policy.overlays),
    )


def _confined(profile: Profile, rules: tuple[Rule, ...], shell: ShellSettings) -> Profile:
    own = ShellChanges() if profile.shell is None else profile.shell
    kept = (each for each in profile.rules if each.pattern.head.category != "net")
    return replace(
        profile,
        rules=(*kept, *rules),
        otherwise=tuple(each for each in profile.otherwise if each.head.category != "net"),
        shell=ShellChanges(commit=own.commit, limits=own.limits or shell.limits),
    )


def _rules(server: McpServer, credentials: Iterable[CredentialSettings]) -> tuple[Rule, ...]:
    def compiled(text: str) -> Rule:
        rule = compile_rule(net_action(text), Outcome.ALLOW, f"mcp.servers.{server.name}.network")
        return replace(rule, addresses=server.addresses)

    # No rule lets a sandbox reach this machine's own addresses.
    own = () if server.host is None else (_place(*server.host),)
    rules = [*map(compiled, own or server.network)]
    for host, port in {host for each in credentials for host in each.hosts}:
        nets = [each.pattern.net for each in rules if each.pattern.net is not None]
        named = [net for net in nets if net.names(host, port, Outcome.ALLOW)]
        if named and not any(net.method for net in named):
            # A value is only inserted into judged requests; the server may connect, so allow all.
            rules.append(compiled(f"* {_place(host, port)}/**"))
    return tuple(rules)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_facts(facts: HostFacts, server: McpServer, workspace: str) -> HostFacts:
    """Return the host facts for a server's plan; `workspace` is the server's workspace."""
    # Threat: a server puts code into an npm cache, and another command runs it.
    shared = Path(facts.caches).parent.parent
    caches = Caches.of(shared, f"{facts.workspace}\0{server.name}")
    closed = facts.closed
    if workspace != facts.workspace:
        # Threat: a toolchain in the workspace would make the files next to it readable.
        closed = (*closed, Closed(facts.workspace, "the workspace"))
    return replace(
        facts, workspace=workspace, closed=closed, git_outside=None, caches=str(caches.tree)
    )


class ServerSandbox:
    """One server's process, the only command of its shell."""

    def __init__(
        self,
        server: McpServer,
        open_shell: Callable[[], SandboxShell],
        witness: "Callable[[], Witness]",
        credentials: Sequence[CredentialSettings] = (),
    ) -> None:
        """`witness` returns the approval and record of its connections."""
        self.server, self._open, self._witness = server, open_shell, witness
        self._credentials = credentials
        self._wire: ServerWire | None = None

    @property
    def _process(self) -> Process | None:
        return None if self._wire is None else self._wire.process

    def start(self, wire: "ServerWire") -> None:
        """Start it; `wire` gets its output, in a separate thread.

        Raises: SandboxUnavailableError; ConfigError: it needs a credential that it cannot have.
        """
        for _, said, hint in credential_problems(self.server, self._credentials):
            raise ConfigError(f"{said}: {hint}")
        shell, server = self._open(), self.server
        shell.sessions.on_end = self._ended
        env = tuple(pair for pair in server.env if not pair[1].startswith(CREDENTIAL))
        # The shell finds the program, and is replaced by it.
        text = f"exec {shlex.join(_command(server))}"
        prepared = shell.prepare(ShellLine(text, ".", _LASTS_S, env=env, session=_SESSION))
        if server.files != "write":
            prepared = replace(prepared, plan=replace(prepared.plan, commit="none"))
        watch = CommandWatch(on_output=wire.hear, network=self._witness())
        self._wire = wire
        wire.process = process = shell.start(prepared, watch)
        if not process.is_running:
            wire.ended()

    def end(self, wire: "ServerWire") -> None:
        """End all its processes; changes since the last call are discarded."""
        if wire.process is not None:
            self._open().sessions.discard(wire.process)

    def _ended(self, name: str) -> None:
        """Notify the wire, unless the process ended before `start` had it."""
        process = self._process
        if self._wire is not None and process is not None and process.name == name:
            self._wire.ended()

    def bring_in(self) -> ShellOutcome | None:
        """Land its changes so far that policy allows; return None if it may not change files."""
        process = self._process
        if self.server.files != "write" or process is None:
            return None
        try:
            return self._open().sessions.sync(process)
        except InvalidArgumentsError as error:
            raise ToolFailedError(
                f"the MCP server {quote(self.server.name)} ended before its changes were landed",
                hint="it answered, but its changes to the workspace are lost",
            ) from error

    def changed(self, paths: Iterable[str]) -> None:
        if self._process is not None and self.server.files != "none":
            self._open().sessions.changed(paths)

    def secrets(self) -> tuple[tuple[str, str], ...]:
        """Return each credential's value and its placeholder in the sandbox."""
        wall = self._wall()
        listed = () if wall is None else wall.terms.credentials
        return tuple((each.reveal(), each.placeholder) for each in listed)

    @contextlib.contextmanager
    def counting(self) -> Generator[list[RefusedConnection]]:
        """Apply the limits on a command's connections to one call; yield a list to be filled."""
        wall, refused = self._wall(), list[RefusedConnection]()
        tally = None if wall is None else wall.begin()
        try:
            yield refused
        finally:
            if wall is not None and tally is not None:
                refused += wall.finish(tally).refused

    def explain_end(self) -> str:
        """Say what policy refused the process that has ended, or that it may reach nothing."""
        process, table = self._process, f"[mcp.servers.{self.server.name}]"
        if process is None or process.command is None:
            return ""
        if process.prepared.plan.network == "policy":
            return describe_refused(process.command.end.network.refused)
        if self.server.packages:
            return "the hosts of your package clients are unknown: paddock network show --refresh"
        return f"it may reach no host: if it needs some, name them in network of {table}"

    def _wall(self) -> "Wall | None":
        return None if self._process is None else self._open().sessions.network(_SESSION)

    def version(self) -> str:
        process = self._process
        return "" if process is None else find_fetched(process.prepared.plan.caches)


def describe_refused(refused: Sequence[RefusedConnection]) -> str:
    """Say which connections of a server failed, why, and what a person can do about it."""

    def described(each: RefusedConnection) -> str:
        did = "refused" if each.remedy else "allows, but the network failed,"
        place = f"{each.host}:{each.port}" if each.port else each.host
        # That command shows what the agent may reach, not the server.
        remedy = "" if each.remedy in ("", SHOW_NETWORK) else f" ({each.remedy})"
        return show_name(f"policy {did} its connection to {place}: {each.why}{remedy}")

    rest = len(refused) - _NAMED_MAX
    more = [f"and {rest} more connections"] if rest > 0 else []
    return "; ".join((*map(described, refused[:_NAMED_MAX]), *more))


def _command(server: McpServer) -> tuple[str, ...]:
    if not server.url:
        return server.command
    bridge = Path(__file__).with_name("bridge.py").read_text(encoding="utf-8")
    variables = {use.name: f"${use.variable}" for use in credential_uses(server)}
    headers = (
        f"{name}: {value.partition(CREDENTIAL)[0]}{variables.get(name, '')}"
        for name, value in server.headers
    )
    return "python3", "-c", bridge, server.url, *headers


_NPX, _UVX = "npm/_npx", "uv/archive-v0"
_LOCK_BYTES_MAX: Final = 4_000_000
_FETCHED_MAX: Final = 64


def find_fetched(caches: str) -> str:
    """Return a digest of the packages that npx or uvx put into a server's private caches.

    Threat: the server can write all of it. No link is followed out of the caches, and the digest is
    only compared with the reviewed one.
    """
    found: list[bytes] = []
    resolution = detect_resolution()
    try:
        root = os.open(caches, DIRECTORY)
    except OSError:
        return ""
    with held_open(root):
        locks = (f"{_NPX}/{name}/package-lock.json" for name in _names(resolution, root, _NPX))
        found += (_content(resolution, root, each) for each in locks)
        for name in _names(resolution, root, _UVX):
            kinds = _names(resolution, root, f"{_UVX}/{name}")
            found += (os.fsencode(each) for each in kinds if "-info" in each)
    return "" if not found else f"packages {digest_of(repr(sorted(found)).encode())[7:23]}"


def _names(resolution: Resolution, root: int, folder: str) -> list[str]:
    with contextlib.suppress(OSError), held_open(resolution.open(root, folder, DIRECTORY)) as fd:
        return sorted(os.listdir(fd))[:_FETCHED_MAX]
    return []


def _content(resolution: Resolution, root: int, path: str) -> bytes:
    with contextlib.suppress(OSError), held_open(resolution.open(root, path, READ_FILE)) as fd:
        return os.pread(fd, _LOCK_BYTES_MAX, 0)
    return b""
