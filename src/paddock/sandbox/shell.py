"""The shell of one agent: a line is planned, carried out by the backend that works here, and told.

prepare  the plan of this very line, and who will hold it; nothing runs
run      in a stage: run, judged, committed as one set of changes;
         under Landlock, or held by nobody: run on the workspace itself
stage    run and held back, for somebody to be asked about what it changed; then `commit`
"""

import os
import threading
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import HostError, InvalidArgumentsError, SandboxUnavailableError
from paddock.pattern import lazy_pattern
from paddock.policy.decide import names_line, shell_for
from paddock.policy.settings import covers
from paddock.sandbox.backends import LANDLOCK, STAGE, Attempt, Backends, attempt_here
from paddock.sandbox.caches import Caches
from paddock.sandbox.canary import gaps_over
from paddock.sandbox.changes.commit import CommitPlace
from paddock.sandbox.changes.judging import Bench
from paddock.sandbox.changes.settling import Settled
from paddock.sandbox.conversation import Observed
from paddock.sandbox.git_layer import GitRoom, ShownNames, TrackedView
from paddock.sandbox.hidden import Moments, NameIndex
from paddock.sandbox.host.host_facts import HostFacts
from paddock.sandbox.inside.protocol import ENDED_IN
from paddock.sandbox.landlock import HeldEnd, LandlockArea, Workplace, run_landlocked, run_unheld
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.plan import (
    ReadJudge,
    WriteJudge,
    compile_plan,
    contained,
    find_interpreter,
    plan_digest,
)
from paddock.sandbox.staging import KeptChanges, Room, StagedCommand, run_staged
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
    CommandRequest,
    Ending,
    OnOutput,
    PreparedLine,
    Progress,
    SandboxPlan,
    ShellLine,
    ShellOutcome,
    WaitingChanges,
    line_network,
)
from paddock.storage.atomic import host_error
from paddock.text.show import quote
from paddock.values.calls import NEVER, Cancel, Json
from paddock.values.decisions import Action, AgentChain
from paddock.values.entries import digest_of

_SAYS_WHERE: Final = f"trap 'command pwd -P >|{os.fsdecode(ENDED_IN)} 2>/dev/null' EXIT\n"
"""Before a line of shell: when that shell ends, it leaves behind where."""
_GIT: Final = lazy_pattern(r"\bgit\b")


class SandboxGround(Struct, frozen=True):
    chain: AgentChain
    place: CommitPlace
    facts: Callable[[], HostFacts]
    staging: Path
    progress: Progress | None = None
    on_directory: Callable[[str], None] | None = None
    attempt: Attempt | None = None


class HeldCommand:
    __slots__ = (
        "_command",
        "_fence",
        "_outcome",
        "_prepared",
        "_shown",
        "diff",
        "digest",
        "warnings",
    )

    def __init__(
        self,
        prepared: PreparedLine,
        command: StagedCommand,
        told: ShellOutcome,
        fence: FenceWords,
    ) -> None:
        """Take the command over; `told`: its outcome before an answer. Raises: HostError."""
        self._shown, refused = command.show(grants_asks=True)
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
            shown, _ = self._command.show(grants_asks=True)
        # Threat: what is committed is not what was shown, because somebody was at work
        # while the question was open. A conflict says so path by path; this says so at all.
        is_same = shown.digest == self._shown.digest
        kept = _commit(self._command, grants_asks=True) if is_same else self._command.give_up()
        outcome = with_kept(self._outcome, kept)
        return self._fence.added(outcome, self._prepared, self._command.end)

    def park(self, name: str) -> Json:
        return self._command.park(self._command.settle(grants_asks=True), name)

    def close(self) -> None:
        self._command.close()


class SandboxShell:
    def __init__(self, ground: SandboxGround) -> None:
        self._ground = ground
        self._launcher = Launcher(ground.staging)
        self._backends = Backends(ground.attempt or attempt_here(self._launcher, ground.staging))
        self._plan: SandboxPlan | None = None
        self._lock = threading.Lock()
        policy, chain = ground.place.policy, ground.chain
        self._read = ReadJudge(policy, chain)
        self._write = WriteJudge(policy, chain)
        self._write_index = NameIndex(self._write)
        self._read_index = NameIndex(self._read)
        self._room: Room | None = None
        self._fence = FenceWords(policy)
        self._has_told_unsigned = False
        self._has_shown = False

    def close(self) -> None:
        self._launcher.close()
        with self._lock:
            room, self._room = self._room, None
        if room is not None:
            room.moments.close()

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

    def run(
        self, prepared: PreparedLine, cancel: Cancel = NEVER, on_output: OnOutput | None = None
    ) -> ShellOutcome:
        if prepared.enforced.backend != STAGE:
            return self._run_in_place(prepared, cancel, on_output)
        command, streams = self._run_staged(prepared, cancel, on_output)
        with ExitStack() as held:
            held.enter_context(command)
            with _host_failures():
                outcome = self._told(prepared, command, streams)
                if command.end.ending is Ending.CANCELLED:
                    return outcome
                if prepared.line.is_dry_run:
                    shown, refused = command.show(grants_asks=False)
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

    def stage(
        self, prepared: PreparedLine, cancel: Cancel = NEVER, on_output: OnOutput | None = None
    ) -> HeldCommand:
        command, streams = self._run_staged(prepared, cancel, on_output)
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
        with self._lock:
            told, self._has_told_unsigned = self._has_told_unsigned, True
        return () if told else (UNSIGNED,)

    def _told(
        self, prepared: PreparedLine, command: StagedCommand, streams: Streams
    ) -> ShellOutcome:
        remarks, shown = self._remarks(prepared), command.shown
        outcome = tell(_request(prepared), command.end, streams, prepared.enforced, remarks)
        return with_shown(outcome, shown, is_first=self._is_first(shown))

    def _is_first(self, shown: ShownNames) -> bool:
        with self._lock:
            is_first, self._has_shown = not self._has_shown, self._has_shown or bool(shown.names)
        return is_first

    def _run_staged(
        self, prepared: PreparedLine, cancel: Cancel, on_output: OnOutput | None
    ) -> tuple[StagedCommand, Streams]:
        ground = self._ground
        with _host_failures(), Spooling(ground.staging, ground.place.history) as spooling:
            observed = Observed(spooling.spools, ground.progress, cancel, on_output)
            request = _request(prepared)
            if ground.on_directory is not None:
                request = replace(request, argv=(*request.argv[:2], _SAYS_WHERE + request.argv[2]))
            with self._caches(prepared.plan):
                command = run_staged(self._open_room(), request, observed)
            try:
                if ground.on_directory is not None:
                    ground.on_directory(command.end.directory)
                return command, spooling.streams(command.end)
            except BaseException:
                command.close()
                raise

    def _caches(self, plan: SandboxPlan) -> AbstractContextManager[None]:
        if not plan.caches:
            return nullcontext()
        return Caches(Path(plan.caches).parent).in_use()

    def _run_in_place(
        self, prepared: PreparedLine, cancel: Cancel, on_output: OnOutput | None
    ) -> ShellOutcome:
        ground = self._ground
        with _host_failures(), Spooling(ground.staging, ground.place.history) as spooling:
            observed = Observed(spooling.spools, ground.progress, cancel, on_output)
            held = self._hold(prepared, observed)
            streams, remarks = spooling.streams(held.end), self._remarks(prepared)
            outcome = tell(_request(prepared), held.end, streams, held.enforced, remarks)
        return self._fence.added(replace(outcome, is_staged=False), prepared, held.end)

    def _hold(self, prepared: PreparedLine, observed: Observed) -> HeldEnd:
        fd = self._ground.place.workspace.root_fd
        request = _request(prepared)
        if prepared.enforced.backend != LANDLOCK:
            return run_unheld(request, fd, prepared.enforced, observed)
        read = LandlockArea(self._read_index.find(fd), self._read)
        write = LandlockArea(self._write_index.find(fd), self._write)
        return run_landlocked(request, Workplace(fd, read, write), observed)

    def _open_room(self) -> Room:
        ground = self._ground
        policy = ground.place.policy
        with self._lock, host_error("no place for commands", str(ground.staging)):
            if self._room is None:
                bench = Bench(policy, ground.chain, policy.settings.shell.git, "")
                bytes_max = policy.settings.limits.change_set_bytes_max
                self._room = Room(
                    self._launcher,
                    self._read_index,
                    ground.place,
                    bench,
                    bytes_max,
                    Moments(ground.staging),
                    TrackedView(),
                    GitRoom(self._read),
                )
            return self._room

    def _plan_of(self, line: str) -> SandboxPlan:
        """Of all that is in a plan, a line decides the network alone."""
        policy, chain = self._ground.place.policy, self._ground.chain
        with self._lock:
            if self._plan is None:
                self._plan = compile_plan(policy, chain, self._ground.facts()).plan
            network = line_network(policy, chain, line)
            return (
                self._plan
                if network == self._plan.network
                else replace(self._plan, network=network)
            )


def _commit(command: StagedCommand, *, grants_asks: bool) -> KeptChanges:
    with _host_failures():
        settled = command.settle(grants_asks=grants_asks)
    return command.commit(settled)


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
