"""The shell of one agent: a line is planned, carried out by the backend that works here, and told.

prepare  the plan of this very line, and who will hold it; nothing runs
run      in a stage: run, judged, committed as one set of changes;
         under Landlock, or held by nobody: run on the workspace itself
stage    run and held back, for somebody to be asked about what it changed; then `commit`
"""

import os
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import (
    ApprovalUnavailableError,
    HostError,
    InvalidArgumentsError,
    SandboxUnavailableError,
)
from paddock.pattern import lazy_pattern
from paddock.policy.decide import names_line, shell_for
from paddock.policy.settings import ConfineMax, covers
from paddock.sandbox.area import lay_over
from paddock.sandbox.backends import Attempt, Backends, attempt_here
from paddock.sandbox.caches import Caches
from paddock.sandbox.canary import STAGE, gaps_over
from paddock.sandbox.changes.commit import (
    CommitPlace,
    Committed,
    all_refused,
    commit_settled,
    describe_conflict,
    find_above,
    phases_of,
)
from paddock.sandbox.changes.differences import (
    CommandDifferences,
    CommandGround,
    OpenLayers,
    find_differences,
)
from paddock.sandbox.changes.judging import Bench
from paddock.sandbox.changes.parking import ShownDiff, park_set, show_settled
from paddock.sandbox.changes.settling import (
    Settled,
    find_excess,
    refusals_of,
    refused_besides,
    settle,
)
from paddock.sandbox.changes.upper import Look, read_changes
from paddock.sandbox.conversation import ConfinementError, NetworkGround, Observed
from paddock.sandbox.git_layer import GitRoom, OpenedGit, ShownNames, TrackedView, differing
from paddock.sandbox.hidden import Moments, NameIndex
from paddock.sandbox.host.host_facts import HostFacts
from paddock.sandbox.inside.protocol import ENDED_IN
from paddock.sandbox.landlock import LANDLOCK, run_landlocked, run_unheld
from paddock.sandbox.launcher import Launcher, StageDirectories
from paddock.sandbox.plan import (
    ReadJudge,
    WriteJudge,
    compile_plan,
    contained,
    find_interpreter,
    plan_digest,
)
from paddock.sandbox.streams import OUTPUT_BYTES, Spooling, Streams
from paddock.sandbox.telling import (
    UNSIGNED,
    FenceWords,
    question_heading,
    tell,
    with_kept,
    with_shown,
)
from paddock.sandbox.values import (
    UNWATCHED,
    CommandEnd,
    CommandRequest,
    CommandWatch,
    Ending,
    PreparedLine,
    Progress,
    RefusedChange,
    SandboxPlan,
    ShellLine,
    ShellOutcome,
    WaitingChanges,
    line_network,
)
from paddock.storage.atomic import host_error
from paddock.storage.locks import Late
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.decisions import Action, AgentChain
from paddock.values.entries import digest_of
from paddock.workspace.workspace import Beside

if TYPE_CHECKING:
    pass

_SAYS_WHERE: Final = f"trap 'command pwd -P >|{os.fsdecode(ENDED_IN)} 2>/dev/null' EXIT\n"
"""Before a line of shell: when that shell ends, it leaves behind where."""
_OVER: Final = "the command changed too much"
_LOOKS_MAX: Final = 3
_NOT_AS_SHOWN: Final = "the changes are not those that were shown any more"
_GIT: Final = lazy_pattern(r"\bgit\b")


class SandboxGround(Struct, frozen=True):
    chain: AgentChain
    place: CommitPlace
    facts: Callable[[], HostFacts]
    staging: Path
    progress: Progress | None = None
    on_directory: Callable[[str], None] | None = None
    attempt: Attempt | None = None
    network: NetworkGround | None = None
    """For commands that policy lets connect; None: they cannot."""


class _Ran(Struct, frozen=True):
    request: CommandRequest
    ground: CommandGround
    end: CommandEnd
    bench: Bench
    """Without repositories, which are found for each set."""
    stage: StageDirectories
    git: OpenedGit | None


class StagedCommand:
    """Until `commit` the workspace is untouched."""

    def __init__(self, place: CommitPlace, ran: _Ran) -> None:
        """Find what changed; take stage and git directory over. Raises: HostError."""
        self._ran = ran
        self._place = place
        self._beside: Beside | None = None
        self._refused: tuple[RefusedChange, ...] = ()
        self._index_problem = ""
        self.end = ran.end
        self._standing: Mapping[str, Look] = {}
        with ExitStack() as held:
            upper_fd = ran.stage.open_upper()
            held.callback(os.close, upper_fd)
            if ran.git is not None:
                self._join(ran.git, upper_fd, held)
            tree = self._place.workspace
            self._layers: OpenLayers | None = OpenLayers(upper_fd, tree.root_fd, tree.resolution)
            self._differences = self._look(self._layers)
            self._held = held.pop_all()

    def close(self) -> None:
        if self._layers is not None:
            self._layers = None
            self._held.close()
            if self._ran.git is not None:
                self._ran.git.close()
        _close_stage(self._ran.stage)

    def _join(self, git: OpenedGit, upper_fd: int, held: ExitStack) -> None:
        with host_error("the changes of a command cannot be read"):
            root_fd = self._place.workspace.root_fd
            is_joined, self._refused = git.join(self._ran.stage, upper_fd, root_fd)
            self._index_problem = git.land_index(upper_fd) if is_joined else ""
        if is_joined:
            self._beside = git.beside
            workspace = held.enter_context(self._place.workspace.with_beside(git.beside))
            self._place = replace(self._place, workspace=workspace)

    def _look(self, layers: OpenLayers) -> CommandDifferences:
        layer = read_changes(layers.upper_fd, layers.lower_fd, self._beside)
        self._standing = layer.standing
        found = find_differences(layer, layers, self._ran.ground)
        if self._ran.git is not None and self._beside is not None:
            found = self._ran.git.settle(found, self._ran.ground.started_ns, self._index_problem)
        return replace(found, root_mode=self._ran.stage.new_mode)

    @property
    def shown(self) -> ShownNames:
        return differing(self._ran.ground.shown, self._layer())

    @property
    def count(self) -> int:
        return len(self._differences.found)

    def look_again(self) -> None:
        self._differences = self._look(self._layer())

    def show(self, settled: tuple[Settled, ...]) -> tuple[ShownDiff, tuple[RefusedChange, ...]]:
        hidden = self._ran.request.plan.hidden
        return show_settled(settled, self._layer(), hidden), self._refusals(settled)

    def settle(self, *, grants_asks: bool) -> tuple[Settled, ...]:
        bench = self._ran.bench
        if self._ran.git is not None and self._beside is not None:
            bench = replace(bench, git_outside=self._ran.git.outside)
        return settle(self._differences, self._layer(), bench, grants_asks=grants_asks)

    def find_excess(self, settled: tuple[Settled, ...], most: ConfineMax) -> str:
        return find_excess(settled, self._layer(), self._place.policy.guards, most)

    def commit(self, settled: tuple[Settled, ...]) -> Committed:
        """Bring all that is allowed into the workspace, or nothing; raises as `commit_settled`."""
        refused = self._refusals(settled)
        if not self._differences.is_whole:
            return Committed(refused=all_refused(settled, refused, _OVER), settled=settled)
        conflict = describe_conflict(self._differences, settled)
        committed = Committed(conflict=conflict)
        if not conflict:
            above = find_above(settled, self._layer(), self._standing)
            git = self._ran.bench.git
            committed = commit_settled(settled, self._layer(), self._place, git, above)
        if committed.conflict:
            refused = all_refused(settled, refused, committed.conflict)
        return replace(committed, refused=refused, settled=settled)

    def park(self, settled: tuple[Settled, ...], name: str) -> Json:
        """Return as data what `commit` would bring and report. Raises: ApprovalUnavailableError."""
        conflict = describe_conflict(self._differences, settled)
        if conflict or not self._differences.is_whole:
            raise ApprovalUnavailableError(
                conflict or _OVER,
                hint="run it again" if conflict else "split the command into smaller ones",
            )
        phases = phases_of(settled, self._layer(), self._place.policy)
        above = find_above(settled, self._layer(), self._standing)
        store = self._place.history.store
        return park_set(phases, store, name, above, self._refusals(settled))

    def give_up(self) -> Committed:
        """Keep nothing: it is not what was granted. Raises: HostError."""
        settled = self.settle(grants_asks=True)
        conflict = describe_conflict(self._differences, settled) or _NOT_AS_SHOWN
        refused = all_refused(settled, self._refusals(settled), conflict)
        return Committed(conflict=conflict, refused=refused, settled=settled)

    def _refusals(self, settled: tuple[Settled, ...]) -> tuple[RefusedChange, ...]:
        hidden, shown = self._ran.request.plan.hidden, self._ran.ground.shown
        besides = (*self._refused, *refused_besides(self._differences))
        return (*refusals_of(settled, hidden, shown), *besides)

    def _layer(self) -> OpenLayers:
        if self._layers is None:
            raise AssertionError("a command that was let go")
        return self._layers


class HeldCommand:
    def __init__(
        self,
        prepared: PreparedLine,
        command: StagedCommand,
        told: ShellOutcome,
        fence: FenceWords,
    ) -> None:
        """Take the command over; `told`: its outcome before an answer. Raises: HostError."""
        self._shown, refused = command.show(command.settle(grants_asks=True))
        heading = question_heading(_request(prepared), command.end, refused)
        digests = f"{prepared.digest}\n{self._shown.digest}\n{heading}"
        self._command = command
        self._prepared, self._fence = prepared, fence
        self._outcome = told
        self.diff: str = f"{heading}{self._shown.text}"
        self.digest: str = digest_of(digests.encode("utf-8", "surrogateescape"))
        self.warnings: tuple[str, ...] = self._shown.warnings

    def commit(self) -> ShellOutcome:
        with _host_failures():
            self._command.look_again()
            settled = self._command.settle(grants_asks=True)
            shown, _ = self._command.show(settled)
        # Threat: what is committed is not what was shown, because somebody was at work
        # while the question was open. A conflict says so path by path; this says so at all.
        is_same = shown.digest == self._shown.digest
        kept = self._command.commit(settled) if is_same else self._command.give_up()
        outcome = with_kept(self._outcome, kept)
        return self._fence.added(outcome, self._prepared, self._command.end)

    def park(self, name: str) -> Json:
        return self._command.park(self._command.settle(grants_asks=True), name)

    def close(self) -> None:
        self._command.close()


class SandboxShell:
    def __init__(self, ground: SandboxGround) -> None:
        self._ground = ground
        self._launcher = Launcher(
            ground.staging, None if ground.network is None else ground.network.egress
        )
        self._backends = Backends(ground.attempt or attempt_here(self._launcher, ground.staging))
        self._plan: SandboxPlan | None = None
        self._lock = threading.Lock()
        policy, chain = ground.place.policy, ground.chain
        self._read_index = NameIndex(ReadJudge(policy, chain))
        self._write_index = NameIndex(WriteJudge(policy, chain))
        self._bench = Bench(policy, chain, policy.settings.shell.git, "")
        self._moments = Late(lambda: Moments(ground.staging))
        self._tracked = TrackedView()
        self._git = GitRoom(self._read_index.judge)
        self._fence = FenceWords(policy)
        self._told_once: set[str] = set()

    def close(self) -> None:
        self._launcher.close()
        if self._moments.made is not None:
            self._moments.made.close()

    def prepare(self, line: ShellLine) -> PreparedLine:
        """Plan one line; nothing runs but what finds out which backend works here.

        A dry run has no host network and writes nowhere outside. Raises: SandboxUnavailableError
        without a backend that is required, or without a stage for a dry run or `commit = "none"`;
        InvalidArgumentsError for a variable that no call may set; ConfigError.
        """
        self._require_named(line)
        plan = self._plan_of(line.text)
        with _host_failures():
            enforced = self._backends.choose(plan.enforcement)
        is_dry = line.is_dry_run
        if (is_dry or plan.commit == "none") and enforced.backend != STAGE:
            what = "a dry run" if is_dry else 'a command under commit = "none"'
            raise SandboxUnavailableError(
                f"{what} needs the backend 'stage', which does not work on this host",
                hint="paddock doctor says why, and what to do",
            )
        root_fd = self._ground.place.workspace.root_fd
        if enforced.backend == STAGE and (gaps := gaps_over(root_fd)):
            enforced = replace(enforced, gaps=(*enforced.gaps, *gaps))
        if enforced.backend != STAGE:
            # Nothing is mounted there: caches would lie where tools look, among the user's.
            plan = replace(plan, caches="")
        if plan.commit == "none":
            plan = replace(contained(plan), network=plan.network)
        plan = contained(plan) if line.is_dry_run else plan
        is_open = plan.network == "host" and not names_line(
            self._ground.place.policy, self._ground.chain, Action("shell", "run", line.text)
        )
        return PreparedLine(
            line, plan, enforced, find_interpreter(plan), plan_digest(plan), is_open
        )

    def asks_about_diff(self, prepared: PreparedLine) -> bool:
        # Threat: what a command does outside the workspace is in no diff, and done before anybody
        # is asked: there the question is about the command.
        plan = prepared.plan
        approve = shell_for(self._ground.place.policy, self._ground.chain).approve
        is_contained = plan.network != "host" and not plan.writable
        lands = prepared.enforced.backend == STAGE and plan.commit != "none"
        return approve == "diff" and lands and is_contained

    def keep(self, content: bytes) -> str:
        """Keep a long text; return its digest. Raises: StorageFullError, HostError."""
        return self._ground.place.history.keep_for_ledger(content)

    def run(self, prepared: PreparedLine, watch: CommandWatch = UNWATCHED) -> ShellOutcome:
        observed = self._observed(prepared, watch)
        if prepared.enforced.backend != STAGE:
            return self._run_in_place(prepared, observed)
        command, streams = self._run_staged(prepared, observed)
        with ExitStack() as held:
            held.callback(command.close)
            with _host_failures():
                outcome = self._told(prepared, command, streams)
                if command.end.ending is Ending.CANCELLED:
                    return outcome
                if prepared.line.is_dry_run:
                    shown, refused = command.show(command.settle(grants_asks=False))
                    outcome = replace(outcome, diff=shown.text, refused=refused)
                    return self._fence.added(outcome, prepared, command.end)
                if prepared.plan.commit == "none":
                    outcome = replace(outcome, discarded=command.count)
                    return self._fence.added(outcome, prepared, command.end)
                settled = command.settle(grants_asks=False)
                why = self._find_wait(prepared, command, settled)
                if why:
                    kept = HeldCommand(prepared, command, outcome, self._fence)
                    count = sum(each.lands for each in settled)
                    held.pop_all()
                    return replace(outcome, waiting=WaitingChanges(kept, count, why))
            outcome = with_kept(outcome, command.commit(settled))
            return self._fence.added(outcome, prepared, command.end)

    def _find_wait(
        self, prepared: PreparedLine, command: StagedCommand, settled: tuple[Settled, ...]
    ) -> str:
        if not prepared.is_confined or not any(each.lands for each in settled):
            return ""
        if self.asks_about_diff(prepared):
            return 'what a command changes is shown to a person ([shell] approve = "diff")'
        policy = self._ground.place.policy
        most = shell_for(policy, self._ground.chain).confine_max
        return command.find_excess(settled, most)

    def stage(self, prepared: PreparedLine, watch: CommandWatch = UNWATCHED) -> HeldCommand:
        observed = self._observed(prepared, watch)
        command, streams = self._run_staged(prepared, observed)
        try:
            with _host_failures():
                told = self._told(prepared, command, streams)
                return HeldCommand(prepared, command, told, self._fence)
        except BaseException:
            command.close()
            raise

    def _require_named(self, line: ShellLine) -> None:
        """Threat: a variable that changes what an allowed command's names run."""
        patterns = ()
        if line.env:
            patterns = shell_for(self._ground.place.policy, self._ground.chain).env
        for name, _ in line.env:
            if not any(covers(pattern, name) for pattern in patterns):
                raise InvalidArgumentsError(
                    f"env: policy lets no call set the variable {quote(name)}",
                    where="env",
                    hint='a person allows names in paddock.toml: [shell] env = ["NAME"]',
                )

    def _remarks(self, prepared: PreparedLine) -> tuple[str, ...]:
        if not prepared.plan.git_config.is_signing or not _GIT.search(prepared.line.text):
            return ()
        return (UNSIGNED,) if self._is_first("unsigned") else ()

    def _told(
        self, prepared: PreparedLine, command: StagedCommand, streams: Streams
    ) -> ShellOutcome:
        remarks, shown = self._remarks(prepared), command.shown
        outcome = tell(_request(prepared), command.end, streams, prepared.enforced, remarks)
        is_first = bool(shown.names) and self._is_first("shown")
        return with_shown(outcome, shown, is_first=is_first)

    def _is_first(self, word: str) -> bool:
        with self._lock:
            is_first = word not in self._told_once
            self._told_once.add(word)
        return is_first

    def _observed(self, prepared: PreparedLine, watch: CommandWatch) -> Observed:
        terms, ground, witness = None, self._ground, watch.network
        if prepared.plan.network == "policy" and ground.network and witness is not None:
            policy, line = ground.place.policy, prepared.line.text
            terms = ground.network.terms(policy, ground.chain, line, witness)
        return Observed((None, None), ground.progress, watch.cancel, watch.on_output, terms)

    def _run_staged(
        self, prepared: PreparedLine, observed: Observed
    ) -> tuple[StagedCommand, Streams]:
        ground = self._ground
        with _host_failures(), closing(Spooling(ground.staging, ground.place.history)) as spooling:
            observed = replace(observed, spools=spooling.spools)
            request = _request(prepared)
            if ground.on_directory is not None:
                request = replace(request, argv=(*request.argv[:2], _SAYS_WHERE + request.argv[2]))
            caches = prepared.plan.caches
            with Caches(Path(caches).parent).in_use() if caches else nullcontext():
                command = self._run_in_stage(request, observed)
            try:
                if ground.on_directory is not None:
                    ground.on_directory(command.end.directory)
                return command, spooling.streams(command.end)
            except BaseException:
                command.close()
                raise

    def _run_in_place(self, prepared: PreparedLine, observed: Observed) -> ShellOutcome:
        ground = self._ground
        with _host_failures(), closing(Spooling(ground.staging, ground.place.history)) as spooling:
            observed = replace(observed, spools=spooling.spools)
            request, fd = _request(prepared), ground.place.workspace.root_fd
            if prepared.enforced.backend == LANDLOCK:
                read, write = self._read_index, self._write_index
                held = run_landlocked(request, fd, read, write, observed)
            else:
                held = run_unheld(request, fd, prepared.enforced, observed)
            streams, remarks = spooling.streams(held.end), self._remarks(prepared)
            outcome = tell(request, held.end, streams, held.enforced, remarks)
        return self._fence.added(replace(outcome, is_staged=False), prepared, held.end)

    def _run_in_stage(self, request: CommandRequest, observed: Observed) -> StagedCommand:
        """Run one command in a stage of its own, and find what it changed.

        From its start on, others' changes are somebody else's. Raises: SandboxUnavailableError,
        HostError.
        """
        for _ in range(_LOOKS_MAX):
            command = self._run_once(request, observed)
            if command is not None:
                return command
        raise HostError("git's index kept changing before the command began", hint="run it again")

    def _run_once(self, request: CommandRequest, observed: Observed) -> StagedCommand | None:
        """None where it was not started: what it was to be shown has changed."""
        place, launcher = self._ground.place, self._launcher
        root_fd = place.workspace.root_fd
        survey = self._read_index.survey(root_fd)
        if survey.closed != request.plan.hidden:
            request = replace(request, plan=replace(request.plan, hidden=survey.closed))
        plan, closed, directories = request.plan, frozenset(survey.closed), survey.directories
        with ExitStack() as undo:
            git = self._git.open(plan)
            if git is not None:
                undo.callback(git.close)
                closed, directories = closed | git.closed, {**directories, **git.directories}
            view = self._tracked.look(launcher, plan, root_fd, git)
            layer = None if git is None else git.layer
            names, laid = lay_over(request.laid, survey.closed, root_fd)
            over = replace(plan, hidden=(*plan.hidden, *names)) if names else plan
            stage = launcher.open_stage(over, root_fd, (*view.files.values(), *laid), layer)
            undo.callback(_close_stage, stage)
            with host_error("no place for commands", str(self._ground.staging)):
                started_ns = self._moments.get().now(root_fd)
            if not view.tracked.is_current():
                return None
            try:
                end = launcher.run(request, stage, observed)
            except ConfinementError:
                if not stage.was_ready:
                    raise
                # It was being made while something went that it needs, as caches that are cleared.
                return None
            bench = replace(
                self._bench,
                git=plan.git,
                commit=plan.commit,
                workspace=plan.workspace,
                readable=(*plan.readable, *plan.writable),
                shown=frozenset(view.files),
                stand_ins=frozenset(
                    path for path, file in view.files.items() if not file.is_faithful
                ),
                unseen=survey.closed,
            )
            ground = CommandGround(started_ns, closed, directories, view.files)
            command = StagedCommand(place, _Ran(request, ground, end, bench, stage, git))
            undo.pop_all()
            return command

    def _plan_of(self, line: str) -> SandboxPlan:
        """Of all that is in a plan, a line decides the network alone."""
        policy, chain = self._ground.place.policy, self._ground.chain
        with self._lock:
            if self._plan is None:
                self._plan = compile_plan(policy, chain, self._ground.facts()).plan
            network = line_network(policy, chain, line)
            if network == "policy":
                if self._ground.network is not None:
                    return self._ground.network.placed(self._plan, policy, chain, line)
                network = "loopback"
            return (
                self._plan
                if network == self._plan.network
                else replace(self._plan, network=network)
            )


def _request(prepared: PreparedLine) -> CommandRequest:
    line = prepared.line
    argv = (prepared.interpreter, "-c", line.text)
    return CommandRequest(
        prepared.plan,
        argv,
        line.cwd,
        float(line.timeout_s),
        OUTPUT_BYTES,
        line.stdin.encode(),
        line.env,
        line.laid,
    )


@contextmanager
def _host_failures() -> Generator[None]:
    """Map a launcher that is gone, or a disk that fails, before anything has changed."""
    try:
        yield
    except HostError as error:
        raise SandboxUnavailableError(
            f"the sandbox failed: {error.message}",
            hint="nothing was changed; try again, and see: paddock doctor",
        ) from error


def _close_stage(stage: StageDirectories) -> None:
    try:
        stage.close()
    except HostError:
        # The launcher is gone, and the next one sweeps what it left.
        return
