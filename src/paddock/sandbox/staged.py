"""A command that has run, and what it changed, until that lands, is held back, or is let go."""

import os
import secrets
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ApprovalUnavailableError, HostError, SandboxUnavailableError
from paddock.policy.settings import ConfineMax
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
from paddock.sandbox.git_layer import OpenedGit, ShownNames, differing
from paddock.sandbox.launcher import RunningLauncher, StageDirectories
from paddock.sandbox.streams import OUTPUT_BYTES
from paddock.sandbox.telling import FenceWords, question_heading, with_kept
from paddock.sandbox.values import (
    CommandEnd,
    CommandRequest,
    PreparedLine,
    RefusedChange,
    ShellOutcome,
)
from paddock.storage.atomic import host_error
from paddock.storage.disk import DIRECTORY
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.workspace.workspace import Beside

_OVER: Final = "the command changed too much"
_NOT_AS_SHOWN: Final = "the changes are not those that were shown any more"


class CopiedLayer(Struct, eq=False):
    """What a running command had changed at one moment, apart from what it goes on with."""

    running: RunningLauncher
    name: str
    fd: int
    marks: dict[str, tuple[int, ...]]
    """What told each entry at that moment."""
    new_mode: int | None = None

    @classmethod
    def make(cls, running: RunningLauncher) -> "CopiedLayer":
        """Make an empty one. Raises: HostError."""
        name = f"copy-{secrets.token_hex(8)}"
        with host_error("no place for what a command changed"):
            os.mkdir(name, 0o700, dir_fd=running.area.fd)
            fd = os.open(name, DIRECTORY, dir_fd=running.area.fd)
        return cls(running, name, fd, {})

    def open_upper(self) -> int:
        return os.dup(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
            self.running.remove(self.name)


class Ran(Struct, frozen=True):
    request: CommandRequest
    ground: CommandGround
    end: CommandEnd
    bench: Bench
    """Without repositories, which are found for each set."""
    stage: StageDirectories | CopiedLayer
    git: OpenedGit | None
    on_landed: Callable[[Iterable[str]], None]
    """Told which paths of the workspace have changed by it."""


class StagedCommand:
    """Until `commit` the workspace is untouched."""

    def __init__(self, place: CommitPlace, ran: Ran) -> None:
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
        close_stage(self._ran.stage)

    def _join(self, git: OpenedGit, upper_fd: int, held: ExitStack) -> None:
        stage = self._ran.stage
        if not isinstance(stage, StageDirectories):
            raise TypeError("a copy has no repository of its own")
        with host_error("the changes of a command cannot be read"):
            root_fd = self._place.workspace.root_fd
            is_joined, self._refused = git.join(stage, upper_fd, root_fd)
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
        return differing(self._ran.ground.shown, self._layer().lower_fd)

    @property
    def count(self) -> int:
        return len(self._differences.found)

    @property
    def paths(self) -> frozenset[str]:
        """Return every path at which it differs from the workspace."""
        return frozenset(each.change.path for each in self._differences.found)

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
            self._ran.on_landed(each.path.relative for each in committed.changed)
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
        heading = question_heading(request_of(prepared), command.end, refused)
        digests = f"{prepared.digest}\n{self._shown.digest}\n{heading}"
        self._command = command
        self._prepared, self._fence = prepared, fence
        self._outcome = told
        self.diff: str = f"{heading}{self._shown.text}"
        self.digest: str = digest_of(digests.encode("utf-8", "surrogateescape"))
        self.warnings: tuple[str, ...] = self._shown.warnings

    def commit(self) -> ShellOutcome:
        with host_failures():
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


def request_of(prepared: PreparedLine) -> CommandRequest:
    line = prepared.line
    argv = (prepared.interpreter, "-c", *_in_arguments(line.text))
    return CommandRequest(
        prepared.plan,
        argv,
        line.cwd,
        float(line.timeout_s),
        OUTPUT_BYTES,
        line.stdin,
        line.env,
        line.laid,
        terminal=line.terminal,
    )


def _in_arguments(text: str) -> tuple[str, ...]:
    """Return what follows `-c`: the line, or what puts it together where it is too long for one."""
    most = limits.command_bytes_max // 4  # of characters: none has more bytes in UTF-8
    if len(text.encode()) <= limits.command_bytes_max:
        return (text,)
    pieces = (text[start : start + most] for start in range(0, len(text), most))
    return ('IFS=; set -- "$*"; unset IFS; eval "$1"', "sh", *pieces)


@contextmanager
def host_failures() -> Generator[None]:
    """Map a launcher that is gone, or a disk that fails, before anything has changed."""
    try:
        yield
    except HostError as error:
        raise SandboxUnavailableError(
            f"the sandbox failed: {error.message}",
            hint="nothing was changed; try again, and see: paddock doctor",
        ) from error


def close_stage(stage: StageDirectories | CopiedLayer) -> None:
    try:
        stage.close()
    except HostError:
        # The launcher is gone, and the next one sweeps what it left.
        return
