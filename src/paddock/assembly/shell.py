"""The shell of a runtime: made when its first command comes, let go with the runtime.

Nothing of the sandbox is loaded before: most calls are no commands, and a cold start
shows it.
"""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock.assembly.history import open_journal
from paddock.assembly.project import Project
from paddock.errors import SandboxUnavailableError, UsageError
from paddock.policy.decide import names_line, shell_for
from paddock.policy.engine import Policy
from paddock.storage.history import History
from paddock.values.calls import Cancel
from paddock.values.decisions import Action, AgentChain, Held
from paddock.workspace import Workspace

if TYPE_CHECKING:
    from paddock.sandbox.host.host_facts import HostFacts
    from paddock.sandbox.shell import SandboxShell
    from paddock.sandbox.values import (
        HeldLine,
        OnOutput,
        PreparedLine,
        Progress,
        ShellLine,
        ShellOutcome,
    )
    from paddock.storage.journal import Journal


STAGING: Final = "staging"


class ShellGround(Struct, frozen=True):
    project: Project
    agent: str
    chain: AgentChain
    policy: Policy
    workspace: Workspace
    history: History
    progress: "Progress | None" = None
    on_directory: Callable[[str], None] | None = None


class LazyShell:
    """See `paddock.tools.ports.Shell`. Safe for threads."""

    def __init__(self, ground: ShellGround) -> None:
        self._ground = ground
        self._lock = threading.Lock()
        self._held = ExitStack()
        self._shell: SandboxShell | None = None
        self._journal: Journal | None = None
        self._is_closed = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            self._shell = None
        self._held.close()

    def prepare(self, line: "ShellLine") -> "PreparedLine":
        return self._open().prepare(line)

    def asks_about_diff(self, prepared: "PreparedLine") -> bool:
        return self._open().asks_about_diff(prepared)

    def run(
        self, prepared: "PreparedLine", cancel: Cancel, on_output: "OnOutput | None" = None
    ) -> "ShellOutcome":
        return self._open().run(prepared, cancel, on_output)

    def stage(
        self, prepared: "PreparedLine", cancel: Cancel, on_output: "OnOutput | None" = None
    ) -> "HeldLine":
        return self._open().stage(prepared, cancel, on_output)

    def keep(self, content: bytes) -> str:
        return self._open().keep(content)

    def _open(self) -> "SandboxShell":
        with self._lock:
            if self._is_closed:
                raise UsageError("the runtime was closed", hint="open the workspace anew")
            if self._shell is None:
                self._shell = self._make()
            return self._shell

    def _make(self) -> "SandboxShell":
        from paddock.sandbox.changes.commit import CommitPlace  # noqa: PLC0415 - late on purpose
        from paddock.sandbox.shell import (  # noqa: PLC0415 - late on purpose
            SandboxGround,
            SandboxShell,
        )

        ground = self._ground
        place = CommitPlace(ground.workspace, ground.history, self._open_journal, ground.policy)
        staging = ground.project.environment.paddock_home / STAGING
        shell = SandboxShell(
            SandboxGround(
                ground.chain,
                place,
                self._look_at_host,
                staging,
                ground.progress,
                ground.on_directory,
            )
        )
        self._held.callback(shell.close)
        return shell

    def _look_at_host(self) -> "HostFacts":
        from paddock.sandbox.facts import FactsWanted, collect_facts  # noqa: PLC0415 - late on purpose

        ground = self._ground
        variables = dict(ground.project.environment.variables)
        return collect_facts(
            FactsWanted(ground.policy, ground.project.agents, ground.agent, variables)
        )

    def _open_journal(self) -> "Journal":
        with self._lock:
            if self._journal is None:
                self._journal = self._held.enter_context(open_journal(self._ground.project))
            return self._journal


# Nothing of it is run.


def held_here(project: Project, policy: Policy, chain: AgentChain, action: Action) -> Held:
    """How far a line would be held here, as `PreparedLine.held` says it of one that runs."""
    from paddock.sandbox.backends import choose_backend, examine_host  # noqa: PLC0415 - few ask

    shell = shell_for(policy, chain, action)
    verdicts = examine_host(project.environment.paddock_home / STAGING)
    try:
        word = choose_backend(verdicts, shell.enforcement).enforcement.value
    except SandboxUnavailableError:
        return "none"
    is_open = shell.network == "host" and not names_line(policy, chain, action)
    return "partial" if word == "full" and is_open else word
