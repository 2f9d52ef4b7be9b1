"""Hold a finished command until its changes land or are discarded; describe its result."""

import os
import re
import shlex
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import reduce
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import ApprovalUnavailableError, HostError, SandboxUnavailableError
from paddock.pattern import lazy_pattern
from paddock.policy.engine import Policy
from paddock.policy.positions import BUILT_IN
from paddock.policy.profiles import written_path
from paddock.policy.settings import ConfineMax, ShellLimits
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
    CommandBaseline,
    CommandDifferences,
    OpenLayers,
    find_differences,
)
from paddock.sandbox.changes.judgement import JudgeContext, JudgedChange
from paddock.sandbox.changes.pending import ShownDiff, park_set, show_settled
from paddock.sandbox.changes.selection import (
    find_excess,
    refusals_of,
    refused_besides,
    settle,
    written_bytes,
)
from paddock.sandbox.changes.upper import Look, read_changes
from paddock.sandbox.connections import allowing
from paddock.sandbox.git.tracked import INDEX_BYTES_MAX, KnownIndex
from paddock.sandbox.git_layer import NOTHING_SHOWN, OpenedGit, ShownNames, differing
from paddock.sandbox.host.host_facts import find_content
from paddock.sandbox.launcher import CopiedLayer, StageDirectories
from paddock.sandbox.streams import OUTPUT_BYTES, Streams
from paddock.sandbox.values import (
    CommandEnd,
    CommandRequest,
    Ending,
    PreparedLine,
    RefusedChange,
    ShellOutcome,
    Stream,
    Warned,
)
from paddock.storage.atomic import host_error
from paddock.text.show import name_some, show_name
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.workspace.workspace import Beside

_NAMED: Final = 50

_CPU_EXIT: Final = 128 + 24
_FILE_EXIT: Final = 128 + 25
"""SIGXCPU and SIGXFSZ, the same numbers on every known architecture (signal(7))."""
_NO_PROCESS: Final = ("can't start new thread", "unable to create native thread")
_AGAIN: Final = ("resource temporarily unavailable", "eagain")
_STARTS: Final = ("fork", "clone", "spawn", "thread", "process")
_TOO_LARGE: Final = ("file too large", "efbig", "file size limit exceeded")
_FULL: Final = ("no space left on device", "enospc")
_NOT_LINKED: Final = "hardlink different from source"
"""Git's error where the name that it has just linked is another file (builtin/clone.c)."""
_CLONE_COPIES: Final = (
    "in a sandbox a hard link to a file of the workspace is a copy: use git clone --no-hardlinks"
)
_UNTRACED: Final = (
    *("ptrace: Operation not permitted", "TRACEME: Operation not permitted"),
    "LeakSanitizer has encountered a fatal error",
)
_NO_TRACING: Final = (
    "in a sandbox no process traces another: debuggers and strace do not work, and a program with"
    " AddressSanitizer runs with ASAN_OPTIONS=detect_leaks=0"
)

_UNSIGNED: Final = (
    "commits and tags made in a sandbox are not signed, although this repository signs them: the"
    " signing key stays outside"
)


def build_outcome(
    prepared: PreparedLine, end: CommandEnd, streams: Streams, notes: Iterable[str] = ()
) -> ShellOutcome:
    stdout, stderr = streams
    last = _last_words(end, prepared)
    hints: list[str] = []
    if end.survivors:
        hints.append(f"{end.survivors} background processes were ended with the command")
    if _NOT_LINKED in stderr.text:
        hints.append(_CLONE_COPIES)
    if any(text in stderr.text for text in _UNTRACED):
        hints.append(_NO_TRACING)
    if end.exit_code:
        hints += dict.fromkeys(_limits_met(stderr.text, prepared.plan.limits))
    return ShellOutcome(
        shell=prepared.interpreter.rpartition("/")[2],
        ending=end.ending,
        exit_code=end.exit_code,
        stdout=stdout,
        stderr=with_line(stderr, last) if last else stderr,
        duration_s=end.duration_s,
        enforced=prepared.enforced,
        notes=tuple(notes),
        hints=tuple(hints),
        network=end.network,
    )


def with_committed(outcome: ShellOutcome, committed: Committed) -> ShellOutcome:
    if committed.conflict:
        return replace(outcome, refused=committed.refused, conflict=committed.conflict)
    landed = [each for each in committed.settled if each.lands]
    warnings = dict.fromkeys(
        Warned(text, each.warned_by) for each in landed for text in each.warnings
    )
    return replace(
        outcome,
        changed=committed.changed,
        bytes_written=written_bytes(landed),
        refused=committed.refused,
        warnings=tuple(warnings),
        notes=(*outcome.notes, *committed.notes),
    )


def _limits_met(text: str, limits: ShellLimits) -> Iterator[str]:
    lines = text.lower().splitlines()
    tried = [line for line in lines if any(word in line for word in _STARTS)]
    for words, where, limit in (
        (_NO_PROCESS, lines, f"{limits.processes} processes and threads at once"),
        (_AGAIN, tried, f"{limits.processes} processes and threads at once"),
        (_TOO_LARGE, lines, f"{limits.file_mb} MB in one file"),
        (_FULL, lines, f"{limits.memory_mb // 2} MB in its private directories"),
    ):
        if any(word in line for line in where for word in words):
            yield f"a command may have at most {limit}: [shell] limits"


def question_heading(
    prepared: PreparedLine, end: CommandEnd, refused: Sequence[RefusedChange]
) -> str:
    rows: list[str] = []
    last = _last_words(end, prepared)
    if last:
        rows.append(f"[{last}: its changes may be incomplete]")
    elif end.exit_code != 0:
        rows.append(f"[Command ended with exit code {end.exit_code}]")
    if refused:
        rows.append(f"[changes refused regardless of the answer: {len(refused)}]")
        rows += [f"  {show_name(each.path)}: {show_name(each.rule)}" for each in refused[:_NAMED]]
        more = len(refused) - _NAMED
        rows += [f"  [and {more} more]"] if more > 0 else []
    return "".join(f"{row}\n" for row in rows)


def _last_words(end: CommandEnd, prepared: PreparedLine) -> str:
    limits = prepared.plan.limits
    if end.ending is Ending.TIMED_OUT:
        return f"Command timed out after {prepared.line.timeout_s} seconds"
    if end.ending is Ending.MEMORY:
        return f"Command used more than {limits.memory_mb} MB of memory and was ended"
    if end.ending is Ending.FAILED:
        return f"Command could not be started: {show_name(end.reason)}"
    if end.exit_code == _CPU_EXIT and limits.cpu_s:
        cpu_s = limits.cpu_s
        return f"Command used more than {cpu_s} s of processor time and was ended: [shell] limits"
    if end.exit_code == _FILE_EXIT:
        most = limits.file_mb
        return f"Command wrote a file of more than {most} MB and was ended: [shell] limits"
    return "Command was cancelled" if end.ending is Ending.CANCELLED else ""


def with_line(stream: Stream, line: str) -> Stream:
    text = stream.text
    before = "" if not text or text.endswith("\n") else "\n"
    return replace(stream, text=f"{text}{before}{line}")


# A model that reads "Permission denied" keeps trying other ways. So a failure caused by policy
# names the refused action and the rule, says that it is intended, and how a person can change it.
# Each cause is explained once a session, later only named.
#
# The evidence: refused changes, the kernel's count of unroutable packets, and hidden names in the
# error output. Threat: a command prints such a name to learn whether the file exists. Only the
# policy is consulted, which answers the same for a missing file.

_GIT: Final = lazy_pattern(r"\bgit\b")
_INTENDED: Final = "paddock: this is policy, not a fault to work around"
_MISSED: Final = lazy_pattern(
    r"no such file or directory|permission denied|ENOENT|EACCES", re.IGNORECASE
)
_WORD: Final = lazy_pattern(r"[^\s'\"`‘’“”:;,()\[\]{}<>|=]+")
_LINES_MAX: Final = 200
_WORDS_MAX: Final = 400
_NAME_CHARS_MAX: Final = 200


class _Cause(Struct, frozen=True):
    word: str
    rule: str
    what: str
    remedy: str


class PolicyExplainer:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._lock = threading.Lock()
        self._said: set[tuple[str, ...]] = set()

    def is_first(self, *word: str) -> bool:
        """Return True on the first call with these words: each is reported once a session."""
        with self._lock:
            is_first = word not in self._said
            self._said.add(word)
        return is_first

    def notes(self, prepared: PreparedLine, shown: ShownNames = NOTHING_SHOWN) -> Iterator[str]:
        is_signing = prepared.plan.git_config.is_signing and _GIT.search(prepared.line.text)
        if is_signing and self.is_first("unsigned"):
            yield _UNSIGNED
        if shown.names and self.is_first("shown"):
            yield (
                f"policy closes {name_some(shown.names)}, but git tracks it: git's objects give the"
                " content to every command"
            )
        if shown.differing:
            yield (
                f"shown as in git's index, while the working copy differs and stays closed:"
                f" {name_some(shown.differing)}"
            )

    def amend(self, outcome: ShellOutcome, prepared: PreparedLine, end: CommandEnd) -> ShellOutcome:
        if outcome.exit_code == 0 or end.ending is Ending.CANCELLED:
            return outcome
        causes = list(self._causes(outcome, prepared, end))
        if not causes:
            return outcome
        first = next((each for each in causes if self.is_first(each.word, each.rule)), None)
        words = ", ".join(dict.fromkeys(each.word for each in causes if each is not first))
        lines: tuple[str, ...] = (f"paddock: policy again: {words}",)
        if first is not None:
            also = f"; also: {words}" if words else ""
            lines = (
                f"paddock: policy refused {first.what}{also}",
                _INTENDED,
                f"paddock: a person can change it: {first.remedy}",
            )
        stderr = reduce(with_line, lines, outcome.stderr)
        what = tuple(each.what for each in causes)
        return replace(outcome, stderr=stderr, fence=lines, causes=what)

    def _causes(
        self, outcome: ShellOutcome, prepared: PreparedLine, end: CommandEnd
    ) -> Iterator[_Cause]:
        if outcome.refused and not outcome.conflict:
            first = outcome.refused[0]
            more = len(outcome.refused) - 1
            rest = f" and {more} more changes" if more else ""
            what = f"the change of {show_name(first.path)}{rest}: {show_name(first.rule)}"
            yield _Cause("changes", first.rule, what, _explain("file:create", first.path))
        if refused := [each for each in end.network.refused if each.remedy]:
            first = refused[0]
            more = len(refused) - 1 + end.network.more_refused
            rest = f" and {more} more" if more else ""
            place = f"{first.host}:{first.port}" if first.port else first.host
            what = f"the connection to {show_name(place)}{rest}: {show_name(first.why)}"
            yield _Cause("network", first.why, what, first.remedy)
        elif end.unreached and prepared.plan.network in ("loopback", "policy"):
            word = self._policy.settings.shell.network
            rule = f'network = "{word}" ([shell], {self._place("shell", "network")})'
            what = f"connections to the network ({end.unreached} attempts): {rule}"
            line = prepared.line.text
            remedy = allowing(line) if word == "policy" else _explain("shell:run", line)
            yield _Cause("network", rule, what, remedy)
        yield from self._closed(outcome, prepared)

    def _closed(self, outcome: ShellOutcome, prepared: PreparedLine) -> Iterator[_Cause]:
        for name in _missed_names(outcome.stderr.text):
            inner = name.removeprefix(f"{prepared.plan.workspace}/")
            path = written_path(inner, prepared.line.cwd if inner == name else ".")
            pattern = self._policy.guards.find_secret(path) if path else None
            if pattern is not None:
                rule = f"{pattern.text} (paths.secret, {pattern.place})"
                what = f"reading {show_name(path)}: {show_name(rule)}"
                yield _Cause("secret", rule, what, _explain("file:view", path))
                return

    def _place(self, table: str, key: str) -> str:
        for document in reversed(self._policy.documents):
            given = document.document.values.get(table)
            if document is not self._policy.untrusted and isinstance(given, dict) and key in given:
                return str(document.document.place((table, key)))
        return BUILT_IN


def _explain(action: str, target: str) -> str:
    shown = f"tool:{action} {target}"
    if len(shown) > _NAME_CHARS_MAX or not shown.isprintable():
        shown = f"tool:{action} …"
    return f"paddock policy explain {shlex.quote(shown)}"


def _missed_names(text: str) -> Iterator[str]:
    left = _WORDS_MAX
    for line in text.splitlines()[-_LINES_MAX:]:
        if _MISSED.search(line) is None:
            continue
        for word in _WORD.findall(line[: 4 * _NAME_CHARS_MAX])[:left]:
            left -= 1
            yield word


_OVER: Final = "the command changed too much"
_NOT_AS_SHOWN: Final = "the changes are no longer those that were shown"


class Ran(Struct, frozen=True):
    request: CommandRequest
    ground: CommandBaseline
    end: CommandEnd
    context: JudgeContext
    """Without repositories, which are located for each set."""
    stage: StageDirectories | CopiedLayer
    git: OpenedGit | None
    indexes: Mapping[str, KnownIndex]
    """Git's indexes by path: of the workspace's repository, and of those below it."""
    on_landed: Callable[[Iterable[str]], None]
    """Called with the workspace paths that it changed."""


class StagedCommand:
    """Until `commit` the workspace is untouched."""

    def __init__(self, place: CommitPlace, ran: Ran) -> None:
        """Find the changes; takes over stage and git directory. Raises: HostError."""
        self._ran = ran
        self._place = place
        self._beside: Beside | None = None
        self._refused: tuple[RefusedChange, ...] = ()
        self._index_problem = ""
        self.end = ran.end
        self._lower_directories: Mapping[str, Look] = {}
        with ExitStack() as held:
            upper_fd = ran.stage.open_upper()
            held.callback(os.close, upper_fd)
            if ran.git is not None:
                self._join(ran.git, upper_fd, held)
            tree = self._place.workspace
            self._layers = OpenLayers(upper_fd, tree.root_fd, tree.resolution)
            self._differences = self._look()
            self._held = ExitStack()
            self._held.callback(ran.stage.close)
            if ran.git is not None:
                self._held.callback(ran.git.close)
            for index in ran.indexes.values():
                self._held.callback(index.close)
            self._held.enter_context(held.pop_all())

    def close(self) -> None:
        self._held.close()

    def _join(self, git: OpenedGit, upper_fd: int, held: ExitStack) -> None:
        stage = self._ran.stage
        if not isinstance(stage, StageDirectories):
            raise TypeError("a copied layer has no separate repository")
        with host_error("the changes of a command cannot be read"):
            root_fd = self._place.workspace.root_fd
            is_joined, self._refused = git.join(stage, upper_fd, root_fd)
            self._index_problem = git.land_index(upper_fd, self._ran.indexes) if is_joined else ""
        if is_joined:
            self._beside = git.beside
            workspace = held.enter_context(self._place.workspace.with_beside(git.beside))
            self._place = replace(self._place, workspace=workspace)

    def _look(self) -> CommandDifferences:
        layer = read_changes(self._layers.upper_fd, self._layers.lower_fd, self._beside)
        self._lower_directories = layer.lower_directories
        found = find_differences(layer, self._layers, self._ran.ground)
        if self._ran.git is not None and self._beside is not None:
            found = self._ran.git.settle(found, self._ran.ground.started_ns, self._index_problem)
        for path in self._ran.indexes.keys() & found.conflicts:
            found = _without_refreshed(found, self._ran.indexes[path], self._layers)
        return replace(found, root_mode=self._ran.stage.new_mode)

    @property
    def shown(self) -> ShownNames:
        return differing(self._ran.ground.shown, self._layers.lower_fd)

    @property
    def count(self) -> int:
        return len(self._differences.found)

    @property
    def paths(self) -> frozenset[str]:
        """Return every path that differs from the workspace."""
        return frozenset(each.path for each in self._differences.found)

    def look_again(self) -> None:
        self._differences = self._look()

    def show(
        self, settled: tuple[JudgedChange, ...]
    ) -> tuple[ShownDiff, tuple[RefusedChange, ...]]:
        hidden = self._ran.request.plan.hidden
        return show_settled(settled, self._layers, hidden), self._refusals(settled)

    def settle(self, *, grants_asks: bool) -> tuple[JudgedChange, ...]:
        context = self._ran.context
        if self._ran.git is not None and self._beside is not None:
            context = replace(context, git_outside=self._ran.git.outside)
        return settle(self._differences, self._layers, context, grants_asks=grants_asks)

    def find_excess(self, settled: tuple[JudgedChange, ...], most: ConfineMax) -> str:
        return find_excess(settled, self._layers, self._place.policy.guards, most)

    def commit(self, settled: tuple[JudgedChange, ...]) -> Committed:
        """Commit all allowed changes to the workspace, or none; raises as `commit_settled`."""
        refused = self._refusals(settled)
        if not self._differences.is_whole:
            return Committed(refused=all_refused(settled, refused, _OVER), settled=settled)
        conflict = describe_conflict(self._differences, settled)
        committed = Committed(conflict=conflict)
        if not conflict:
            above = find_above(settled, self._layers, self._lower_directories)
            git = self._ran.context.git
            committed = commit_settled(settled, self._layers, self._place, git, above)
            self._ran.on_landed(each.path.relative for each in committed.changed)
        if committed.conflict:
            refused = all_refused(settled, refused, committed.conflict)
        return replace(committed, refused=refused, settled=settled)

    def park(self, settled: tuple[JudgedChange, ...], name: str) -> Json:
        """Return as data what `commit` would keep and refuse; contents are pinned under `name`.

        Raises: ApprovalUnavailableError: nothing, or too much; StorageFullError, HostError.
        """
        conflict = describe_conflict(self._differences, settled)
        if conflict or not self._differences.is_whole:
            raise ApprovalUnavailableError(
                conflict or _OVER,
                hint="run it again" if conflict else "split the command into smaller ones",
            )
        phases = phases_of(settled, self._layers, self._place.policy)
        above = find_above(settled, self._layers, self._lower_directories)
        store = self._place.history.store
        return park_set(phases, store, name, above, self._refusals(settled))

    def abandon(self) -> Committed:
        """Keep nothing: the changes differ from those approved. Raises: HostError."""
        settled = self.settle(grants_asks=True)
        conflict = describe_conflict(self._differences, settled) or _NOT_AS_SHOWN
        refused = all_refused(settled, self._refusals(settled), conflict)
        return Committed(conflict=conflict, refused=refused, settled=settled)

    def _refusals(self, settled: tuple[JudgedChange, ...]) -> tuple[RefusedChange, ...]:
        hidden, shown = self._ran.request.plan.hidden, self._ran.ground.shown
        besides = (*self._refused, *refused_besides(self._differences))
        return (*refusals_of(settled, hidden, shown), *besides)


def _without_refreshed(
    found: CommandDifferences, index: KnownIndex, layers: OpenLayers
) -> CommandDifferences:
    """Resolve a conflict on the index where one of the two sides has only refreshed it."""
    now, own = (
        find_content(fd, index.path, INDEX_BYTES_MAX, layers.resolution)
        for fd in (layers.lower_fd, layers.upper_fd)
    )
    kept = found.found
    if not index.is_known(now, is_last=True):
        if not index.is_known(own, is_last=False):
            return found
        kept = tuple(each for each in kept if each.path != index.path)
    conflicts = tuple(path for path in found.conflicts if path != index.path)
    return replace(found, found=kept, conflicts=conflicts)


class HeldCommand:
    """A finished line whose changes wait for an answer. The caller closes it."""

    def __init__(
        self,
        prepared: PreparedLine,
        command: StagedCommand,
        outcome: ShellOutcome,
        explainer: PolicyExplainer,
    ) -> None:
        """Takes over the command; `outcome`: its result before an answer. Raises: HostError."""
        self._shown, refused = command.show(command.settle(grants_asks=True))
        heading = question_heading(prepared, command.end, refused)
        digests = f"{prepared.digest}\n{self._shown.digest}\n{heading}"
        self._command = command
        self._prepared, self._explainer = prepared, explainer
        self._outcome = outcome
        self.diff: str = f"{heading}{self._shown.text}"
        """A failed ending, the refused changes, and the diff of the changes that would be kept."""
        self.digest: str = digest_of(digests.encode("utf-8", "surrogateescape"))
        """Covers its plan, its ending, and all changes that would be kept."""
        self.warnings: tuple[str, ...] = self._shown.warnings

    def commit(self) -> ShellOutcome:
        """Commit exactly these changes, which the answer approved. Raises: as `commit_settled`."""
        with host_failures():
            self._command.look_again()
            settled = self._command.settle(grants_asks=True)
            shown, _ = self._command.show(settled)
        # Threat: the workspace changed while the question was open, and the commit would differ
        # from the diff that was shown. Conflicts catch single paths; this catches the whole.
        is_same = shown.digest == self._shown.digest
        committed = self._command.commit(settled) if is_same else self._command.abandon()
        outcome = with_committed(self._outcome, committed)
        return self._explainer.amend(outcome, self._prepared, self._command.end)

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
    """Return the arguments after `-c`: the line, or a script that joins its pieces if too long."""
    most = limits.command_bytes_max // 4  # characters: each has at most 4 bytes in UTF-8
    if len(text.encode()) <= limits.command_bytes_max:
        return (text,)
    pieces = (text[start : start + most] for start in range(0, len(text), most))
    return ('IFS=; set -- "$*"; unset IFS; eval "$1"', "sh", *pieces)


@contextmanager
def host_failures() -> Generator[None]:
    """Map a host failure, such as a lost launcher or a failing disk, before anything changed."""
    try:
        yield
    except HostError as error:
        raise SandboxUnavailableError(
            f"the sandbox failed: {error.message}",
            hint="nothing was changed; try again, and see: paddock doctor",
        ) from error
