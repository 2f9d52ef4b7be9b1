"""Open a session: an agent with its tools, a model, budgets, and the two ledgers.

Files can replace a model: recorded exchanges (cassettes), and scripts.
"""

import itertools
import os
import random
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct, field

from paddock import limits
from paddock.agent import events
from paddock.agent.context import Conversation
from paddock.agent.contracts import load_contracts
from paddock.agent.executor import Executor, Timer, real_timer
from paddock.agent.records import Scribe
from paddock.agent.session_log import RecordedSession, find_session, restore, tokens_charged
from paddock.agent.sessions import ChildAgent, Session
from paddock.agent.steps import ModelDoor
from paddock.agent.supervisor import Charter, Office, Supervisor
from paddock.assembly.audit import verify_not_gone
from paddock.assembly.extensions import skill_facts
from paddock.assembly.ledgers import open_ledger
from paddock.assembly.project import ADMIN_AGENT, Project, new_session_id
from paddock.assembly.project_open import open_given
from paddock.assembly.runtimes import approver_of, open_runtime, record_gate, tools_allowed
from paddock.errors import ConfigError, HostError, UsageError
from paddock.ledger.query import Ledgers
from paddock.pattern import lazy_pattern
from paddock.plane.admin import BudgetTable, ModelChoice
from paddock.plane.environment import process_environment, process_variables
from paddock.plane.layout import LedgerName
from paddock.plane.tokens import session_lock
from paddock.policy.settings import ProviderSettings
from paddock.providers.budgets import Budget, session_budget
from paddock.providers.choice import choose_settings, open_provider, without_key
from paddock.providers.failures import missing_sdk, wait_or_cancel
from paddock.providers.gateway import Gateway, Provider
from paddock.runtime.approvals import ApprovalRequest, Approver, NoApprover
from paddock.runtime.runtime import Runtime
from paddock.storage.atomic import read_file
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import PlaneKind
from paddock.values.models import ToolSchema

if TYPE_CHECKING:
    from paddock.providers.scripted import ScriptedModel
    from paddock.providers.transport import PlayingTransport


DEFAULT_PROVIDER: Final = "default"
"""The `[providers.NAME]` used if no model is chosen; without it, the built-in model."""


def parse_model(text: str) -> ModelChoice:
    provider, _, name = text.partition(":")
    if not provider:
        raise UsageError(
            f"{quote(text)} names no provider",
            where="--model",
            hint="such as builtin, anthropic:NAME, or a [providers.NAME] of your configuration",
        )
    return ModelChoice(provider=provider, name=name or None)


def chosen_model(project: Project, model: str | None) -> ProviderSettings:
    known = project.policy.settings.providers
    if model is not None:
        choice = parse_model(model)
    elif project.admin is not None:
        choice = project.admin.model
    elif any(table.name == DEFAULT_PROVIDER for table in known):
        choice = ModelChoice(provider=DEFAULT_PROVIDER)
    else:
        choice = ModelChoice()
    return choose_settings(
        choice.provider, choice.name or "", choice.base_url or "", choice.api or "", known
    )


def read_script(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"the script {quote(path)} cannot be read: {type(error).__name__}",
            hint="name a file of steps: scripted:FILE",
        ) from None


_SESSION_ID: Final = lazy_pattern(r"SES-[0-9a-f]{16}")

DEFAULT_SYSTEM_PROMPT: Final = (
    "You are an agent that works in one workspace, with the tools that you are given. Paths are "
    "relative to the workspace. Every call is decided by a policy: where a call is refused, read "
    "why, and choose another way or say so. Answer from what the tools return, and do not guess "
    "what you have not looked at."
)


class SessionWish(Struct, frozen=True):
    """The settings of a session. None: as the configuration says.

    `model` is `PROVIDER[:NAME]`; `provider` replaces it with one that is already open, and is
    closed with the session. `resume` is the id of a session to continue.
    """

    agent: str | None = None
    model: str | None = None
    approver: Approver = field(default_factory=NoApprover)
    listener: events.TurnListener = field(default_factory=events.SilentListener)
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    resume: str | None = None
    provider: Provider | None = None
    timer: Timer = real_timer


def open_session(project: Project, wish: SessionWish) -> Session:
    """Open a session, and record its start.

    Raises:
        UsageError: no such agent or session, or it is open elsewhere.
        ConfigError: configuration, prompt contract or model cannot be used.
        HostError: workspace or ledger cannot be opened.
    """
    with ExitStack() as held:
        return _Opening(project, wish, held).session()


def sessions_of(project: Project) -> Ledgers:
    verify_not_gone(project.layout, project.environment, LedgerName.HO2M)
    return Ledgers(project.layout.ledger_paths())


def require_session(project: Project, session_id: str) -> RecordedSession:
    found = None
    if _SESSION_ID.fullmatch(session_id):
        found = find_session(sessions_of(project), session_id)
    if found is None:
        raise UsageError(f"no session named {quote(session_id)}", hint="see: paddock session list")
    return found


class _Opening:
    """Open the parts of a session, and later the agents that it delegates to."""

    def __init__(self, project: Project, wish: SessionWish, held: ExitStack) -> None:
        self._project = project
        self._wish = wish
        self._held = held
        self._before = None if wish.resume is None else require_session(project, wish.resume)
        self._agent = _agent_of(project, wish, self._before)
        self._record, self._policy, self._chain = project.acting(self._agent)
        self._table = BudgetTable() if project.admin is None else project.admin.budget
        self._listener = events.OneAtATime(wish.listener)
        self._session_id = wish.resume or new_session_id()
        # Threat: a plane from another party contains prompts that speak for the operator.
        is_accepted = project.layout.kind is PlaneKind.PROJECT or project.root.accepted
        self._contracts = load_contracts(project.layout.ho1 / "contracts" if is_accepted else None)
        held.enter_context(session_lock(project.layout, project.environment, self._session_id))
        if self._before is not None:
            # Read again under the lock: another process may have added turns.
            self._before = require_session(project, self._session_id)
        self._router = self._open_router()
        self._ho1m = held.enter_context(closing(open_ledger(project, LedgerName.HO1M)))

    def session(self) -> Session:
        project, held, before = self._project, self._held, self._before
        ho2m = held.enter_context(closing(open_ledger(project, LedgerName.HO2M)))
        child = held.enter_context(self._open_agent(self._agent))
        charter = child.charter
        office = Office(
            scribe=Scribe(self._session_id, self._agent),
            ledger=ho2m,
            ledgers=sessions_of(project),
            contracts=self._contracts,
            budget=self._budget(),
            listener=self._listener,
            numbers=itertools.count(1 if before is None else before.orders_used + 1),
        )
        conversation, notices = self._restored(office)
        turns = 0 if before is None else before.turns_used
        supervisor = Supervisor(charter, child.executor, office, conversation, turns)
        facts = self._facts(charter, office.budget)
        if project.admin is not None:
            # Also in governance: the gate concerns the whole plane.
            record_gate(project, self._session_id, self._agent)
        close, notices = held.pop_all().close, (*project.notices, *notices)
        return Session(supervisor, self._open_descendant, close, facts, notices)

    def _open_router(self) -> Gateway:
        provider = self._wish.provider
        if provider is None:
            settings = chosen_model(self._project, self._wish.model)
            provider = open_provider(settings, self._wish.variables, read_script=read_script)
        self._held.callback(provider.close)
        return Gateway(provider, wait_or_cancel, random.random)

    def _budget(self) -> Budget:
        budget = session_budget(self._table.session_tokens, self._table.mode)
        if self._before is not None:
            ledgers = sessions_of(self._project)
            budget.settle(reserved=0, used=tokens_charged(ledgers, self._session_id))
        return budget

    def _restored(self, office: Office) -> tuple[Conversation, tuple[str, ...]]:
        before = self._before
        if before is None:
            return Conversation(), ()
        for turn in before.unfinished:
            # The process was killed during this turn: record its end.
            said = "the process ended before the turn did"
            ended = events.TurnEnd("", events.TurnOutcome.ERROR, reason=said)
            office.append(office.scribe.turn_recorded(turn.number, turn.user_message, ended))
        # Read again, with the turns that were recorded just now.
        session = require_session(self._project, self._session_id)
        conversation, notices = restore(office.ledgers, session)
        if before.unfinished:
            many = len(before.unfinished)
            count = "1 turn" if many == 1 else f"{many} turns"
            notices += (f"{count} of this session had not ended",)
        return conversation, notices

    def _facts(self, charter: Charter, budget: Budget) -> dict[str, Json]:
        project, router, table = self._project, self._router, self._table
        return {
            "agent": self._agent,
            "agents": [agent.name for agent in self._chain],
            "profile": self._record.agent.profile,
            "model": {"provider": router.name, "name": router.model},
            "tools_allowed": list(charter.tools_allowed),
            "dual_gate": project.gate.as_json(),
            "policy_digest": self._policy.digest,
            "config_digest": "" if project.admin is None else project.admin.digest,
            "classify": charter.classify,
            "budget": {"session_tokens": table.session_tokens, "mode": table.mode},
            "resumed": self._before is not None,
            "turns_before": 0 if self._before is None else self._before.turns_used,
            "tokens_before": min(budget.account.spent, limits.json_integer_max),
        }

    @contextmanager
    def _open_agent(self, agent: str) -> Generator[ChildAgent]:
        project = self._project
        approver = events.HeardApprover(self._wish.approver, self._listener)
        runtime = open_runtime(project, agent=agent, approver=approver, session_id=self._session_id)
        with runtime:
            yield ChildAgent(self._charter(agent), self._executor(agent, runtime))

    @contextmanager
    def _open_descendant(self, agent: str) -> Generator[ChildAgent]:
        # Threat: an agent beside or above this one is judged by another chain, and could do
        # on its behalf what this one may not.
        names = [record.agent.name for record in self._project.agents.lineage(agent)]
        if self._agent not in names[1:]:
            raise UsageError(
                f"the agent {quote(agent)} is not a descendant of {quote(self._agent)}",
                hint=f"paddock agent create {agent} --parent {self._agent}",
            )
        with self._open_agent(agent) as child:
            yield child

    def _executor(self, agent: str, runtime: Runtime) -> Executor:
        model = ModelDoor(
            self._router,
            self._ho1m,
            Scribe(self._session_id, agent),
            time.monotonic_ns,
            self._project.policy.settings.ledger.keep_model_contents,
            self._listener,
        )
        schemas = {
            tool.name: ToolSchema(tool.name, tool.spec.description, tool.binder.schema)
            for tool in runtime.tools.list_all()
        }
        return Executor(
            calls=runtime,
            schemas=schemas,
            model=model,
            contracts=self._contracts,
            listener=self._listener,
            timer=self._wish.timer,
        )

    def _charter(self, agent: str) -> Charter:
        project, table = self._project, self._table
        allowed = tools_allowed(project, agent)
        config = project.admin
        if config is None or agent != ADMIN_AGENT:
            return Charter(
                agent,
                DEFAULT_SYSTEM_PROMPT,
                allowed,
                turn_tokens=table.turn_tokens,
                order_tokens=table.order_tokens,
            )
        facts: dict[str, Json] = {
            "tier": config.tier,
            "plane": project.layout.root.name,
            "agent_id": config.agent_id,
            "agent_class": config.agent_class,
            "framework_id": config.framework_id,
            "development_tools": project.gate.is_open,
            **skill_facts(project),
        }
        return Charter(
            agent,
            config.system_prompt,
            allowed,
            classify=config.classify,
            attention=config.attention,
            facts=facts,
            turn_tokens=table.turn_tokens,
            order_tokens=table.order_tokens,
        )


def _agent_of(project: Project, wish: SessionWish, before: RecordedSession | None) -> str:
    if before is None:
        return project.agent_named(wish.agent)
    if wish.agent not in {None, before.agent}:
        raise UsageError(
            f"the session {before.session_id} is one of the agent {quote(before.agent)}",
            where="--agent",
        )
    return before.agent


def open_session_at(
    path: str | os.PathLike[str] | None = None,
    *,
    agent: str | None = None,
    model: str | None = None,
    approver: Approver | Callable[[ApprovalRequest], bool] | None = None,
    listener: events.TurnListener | None = None,
    provider: Provider | None = None,
) -> Session:
    """Open a session on the project at `path`; `handle_turn` and `delegate` give it work.

        with paddock.open_session("path/to/project", model="anthropic:MODEL") as session:
            print(session.handle_turn("what is in README.md?").response)
            order = session.delegate("reviewer", "look for mistakes", budget=50_000)

    `path`, `agent`, `model` and `approver` are as in `open` and `paddock run`. `provider` replaces
    the model, and is closed with the session; `listener` gets the session's events.

    Raises: UsageError, ConfigError, HostError, as `open` does.
    """
    environment = process_environment()
    wish = SessionWish(
        agent=agent,
        model=model,
        approver=approver_of(approver),
        listener=listener or events.SilentListener(),
        variables=process_variables(),
        provider=provider,
    )
    return open_session(open_given(path, environment), wish)


# Python's errors then show the name that was called: `paddock.open_session`.
open_session_at.__qualname__ = "open_session"

# Cassettes and scripts are strict: answers left over when the work is done are an error.

_ON_A_WIRE = frozenset({"anthropic", "openai"})


class PreparedCassette(Struct, frozen=True):
    provider: Provider
    answers: "ScriptedModel | PlayingTransport"
    """Checks that each request is the one its answer was made for, and that no answer is left."""


def open_recorded(
    project: Project, model: str | None, variables: Mapping[str, str], file: Path
) -> Provider:
    settings = _settings(project, model)
    from paddock.providers.transport import (  # noqa: PLC0415 - the HTTP client is an extra
        RecordingTransport,
        Taped,
    )

    tape = _new_tape(file)

    def write(line: str) -> None:
        # Continue after a short write: the file is not buffered.
        left = line.encode("utf-8", "surrogatepass")
        while left:
            left = left[tape.write(left) :]

    try:
        inner = open_provider(
            settings, variables, transport_for=lambda key: RecordingTransport(key, write)
        )
    except BaseException:
        tape.close()
        file.unlink()
        raise
    return Taped(inner, inner.name, tape.close)


def open_played(
    project: Project, model: str | None, variables: Mapping[str, str], file: Path
) -> PreparedCassette:
    settings = _settings(project, model)
    from paddock.providers.transport import (  # noqa: PLC0415 - the HTTP client is an extra
        PlayingTransport,
        Taped,
        parse_cassette,
    )

    content = read_file(file, limits.cassette_bytes_max)
    if content is None:
        raise UsageError(f"cassette {quote(str(file))} not found")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        said = f"the cassette is not UTF-8 at byte {error.start}"
        raise ConfigError(said, where=str(file)) from None
    player = PlayingTransport(parse_cassette(text, str(file)))
    keyless, key = without_key(settings)
    addresses = {name: text for name, text in variables.items() if name.endswith("_BASE_URL")}
    inner = open_provider(keyless, {**addresses, **key}, transport_for=lambda _: player)
    return PreparedCassette(Taped(inner, f"played {inner.name}"), player)


def find_script(
    project: Project, model: str | None, variables: Mapping[str, str]
) -> PreparedCassette | None:
    settings = chosen_model(project, model)
    if settings.provider != "scripted":
        return None
    script = open_provider(settings, variables, read_script=read_script)
    return PreparedCassette(script, cast("ScriptedModel", script))


def _settings(project: Project, model: str | None) -> ProviderSettings:
    settings = chosen_model(project, model)
    if settings.provider not in _ON_A_WIRE:
        raise UsageError(
            f"the model {quote(settings.provider)} is not reached over HTTP",
            where="--model",
            hint="a cassette holds exchanges with anthropic or openai",
        )
    if find_spec("httpx2") is None:
        raise missing_sdk(settings.provider)
    return settings


def _new_tape(file: Path) -> FileIO:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.fdopen(os.open(file, flags, 0o600), "wb", buffering=0)
    except FileExistsError:
        said = f"{quote(str(file))} already exists"
        raise UsageError(said, hint="name a new file") from None
    except OSError as error:
        raise HostError(f"{quote(str(file))} cannot be created: {error.strerror}") from None
