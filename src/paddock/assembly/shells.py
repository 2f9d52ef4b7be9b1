"""Create an agent's shell at its first use: most calls need none."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from msgspec import Struct, convert
from msgspec.structs import replace

from paddock.assembly.history import open_journal
from paddock.assembly.project import Project, read_project
from paddock.errors import IntegrityError, PaddockError, UsageError
from paddock.plane.environment import Environment
from paddock.plane.trust import read_packages, read_policy_files
from paddock.policy.engine import Policy
from paddock.policy.settings import McpServer
from paddock.storage.history import History
from paddock.storage.locks import Late
from paddock.values.calls import Json
from paddock.values.decisions import AgentChain
from paddock.workspace import Workspace

if TYPE_CHECKING:
    from paddock.network.egress import Egress
    from paddock.sandbox.connections import NetworkSecrets
    from paddock.sandbox.host.host_facts import HostFacts
    from paddock.sandbox.sessions.client_session import ClientSession
    from paddock.sandbox.shell import SandboxShell
    from paddock.sandbox.values import Progress
    from paddock.storage.journal import Journal


# The sandbox is imported only when the shell is created: loading it slows every start.

STAGING: Final = "staging"


class ShellSetup(Struct, frozen=True):
    project: Project
    agent: str
    chain: AgentChain
    policy: Policy
    workspace: Workspace
    history: History
    progress: "Progress | None" = None
    on_directory: Callable[[str], None] | None = None
    client: "ClientSession | None" = None
    on_shell: Callable[[], None] = lambda: None
    """Called before the first command."""
    server: McpServer | None = None
    """The only MCP server that runs in it, if it is not an agent's shell."""

    def governed_by(self, policy: Policy) -> Policy:
        """Return the policy for this shell: a server's allows only the entries of its table."""
        if self.server is None:
            return policy
        from paddock.gateway.confine import server_policy  # noqa: PLC0415 - few have one

        return server_policy(policy, self.server)


class LazyShell:
    def __init__(self, ground: ShellSetup) -> None:
        self._ground = ground
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._shell: SandboxShell | None = None
        self._journal: Journal | None = None
        self._is_closed = False
        self._call: Callable[[str, Mapping[str, Json]], object] = _no_runtime

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._shell = None
        self._held.close()

    def changed(self, paths: Iterable[str]) -> None:
        """Notify running commands of a tool's changes; create no shell for it."""
        if self._shell is not None:
            self._shell.sessions.changed(paths)

    def end(self, call: Callable[[str, Mapping[str, Json]], object]) -> None:
        """End each background process by a separate call."""
        if self._shell is not None:
            for process in self._shell.sessions.all():
                if process.is_running:
                    call("shell_stop", {"process": process.name})
                process.join()

    def on_end(self, call: Callable[[str, Mapping[str, Json]], object]) -> None:
        """Set the `call` that concludes, and so records, each process that ends on its own."""
        self._call = call

    def open(self) -> "SandboxShell":
        with self._lock:
            if self._is_closed:
                raise UsageError("the runtime was closed", hint="open the workspace again")
            if self._shell is None:
                self._shell = self._make()
            return self._shell

    def _make(self) -> "SandboxShell":
        from paddock.sandbox.changes.commit import CommitPlace  # noqa: PLC0415 - late on purpose
        from paddock.sandbox.connections import (  # noqa: PLC0415 - late on purpose
            NetworkServices,
            read_known_hosts,
        )
        from paddock.sandbox.shell import (  # noqa: PLC0415 - late on purpose
            SandboxShell,
            ShellContext,
        )

        ground = self._ground
        ground.on_shell()
        place = CommitPlace(ground.workspace, ground.history, self._open_journal, ground.policy)
        environment = ground.project.environment
        network = NetworkServices(
            lambda: _egress(environment),
            PolicyNow(ground).read,
            lambda: read_known_hosts(environment.home),
            lambda: _indexes(ground),
            Late(lambda: _network_secrets(ground.policy, environment)).get,
        )
        shell = SandboxShell(
            ShellContext(
                ground.chain,
                place,
                self._collect_facts,
                environment.paddock_home / STAGING,
                ground.progress,
                ground.on_directory,
                client=ground.client,
                network=network,
            )
        )
        self._held.callback(shell.close)
        shell.sessions.on_end = self._conclude
        return shell

    def _conclude(self, process: str) -> None:
        shell = self._shell
        if shell is None or shell.sessions.process(process).outcome is not None:
            return
        with suppress(UsageError, IntegrityError):
            # Closed, or its ledger damaged: the next call reports it.
            self._call("shell_stop", {"process": process})

    def _collect_facts(self) -> "HostFacts":
        from paddock.sandbox.facts import collect_facts  # noqa: PLC0415 - late on purpose

        ground = self._ground
        variables = dict(ground.project.environment.variables)
        facts = collect_facts(ground.policy, ground.project.agents, ground.agent, variables)
        if ground.server is None:
            return facts
        from paddock.gateway.confine import server_facts  # noqa: PLC0415 - few have one

        return server_facts(facts, ground.server, ground.workspace.root)

    def _open_journal(self) -> "Journal":
        with self._lock:
            if self._journal is None:
                self._journal = self._held.enter_context(open_journal(self._ground.project))
            return self._journal


def _no_runtime(tool: str, arguments: Mapping[str, Json]) -> None:
    """Do nothing, until `on_end` names a runtime to call."""


def _indexes(ground: ShellSetup) -> dict[str, str]:
    if not ground.policy.settings.network.packages:
        return {}
    from paddock.network.packages import FoundPackages, index_variables  # noqa: PLC0415 - few have

    kept = read_packages(ground.project.root, ground.project.environment)
    return {} if kept is None else index_variables(convert(kept.found, FoundPackages))


def _network_secrets(policy: Policy, environment: Environment) -> "NetworkSecrets":
    from paddock.network.credentials import read_all  # noqa: PLC0415 - few commands need it
    from paddock.network.requests import Authority  # noqa: PLC0415 - the same
    from paddock.sandbox.connections import NetworkSecrets  # noqa: PLC0415 - the same

    authority = Authority(datetime.now(UTC))
    settings, variables = policy.settings.credentials, dict(environment.variables)
    return NetworkSecrets(
        authority,
        authority.bundle(),
        lambda: read_all(settings, variables, environment.home, os.urandom),
    )


class PolicyNow:
    def __init__(self, ground: ShellSetup) -> None:
        self._ground = ground
        self._files = ground.project.files
        self._policy: Policy | None = ground.policy

    def read(self) -> Policy | None:
        """Return the policy in force now: the same object if no file has changed.

        None if it cannot be read: what it allows is unknown.
        """
        project = self._ground.project
        try:
            files = read_policy_files(project.root, project.environment)
            if files != self._files:
                now = replace(read_project(project.root, project.environment), given=project.given)
                agents = replace(now.agents, given=project.agents.given)
                (record, *_) = agents.lineage(self._ground.agent)
                self._files, self._policy = files, self._ground.governed_by(now.policy_for(record))
        except PaddockError:
            return None
        return self._policy


def _egress(environment: Environment) -> "Egress":
    from paddock.network.egress import Egress  # noqa: PLC0415 - few commands go out

    return Egress(dict(environment.variables))
