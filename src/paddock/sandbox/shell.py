"""Run one agent's shell lines: plan each line, run it with the backend that works, report.

prepare  plan the line and choose its backend; nothing runs
run      with the stage backend: run, judge, and commit as one set of changes;
         with Landlock, or unconfined: run on the workspace itself
stage    run and hold the changes for an approval; then `commit`
"""

import os
import threading
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    HostError,
    InvalidArgumentsError,
    SandboxUnavailableError,
)
from paddock.policy.decide import names_line, shell_for
from paddock.policy.settings import covers
from paddock.sandbox.backends import Attempt, Backends, attempt_here
from paddock.sandbox.canary import STAGE, gaps_over
from paddock.sandbox.changes.commit import CommitPlace
from paddock.sandbox.changes.differences import CommandBaseline
from paddock.sandbox.changes.judgement import JudgeContext
from paddock.sandbox.connections import NetworkServices
from paddock.sandbox.conversation import Observed
from paddock.sandbox.git.tracked import find_known_indexes
from paddock.sandbox.git_layer import GitDirectoryOpener, TrackedView
from paddock.sandbox.hidden import Moments, NameIndex
from paddock.sandbox.host.host_facts import HostFacts, directories_above
from paddock.sandbox.inside.protocol import ENDED_IN
from paddock.sandbox.landlock import LANDLOCK, enforced_by_landlock, run_in_place
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.plan import (
    SH,
    Closing,
    ReadJudge,
    WriteJudge,
    compile_plan,
    contained,
    find_interpreter,
    plan_digest,
)
from paddock.sandbox.sessions.client_session import ClientSession
from paddock.sandbox.sessions.process import LiveView, Process
from paddock.sandbox.sessions.sessions import PROGRAM, Sessions
from paddock.sandbox.sessions.shared_state import PREAMBLE_CHARS_MAX, SharedSpace
from paddock.sandbox.staged import (
    HeldCommand,
    PolicyExplainer,
    Ran,
    StagedCommand,
    build_outcome,
    host_failures,
    request_of,
    with_committed,
)
from paddock.sandbox.staging_area import Caches, lay_over
from paddock.sandbox.streams import Spooling, Streams
from paddock.sandbox.values import (
    RUNNING,
    UNWATCHED,
    CommandRequest,
    CommandWatch,
    ConfinementError,
    Ending,
    PreparedLine,
    Progress,
    SandboxPlan,
    ShellLine,
    ShellOutcome,
    ShownFile,
    WaitingChanges,
    line_network,
)
from paddock.storage.atomic import host_error
from paddock.storage.locks import Late
from paddock.text.show import quote
from paddock.values.decisions import Action, AgentChain

if TYPE_CHECKING:
    from paddock.network.decisions import NetworkTerms, Witness

_RECORD_DIRECTORY: Final = f"trap 'command pwd -P >|{os.fsdecode(ENDED_IN)} 2>/dev/null' EXIT\n"
"""Put before a shell line: records the working directory when the shell ends."""
_ATTEMPTS_MAX: Final = 3
_BACKGROUND_S: Final = 86_400.0
"""The time limit of a command in the background."""
_DIFF_ASKS: Final = 'a person has to approve the changes of a command ([shell] approve = "diff")'
_ALONE: Final = (
    "policy has a rule for this command only, or for a literal address: so it has a network of its "
    "own, without the ports of background commands"
)
_NOT_KEPT: Final = (
    "the session is as it was before this command: its shell saved no state, because it was "
    "replaced (exec) or set another EXIT trap, or its functions and variables have more than "
    f"{PREAMBLE_CHARS_MAX} characters, or its functions are not UTF-8"
)


class ShellContext(Struct, frozen=True):
    chain: AgentChain
    place: CommitPlace
    facts: Callable[[], HostFacts]
    staging: Path
    progress: Progress | None = None
    on_directory: Callable[[str], None] | None = None
    attempt: Attempt | None = None
    client: ClientSession | None = None
    """Only for a client's command, the only one of this shell."""
    network: NetworkServices | None = None
    """Network access of commands that policy lets connect; None: no network."""


class SandboxShell:
    def __init__(self, context: ShellContext) -> None:
        self._context = context
        self._launcher = Launcher(
            context.staging, None if context.network is None else context.network.egress
        )
        self._backends = Backends(context.attempt or attempt_here(self._launcher, context.staging))
        self._plan: SandboxPlan | None = None
        self._lock = threading.Lock()
        policy, chain = context.place.policy, context.chain
        self._read_index = NameIndex(ReadJudge(policy, chain))
        self._write_index = NameIndex(WriteJudge(policy, chain))
        self._moments = Late(lambda: Moments(context.staging))
        self._tracked = TrackedView()
        self._git = GitDirectoryOpener(self._read_index.judge)
        self._explainer = PolicyExplainer(policy)
        self.sessions = Sessions(self)

    def close(self) -> None:
        self.sessions.close()
        self._launcher.close()
        if self._moments.made is not None:
            self._moments.made.close()

    def prepare(self, line: ShellLine) -> PreparedLine:
        """Plan one line; runs nothing but the backend checks.

        A dry run has no host network and cannot write outside. Raises: SandboxUnavailableError
        without a required backend, or without a stage for a dry run or `commit = "none"`;
        InvalidArgumentsError for a variable that no call may set; ConfigError.
        """
        self._require_named(line)
        if self._context.client is not None and self._context.client.is_background:
            line = replace(line, timeout_s=int(_BACKGROUND_S))
        # A connection of a session belongs to no single command: rules for commands do not apply.
        plan = self._plan_of(None if line.session else line.text)
        with host_failures():
            enforced = self._backends.choose(plan.enforcement)
        if enforced.backend != STAGE:
            if line.is_dry_run or line.session or plan.commit == "none":
                what = "a session" if line.session else 'a command under commit = "none"'
                what = "a dry run" if line.is_dry_run else what
                raise SandboxUnavailableError(
                    f"{what} needs the backend 'stage', which does not work on this host",
                    hint="run paddock doctor for cause and remedy",
                )
            # Without mounts the tools would use the user's own cache directories.
            plan = replace(plan, caches="")
        else:
            gaps = gaps_over(self._context.place.workspace.root_fd)
            enforced = replace(enforced, gaps=(*enforced.gaps, *gaps))
        if plan.commit == "none":
            plan = replace(contained(plan), network=plan.network)
        plan = contained(plan) if line.is_dry_run else plan
        is_open = plan.network == "host" and not names_line(
            self._context.place.policy, self._context.chain, Action("shell", "run", line.text)
        )
        interpreter = find_interpreter(plan)
        if line.session and interpreter == SH:
            raise SandboxUnavailableError(
                "a session needs bash, which commands cannot find here",
                hint="call without a session, or install bash",
            )
        return PreparedLine(line, plan, enforced, interpreter, plan_digest(plan), is_open)

    def asks_about_diff(self, prepared: PreparedLine) -> bool:
        # Threat: effects outside the workspace happen before the question, and are in no diff:
        # then the command itself needs the approval.
        plan = prepared.plan
        approve = shell_for(self._context.place.policy, self._context.chain).approve
        is_contained = plan.network != "host" and not plan.writable
        lands = prepared.enforced.backend == STAGE and plan.commit != "none"
        return approve == "diff" and lands and is_contained

    def keep(self, content: bytes) -> str:
        """Keep a long text; return its digest. Raises: StorageFullError, HostError."""
        return self._context.place.history.keep_for_ledger(content)

    def run(self, prepared: PreparedLine, watch: CommandWatch = UNWATCHED) -> ShellOutcome:
        observed = self._observed(prepared, watch)
        if prepared.enforced.backend != STAGE:
            return self._run_in_place(prepared, observed)
        command, streams, notes = self._run_staged(prepared, observed)
        ending, client = command.end.ending, self._context.client
        is_stopped = client is not None and client.is_stopped
        if ending is Ending.CANCELLED and not is_stopped:
            with closing(command), host_failures():
                return self._outcome_of(prepared, command, streams)
        outcome = self.conclude(prepared, command, streams)
        if client is not None:
            # One that had to be killed when its client stopped it has ended like any other.
            ending = Ending.EXITED if ending is Ending.CANCELLED else ending
            hints = (*outcome.hints, *client.hints)
            outcome = replace(outcome, ending=ending, hints=hints)
        return replace(outcome, notes=(*outcome.notes, *notes))

    def conclude(
        self, prepared: PreparedLine, command: StagedCommand, streams: Streams
    ) -> ShellOutcome:
        """Commit the changes that policy allows, or hold them, and release the command."""
        with ExitStack() as held:
            held.callback(command.close)
            with host_failures():
                outcome = self._outcome_of(prepared, command, streams)
                if prepared.line.is_dry_run:
                    shown, refused = command.show(command.settle(grants_asks=False))
                    outcome = replace(outcome, diff=shown.text, refused=refused)
                    return self._explainer.amend(outcome, prepared, command.end)
                if prepared.plan.commit == "none":
                    outcome = replace(outcome, discarded=command.count)
                    return self._explainer.amend(outcome, prepared, command.end)
                # Threat: with `asks`, a change that a rule asks about counts as granted, so it has
                # to wait, alone or beside others.
                asks = prepared.is_confined and self.asks_about_diff(prepared)
                settled = command.settle(grants_asks=asks)
                why = _DIFF_ASKS if asks else ""
                if prepared.is_confined and not asks:
                    policy, chain = self._context.place.policy, self._context.chain
                    why = command.find_excess(settled, shell_for(policy, chain).confine_max)
                if why and any(each.lands for each in settled):
                    kept = HeldCommand(prepared, command, outcome, self._explainer)
                    count = sum(each.lands for each in settled)
                    held.pop_all()
                    return replace(outcome, waiting=WaitingChanges(kept, count, why))
            outcome = with_committed(outcome, command.commit(settled))
            return self._explainer.amend(outcome, prepared, command.end)

    def stage(self, prepared: PreparedLine, watch: CommandWatch = UNWATCHED) -> HeldCommand:
        observed = self._observed(prepared, watch)
        command, streams, _ = self._run_staged(prepared, observed)
        try:
            with host_failures():
                outcome = self._outcome_of(prepared, command, streams)
                return HeldCommand(prepared, command, outcome, self._explainer)
        except BaseException:
            command.close()
            raise

    def _require_named(self, line: ShellLine) -> None:
        """Threat: a variable that changes which programs an allowed command runs."""
        if line.session == PROGRAM:
            return  # The program set them; they are judged with its line.
        patterns = ()
        if line.env:
            patterns = shell_for(self._context.place.policy, self._context.chain).env
        for name, _ in line.env:
            if not any(covers(pattern, name) for pattern in patterns):
                raise InvalidArgumentsError(
                    f"env: policy does not let calls set the variable {quote(name)}",
                    where="env",
                    hint='the user can allow names in paddock.toml: [shell] env = ["NAME"]',
                )

    def _outcome_of(
        self, prepared: PreparedLine, command: StagedCommand, streams: Streams
    ) -> ShellOutcome:
        shown = command.shown
        notes = self._explainer.notes(prepared, shown)
        outcome = build_outcome(prepared, command.end, streams, notes)
        return replace(outcome, shown_from_git=shown.differing)

    def _observed(self, prepared: PreparedLine, watch: CommandWatch) -> Observed:
        has_own = prepared.plan.network == "policy" and not prepared.line.session
        return Observed(
            progress=self._context.progress,
            cancel=watch.cancel,
            on_output=watch.on_output,
            network=self._terms(prepared.line.text, watch.network) if has_own else None,
            witness=watch.network,
        )

    def _terms(self, line: str | None, witness: "Witness | None") -> "NetworkTerms | None":
        context = self._context
        if context.network is None or witness is None:
            return None
        return context.network.terms(context.place.policy, context.chain, line, witness)

    def share(
        self, prepared: PreparedLine, witness: "Witness | None", joined: tuple[int, ...] = ()
    ) -> SharedSpace:
        terms = self._terms(None, witness) if prepared.plan.network == "policy" else None
        return self._launcher.open_session(prepared.plan, terms, joined)

    @contextmanager
    def _met(
        self, prepared: PreparedLine, witness: "Witness | None"
    ) -> Generator[SharedSpace | None]:
        """Share the network of a client's background commands. Raises: HostError."""
        client = self._context.client
        if client is None or prepared.line.is_dry_run:
            yield None
            return
        with ExitStack() as held:
            with client.meet() as joined:
                space = None
                if (joined or client.is_background) and self._may_share(prepared, client):
                    space = self.share(prepared, witness, joined)
                    held.callback(space.close)
                client.offer(() if space is None else space.spaces[:2])
                held.callback(client.close)
            yield space

    def _may_share(self, prepared: PreparedLine, client: ClientSession) -> bool:
        plan, line = prepared.plan, prepared.line.text
        policy, chain = self._context.place.policy, self._context.chain
        if plan.network not in ("loopback", "policy"):
            return False
        # Threat: what a rule gives to one command, or takes from it, counts for others as well.
        is_narrow = plan.network != line_network(policy, chain, None)
        if plan.network == "policy" and not is_narrow:
            from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few commands connect

            is_narrow = NetworkJudge(policy, chain, line).depends_on_line
        # Two processes cannot listen at the same address, which synthetic ones never are.
        if is_narrow or plan.literals:
            client.hints.append(_ALONE)
            return False
        return True

    def start(self, prepared: PreparedLine, watch: CommandWatch = UNWATCHED) -> Process:
        """Start a line that keeps running, in its session. Raises: as `run`."""
        observed = Observed(on_output=watch.on_output, witness=watch.network)
        request = replace(request_of(prepared), timeout_s=_BACKGROUND_S)
        with host_failures():
            return self.sessions.start(prepared, request, observed)

    def _run_staged(
        self, prepared: PreparedLine, observed: Observed
    ) -> tuple[StagedCommand, Streams, tuple[str, ...]]:
        """Run the line; return also the notes about its session."""
        request = request_of(prepared)
        if not prepared.line.session:
            with host_failures(), self._met(prepared, observed.witness) as met:
                return *self._run_spooled(prepared, request, observed, met), ()
        with host_failures(), self.sessions.turn(prepared, observed.witness) as (session, space):
            request = replace(request, script=session.snapshot.script())
            is_dry = prepared.line.is_dry_run
            ran = self._run_spooled(prepared, request, observed, None if is_dry else space)
            is_kept = is_dry or session.take(ran[0].end, request)
            return *ran, () if is_kept else (_NOT_KEPT,)

    def _run_spooled(
        self,
        prepared: PreparedLine,
        request: CommandRequest,
        observed: Observed,
        space: SharedSpace | None,
    ) -> tuple[StagedCommand, Streams]:
        context = self._context
        with host_failures(), closing(self.open_spooling()) as spooling:
            observed = replace(observed, spools=spooling.spools)
            on_opened = None
            if context.client is not None and context.client.is_background:
                on_opened = context.client.show
                observed = replace(observed, on_begun=context.client.begin)
            if context.on_directory is not None:
                *start, line = request.argv[:3]
                argv = (*start, _RECORD_DIRECTORY + line, *request.argv[3:])
                request = replace(request, argv=argv)
            command = self.run_in_stage(request, observed, space, on_opened)
            try:
                if context.on_directory is not None:
                    context.on_directory(command.end.directory)
                return command, spooling.streams(command.end)
            except BaseException:
                command.close()
                raise

    def open_spooling(self) -> Spooling:
        return Spooling(self._context.staging, self._context.place.history)

    def _run_in_place(self, prepared: PreparedLine, observed: Observed) -> ShellOutcome:
        context = self._context
        if context.client is not None:
            # It has the host's network.
            context.client.release()
        with host_failures(), closing(self.open_spooling()) as spooling:
            observed = replace(observed, spools=spooling.spools)
            fd, enforced, closed = context.place.workspace.root_fd, prepared.enforced, None
            if enforced.backend == LANDLOCK:
                enforced = enforced_by_landlock(prepared.plan)
                closed = self._read_index, self._write_index
            end = run_in_place(request_of(prepared), fd, closed, observed)
            streams = spooling.streams(end)
            outcome = build_outcome(prepared, end, streams, self._explainer.notes(prepared))
        outcome = replace(outcome, is_staged=False, enforced=enforced)
        return self._explainer.amend(outcome, prepared, end)

    def run_in_stage(
        self,
        request: CommandRequest,
        observed: Observed,
        space: SharedSpace | None = None,
        on_opened: Callable[[LiveView], None] | None = None,
    ) -> StagedCommand:
        """Run one command in a separate stage, and find its changes.

        Other changes to the workspace since the start are conflicts, except those known to the view
        that `on_opened` gets. Raises: SandboxUnavailableError, HostError.
        """
        caches = request.plan.caches
        with Caches(Path(caches).parent).in_use() if caches else nullcontext():
            for _ in range(_ATTEMPTS_MAX):
                command = self._run_once(request, observed, space, on_opened)
                if command is not None:
                    return command
        raise HostError("git's index kept changing before the command began", hint="run it again")

    def _run_once(
        self,
        request: CommandRequest,
        observed: Observed,
        space: SharedSpace | None,
        on_opened: Callable[[LiveView], None] | None,
    ) -> StagedCommand | None:
        """Return None if it was not started because the files to show have changed."""
        place, launcher = self._context.place, self._launcher
        root_fd = place.workspace.root_fd
        survey = self._read_index.survey(root_fd)
        self.sessions.hide(survey.closed)
        if survey.closed != request.plan.hidden:
            request = replace(request, plan=replace(request.plan, hidden=survey.closed))
        plan, closed, directories = request.plan, frozenset(survey.closed), survey.directories
        with ExitStack() as undo:
            git = self._git.open(plan)
            if git is not None:
                undo.callback(git.close)
                closed, directories = closed | git.closed, {**directories, **git.directories}
            view = self._tracked.look(launcher, plan, root_fd, git)
            with host_error("cannot inspect the directories of a workspace"):
                names, laid = lay_over(request.laid, survey.closed, root_fd)
            over = replace(plan, hidden=(*plan.hidden, *names)) if names else plan
            stage = launcher.open_stage(over, root_fd, (*view.files.values(), *laid), git, space)
            undo.callback(stage.close)
            with host_error("cannot use the staging area", str(self._context.staging)):
                started_ns = self._moments.get().now(root_fd)
            if not view.tracked.is_current():
                return None
            baseline = CommandBaseline(started_ns, closed, directories, view.files)
            judging = self._judge_context(plan, survey.closed, view.files)
            indexes = find_known_indexes(root_fd, survey.directories)
            if git is not None:
                indexes |= git.known_index()
            for each in indexes.values():
                undo.callback(each.close)
            landed = self._note_landed
            ran = Ran(request, baseline, RUNNING, judging, stage, git, indexes, landed)
            live = None
            if on_opened is not None:
                is_closed = partial(self._is_closed, closed | view.files.keys())
                live = LiveView(stage, place, ran, is_closed)
                on_opened(live)
            try:
                end = launcher.run(request, stage, observed)
            except ConfinementError:
                if not stage.was_ready:
                    raise
                # A directory that it needs was removed during its creation, such as cleared caches.
                return None
            if live is not None:
                live.drop_applied()
                ran = replace(ran, ground=live.ground(baseline))
            command = StagedCommand(place, replace(ran, end=end))
            undo.pop_all()
            return command

    def _note_landed(self, paths: Iterable[str]) -> None:
        listed = list(paths)
        self.sessions.changed(listed)
        if self._context.client is not None:
            root = self._context.place.workspace.root
            self._context.client.tell(f"{root}/{path}" for path in listed)

    def _judge_context(
        self, plan: SandboxPlan, unseen: tuple[str, ...], files: Mapping[str, ShownFile]
    ) -> JudgeContext:
        return JudgeContext(
            self._context.place.policy,
            self._context.chain,
            plan.git,
            plan.workspace,
            readable=(*plan.readable, *plan.writable),
            shown=frozenset(files),
            stand_ins=frozenset(path for path, file in files.items() if not file.is_faithful),
            commit=plan.commit,
            unseen=unseen,
            as_root=os.geteuid() == 0,
        )

    def _is_closed(self, closed: frozenset[str], path: str) -> bool:
        way = (*directories_above(path), path)
        judge = self._read_index.judge.judge
        return not closed.isdisjoint(way) or any(
            judge(each, each != path) is Closing.SEALED for each in way
        )

    def _plan_of(self, line: str | None) -> SandboxPlan:
        """Return the plan for a line, which decides only the network."""
        context = self._context
        policy, chain, services = context.place.policy, context.chain, context.network
        with self._lock:
            if self._plan is None:
                self._plan = compile_plan(policy, chain, context.facts()).plan
            network = line_network(policy, chain, line)
            if network == "policy" and services is not None:
                return services.placed(self._plan, policy, chain, line)
            return replace(self._plan, network="loopback" if network == "policy" else network)
