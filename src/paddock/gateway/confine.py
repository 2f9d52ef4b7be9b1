"""The sandbox of one server: its policy, and its process in it.

What a server may is its own table's word and nothing else's: of the agent's policy it has the rules
about files, and only where it has files at all. It has no host network, no place of the host to
write, no variable but those named, and caches that no other command shares.
"""

import contextlib
import os
import shlex
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from paddock.errors import ConfigError, InvalidArgumentsError, ToolFailedError
from paddock.policy.engine import Policy
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
from paddock.text.show import quote
from paddock.values.decisions import Outcome
from paddock.values.entries import digest_of
from paddock.workspace.workspace import READ_FILE, Resolution, detect_resolution

if TYPE_CHECKING:
    from paddock.gateway.connection import ServerWire
    from paddock.network.decisions import Witness
    from paddock.network.wall import Wall

_SESSION: Final = "server"
_LASTS_S: Final = 86_400


def server_policy(policy: Policy, server: McpServer) -> Policy:
    """Return what holds in the sandbox of a server instead of the policy of its agent.

    Threat: an agent whose own commands reach a host, or write a place of it, would lend that to a
    server; and a server's network would be the agent's.
    """
    known = {each.name: each for each in policy.settings.credentials}
    credentials = tuple(
        replace(known[use.credential], variable=use.variable)
        for use in credential_uses(server)
        if use.credential in known
    )
    rules = _rules(server, credentials)
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
            policy.settings, shell=shell, network=NetworkSettings(), credentials=credentials
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

    # What is this machine's own is not reached from a sandbox, by any rule.
    own = () if server.host is None else (_place(*server.host),)
    rules = [*map(compiled, own or server.network)]
    for host, port in {host for each in credentials for host in each.hosts}:
        nets = [each.pattern.net for each in rules if each.pattern.net is not None]
        named = [net for net in nets if net.names(host, port, Outcome.ALLOW)]
        if named and not any(net.method for net in named):
            # A value is put into requests alone, and it may make any: it may connect there.
            rules.append(compiled(f"* {_place(host, port)}/**"))
    return tuple(rules)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def server_facts(facts: HostFacts, server: McpServer, workspace: str) -> HostFacts:
    """Return what a server's plan knows of the host; `workspace` is what it has for one."""
    # Threat: what one server puts into a cache of npm's, another command would run.
    shared = Path(facts.caches).parent.parent
    caches = Caches.of(shared, f"{facts.workspace}\0{server.name}")
    closed = facts.closed
    if workspace != facts.workspace:
        # Threat: a toolchain in the workspace would show what lies beside it.
        closed = (*closed, Closed(facts.workspace, "the workspace"))
    return replace(
        facts, workspace=workspace, closed=closed, git_outside=None, caches=str(caches.tree)
    )


class ServerSandbox:
    """One server's process, and the shell whose only command it is."""

    def __init__(
        self,
        server: McpServer,
        open_shell: Callable[[], SandboxShell],
        witness: "Callable[[], Witness]",
        credentials: Sequence[CredentialSettings] = (),
    ) -> None:
        """`witness` gives who is asked and keeps the record of all that it connects to."""
        self.server, self._open, self._witness = server, open_shell, witness
        self._credentials = credentials
        self._wire: ServerWire | None = None

    @property
    def _process(self) -> Process | None:
        return None if self._wire is None else self._wire.process

    def start(self, wire: "ServerWire") -> None:
        """Start it; `wire` hears it, in a thread of its own.

        Raises: SandboxUnavailableError; ConfigError: it wants a credential that it cannot have.
        """
        for _, said, hint in credential_problems(self.server, self._credentials):
            raise ConfigError(f"{said}: {hint}")
        shell, server = self._open(), self.server
        shell.sessions.on_end = self._ended
        env = tuple(pair for pair in server.env if not pair[1].startswith(CREDENTIAL))
        # The shell is there to find the program, and gives way to it.
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
        """End it with all that it started; what it changed since the last call goes."""
        if wire.process is not None:
            self._open().sessions.discard(wire.process)

    def _ended(self, name: str) -> None:
        """Tell who hears it, unless it is one that ended before `start` knew it."""
        process = self._process
        if self._wire is not None and process is not None and process.name == name:
            self._wire.ended()

    def bring_in(self) -> ShellOutcome | None:
        """Land what policy allows of what it changed so far; None for one that changes nothing."""
        process = self._process
        if self.server.files != "write" or process is None:
            return None
        try:
            return self._open().sessions.sync(process)
        except InvalidArgumentsError as error:
            raise ToolFailedError(
                f"the MCP server {quote(self.server.name)} ended before its changes were taken",
                hint="it answered, and nothing of what it changed in the workspace is there",
            ) from error

    def changed(self, paths: Iterable[str]) -> None:
        if self._process is not None and self.server.files != "none":
            self._open().sessions.changed(paths)

    def secrets(self) -> tuple[tuple[str, str], ...]:
        """Return each credential's value, and what stands for it in the sandbox."""
        wall = self._wall()
        listed = () if wall is None else wall.terms.credentials
        return tuple((each.reveal(), each.placeholder) for each in listed)

    @contextlib.contextmanager
    def counting(self) -> Generator[None]:
        """Have what a command may connect to at most counted anew, for one call."""
        wall = self._wall()
        tally = None if wall is None else wall.begin()
        try:
            yield
        finally:
            if wall is not None and tally is not None:
                wall.finish(tally)

    def _wall(self) -> "Wall | None":
        return None if self._process is None else self._open().sessions.network(_SESSION)

    def version(self) -> str:
        process = self._process
        return "" if process is None else find_fetched(process.prepared.plan.caches)


def _command(server: McpServer) -> tuple[str, ...]:
    if not server.url:
        return server.command
    bridge = Path(__file__).with_name("bridge.py").read_text(encoding="utf-8")
    values = dict(server.headers)
    headers = (
        f"{use.name}: {values[use.name].partition(CREDENTIAL)[0]}${use.variable}"
        for use in credential_uses(server)
    )
    return "python3", "-c", bridge, server.url, *headers


_NPX, _UVX = "npm/_npx", "uv/archive-v0"
_LOCK_BYTES_MAX: Final = 4_000_000
_FETCHED_MAX: Final = 64


def find_fetched(caches: str) -> str:
    """Return a digest of the packages that npx or uvx put into a server's own caches.

    Threat: all of it is the server's to write. Nothing is followed out of the caches, and what it
    says is only ever compared with what it said when a person looked.
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
