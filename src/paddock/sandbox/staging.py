"""One command in a stage: run in a sandbox, its differences settled, then committed, shown, let go.

Until `commit` the workspace is untouched.
"""

import os
import stat
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack
from typing import Final, Self

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ApprovalUnavailableError, HostError
from paddock.policy.settings import ConfineMax
from paddock.sandbox.changes.commit import (
    CommitPlace,
    Committed,
    all_refused,
    commit_settled,
    describe_conflict,
    find_above,
    park_settled,
)
from paddock.sandbox.changes.differences import (
    CommandDifferences,
    CommandGround,
    OpenLayers,
    find_differences,
)
from paddock.sandbox.changes.judging import Bench
from paddock.sandbox.changes.losing import find_excess
from paddock.sandbox.changes.parking import ShownDiff, park_set, show_settled
from paddock.sandbox.changes.settling import (
    LandingTerms,
    Settled,
    refusals_of,
    refused_besides,
    settle,
)
from paddock.sandbox.changes.upper import Look, read_changes
from paddock.sandbox.conversation import ConfinementError, Observed
from paddock.sandbox.git_layer import (
    GitRoom,
    OpenedGit,
    ShownNames,
    TrackedFiles,
    TrackedView,
    differing,
)
from paddock.sandbox.hidden import Moments, NameIndex, Survey
from paddock.sandbox.host.host_facts import directories_above
from paddock.sandbox.launcher import Launcher
from paddock.sandbox.stage import StageDirectories
from paddock.sandbox.values import CommandEnd, CommandRequest, Laid, RefusedChange, ShownFile
from paddock.storage.atomic import host_error
from paddock.values.calls import Json
from paddock.workspace.resolve import Beside

_OVER: Final = "the command changed too much"
_LOOKS_MAX: Final = 3
_NOT_AS_SHOWN: Final = "the changes are not those that were shown any more"


class Room(Struct, frozen=True):
    launcher: Launcher
    index: NameIndex
    place: CommitPlace
    bench: Bench
    """Without repositories, which are found for each set; preset and places by the plan."""
    bytes_max: int
    moments: Moments
    tracked: TrackedView
    git: GitRoom


class KeptChanges(Struct, frozen=True):
    committed: Committed
    refused: tuple[RefusedChange, ...]
    settled: tuple[Settled, ...]


class Ran(Struct, frozen=True):
    request: CommandRequest
    ground: CommandGround
    end: CommandEnd


class StagedCommand:
    __slots__ = (
        *("_beside", "_differences", "_git", "_held", "_index_problem", "_layers", "_place"),
        *("_ran", "_refused", "_room", "_stage", "_standing", "end"),
    )

    def __init__(
        self, room: Room, ran: Ran, stage: StageDirectories, git: OpenedGit | None = None
    ) -> None:
        """Find what changed; take stage and git directory over. Raises: HostError."""
        self._room = room
        self._ran = ran
        self._stage = stage
        self._git = git
        self._place = room.place
        self._beside: Beside | None = None
        self._refused: tuple[RefusedChange, ...] = ()
        self._index_problem = ""
        self.end = ran.end
        self._standing: Mapping[str, Look] = {}
        with ExitStack() as held:
            upper_fd = stage.open_upper()
            held.callback(os.close, upper_fd)
            if git is not None:
                self._join(git, upper_fd, held)
            tree = self._place.workspace
            self._layers: OpenLayers | None = OpenLayers(upper_fd, tree.root_fd, tree.resolution)
            self._differences = self._look(self._layers)
            self._held = held.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._layers is not None:
            self._layers = None
            self._held.close()
            if self._git is not None:
                self._git.close()
        close_stage(self._stage)

    def _join(self, git: OpenedGit, upper_fd: int, held: ExitStack) -> None:
        with host_error("the changes of a command cannot be read"):
            root_fd = self._place.workspace.root_fd
            is_joined, self._refused = git.join(self._stage, upper_fd, root_fd)
            self._index_problem = git.land_index(upper_fd) if is_joined else ""
        if is_joined:
            self._beside = git.beside
            workspace = held.enter_context(self._place.workspace.with_beside(git.beside))
            self._place = replace(self._place, workspace=workspace)

    def _look(self, layers: OpenLayers) -> CommandDifferences:
        layer = read_changes(layers.upper_fd, layers.lower_fd, self._beside)
        self._standing = layer.standing
        found = find_differences(layer, layers, self._ran.ground)
        if self._git is not None and self._beside is not None:
            found = self._git.settle(found, self._ran.ground.started_ns, self._index_problem)
        return replace(found, root_mode=self._stage.new_mode)

    @property
    def shown(self) -> ShownNames:
        return differing(self._ran.ground.shown, self._layer())

    @property
    def count(self) -> int:
        return len(self._differences.found)

    def look_again(self) -> None:
        self._differences = self._look(self._layer())

    def show(self, *, grants_asks: bool) -> tuple[ShownDiff, tuple[RefusedChange, ...]]:
        settled = self.settle(grants_asks=grants_asks)
        hidden = self._ran.request.plan.hidden
        return show_settled(settled, self._layer(), hidden), self._refusals(settled)

    def settle(self, *, grants_asks: bool) -> tuple[Settled, ...]:
        """Judge what changed; `grants_asks`: who saw the diff said yes. Raises: HostError."""
        terms = LandingTerms(self._ran.request.plan.commit, self._room.bytes_max, grants_asks)
        bench = self._room.bench
        if self._git is not None and self._beside is not None:
            bench = replace(bench, git_outside=self._git.outside)
        return settle(self._differences, self._layer(), bench, terms)

    def find_excess(self, settled: tuple[Settled, ...], most: ConfineMax) -> str:
        return find_excess(settled, self._layer(), self._room.bench.policy.guards, most)

    def commit(self, settled: tuple[Settled, ...]) -> KeptChanges:
        """Bring all that is allowed into the workspace, or nothing; raises as `commit_settled`."""
        refused = self._refusals(settled)
        if not self._differences.is_whole:
            return KeptChanges(Committed(), all_refused(settled, refused, _OVER), settled)
        conflict = describe_conflict(self._differences, settled)
        committed = Committed(conflict=conflict)
        if not conflict:
            committed = commit_settled(
                settled,
                self._layer(),
                self._place,
                self._room.bench.git,
                find_above(settled, self._layer(), self._standing),
            )
        if committed.conflict:
            refused = all_refused(settled, refused, committed.conflict)
        return KeptChanges(committed, refused, settled)

    def park(self, settled: tuple[Settled, ...], name: str) -> Json:
        """Return as data what `commit` would bring and report. Raises: ApprovalUnavailableError."""
        conflict = describe_conflict(self._differences, settled)
        if conflict or not self._differences.is_whole:
            raise ApprovalUnavailableError(
                conflict or _OVER,
                hint="run it again" if conflict else "split the command into smaller ones",
            )
        phases = park_settled(settled, self._layer(), self._place, name)
        above = find_above(settled, self._layer(), self._standing)
        return park_set(phases, above, self._refusals(settled))

    def give_up(self) -> KeptChanges:
        """Keep nothing: it is not what was granted. Raises: HostError."""
        settled = self.settle(grants_asks=True)
        conflict = describe_conflict(self._differences, settled) or _NOT_AS_SHOWN
        refused = all_refused(settled, self._refusals(settled), conflict)
        return KeptChanges(Committed(conflict=conflict), refused, settled)

    def _refusals(self, settled: tuple[Settled, ...]) -> tuple[RefusedChange, ...]:
        hidden, shown = self._ran.request.plan.hidden, self._ran.ground.shown
        besides = (*self._refused, *refused_besides(self._differences))
        return (*refusals_of(settled, hidden, shown), *besides)

    def _layer(self) -> OpenLayers:
        if self._layers is None:
            raise AssertionError("a command that was let go")
        return self._layers


def run_staged(room: Room, request: CommandRequest, observed: Observed) -> StagedCommand:
    """Run one command in a stage of its own, and find what it changed.

    From its start on, others' changes are somebody else's. Raises: SandboxUnavailableError,
    HostError.
    """
    for _ in range(_LOOKS_MAX):
        command = _run_once(room, request, observed)
        if command is not None:
            return command
    raise HostError("git's index kept changing before the command began", hint="run it again")


def _run_once(room: Room, request: CommandRequest, observed: Observed) -> StagedCommand | None:
    """None where it was not started: what it was to be shown has changed."""
    root_fd = room.place.workspace.root_fd
    survey = room.index.survey(root_fd)
    if survey.closed != request.plan.hidden:
        request = replace(request, plan=replace(request.plan, hidden=survey.closed))
    plan = request.plan
    with ExitStack() as undo:
        git = room.git.open(plan)
        if git is not None:
            undo.callback(git.close)
        view = room.tracked.look(room.launcher, plan, root_fd, git)
        bench = replace(
            room.bench,
            git=plan.git,
            workspace=plan.workspace,
            readable=(*plan.readable, *plan.writable),
            shown=frozenset(view.files),
            stand_ins=frozenset(path for path, file in view.files.items() if not file.is_faithful),
            unseen=survey.closed,
        )
        layer = None if git is None else git.layer
        names, laid = _lay(request.laid, survey.closed, root_fd)
        over = replace(plan, hidden=(*plan.hidden, *names)) if names else plan
        stage = room.launcher.open_stage(over, root_fd, (*view.files.values(), *laid), layer)
        undo.callback(close_stage, stage)
        started_ns = room.moments.now(root_fd)
        if not view.tracked.is_current():
            return None
        try:
            end = room.launcher.run(request, stage, observed)
        except ConfinementError:
            if not stage.was_ready:
                raise
            # It was being made while something went that it needs, as caches that are cleared.
            return None
        ground = _ground(started_ns, survey, view, git)
        ran = Ran(request, ground, end)
        command = StagedCommand(replace(room, bench=bench), ran, stage, git)
        undo.pop_all()
        return command


def _lay(
    laid: Laid, closed: Collection[str], root_fd: int
) -> tuple[tuple[str, ...], tuple[ShownFile, ...]]:
    """The names that the files stand in for, and the files; what is closed stays closed."""
    now = time.time_ns()
    hidden = frozenset(closed)
    open_to = {path: file for path, file in laid.items() if hidden.isdisjoint(_way(path))}
    files = tuple(
        ShownFile(path, stat.S_IFREG | file.mode, file.content, now, is_faithful=True)
        for path, file in open_to.items()
        if file is not None
    )
    names = {_first_missing(path, root_fd) for path in open_to}
    return tuple(sorted(name for name in names if names.isdisjoint(directories_above(name)))), files


def _way(path: str) -> tuple[str, ...]:
    return (*directories_above(path), path)


def _first_missing(path: str, root_fd: int) -> str:
    """The uppermost name on the way to `path` in whose place a directory has to be made."""
    for above in directories_above(path):
        try:
            mode = os.stat(above, dir_fd=root_fd, follow_symlinks=False).st_mode
        except OSError:
            return above
        if not stat.S_ISDIR(mode):
            return above
    return path


def _ground(
    started_ns: int, survey: Survey, view: TrackedFiles, git: OpenedGit | None
) -> CommandGround:
    closed = frozenset(survey.closed)
    if git is None:
        return CommandGround(started_ns, closed, survey.directories, view.files)
    directories = {**survey.directories, **git.directories}
    return CommandGround(started_ns, closed | git.closed, directories, view.files)


def close_stage(stage: StageDirectories) -> None:
    try:
        stage.close()
    except HostError:
        # The launcher is gone, and the next one sweeps what it left.
        return
