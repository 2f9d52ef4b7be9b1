"""Search contents for the first matches by path and line, with reproducible results.

There are two phases. First ripgrep walks the tree in parallel, which is fastest. If all its
matches can be shown, they only need sorting. Otherwise, which matches came first is chance, so
they are discarded: `walk` lists the files in byte order, and ripgrep searches them in growing
batches until enough matches are confirmed. `search_counted` uses only the second phase: it
checks each file before, and counts the skipped ones.

Threat: ripgrep's output is only a claim, see `confirm`; and a file counts only if its name may
be shown and its content be viewed.
"""

import contextlib
import errno
import itertools
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Final

from paddock import errors, limits
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open
from paddock.text.show import quote, show_name
from paddock.workspace.failures import converting
from paddock.workspace.paths import WorkspacePath, is_temporary_name, unchecked_path
from paddock.workspace.search.confirm import Content, binary_sign, confirmed
from paddock.workspace.search.globs import EVERYTHING, SearchGlob
from paddock.workspace.search.request import (
    BinarySign,
    ContentFound,
    FileLines,
    ShownPaths,
    Skipped,
    Until,
    Wanted,
)
from paddock.workspace.search.ripgrep import (
    Child,
    check_command,
    files_command,
    read_proposals,
    require_enterable,
    tree_command,
)
from paddock.workspace.search.walk import SearchReach, Walk, WalkTerms
from paddock.workspace.workspace import READ_DIRECTORY, READ_FILE, Workspace

SKIPPED_NAMES: Final = frozenset({".git", "__pycache__", "node_modules", ".DS_Store"})

_FIRST_FILES: Final = 32
"""Few, for a single-threaded run: its output is in order, and can be cut short."""
_BATCH_GROWTH: Final = 4
_BATCH_FILES_MAX: Final = 16_384
_BATCH_NAME_BYTES: Final = 524_288
"""Size of the names in one command; Linux allows 2 MB of arguments by default (execve(2))."""
_LARGE_BYTES: Final = 262_144
"""ripgrep reads a smaller file as fast as we could probe it."""
_CLOCK_TICK_NS: Final = 20_000_000
"""File times change in ticks of up to 10 ms; this is twice that."""
_FAILURE: Final = lazy_pattern(rb"rg: (?:\./)?(.+?): [^\n]*\(os error \d+\)", re.DOTALL)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_FAILURES_CHECKED_MAX: Final = 20


def search_content(
    workspace: Workspace,
    shown: ShownPaths,
    path: WorkspacePath,
    wanted: Wanted,
    glob: SearchGlob = EVERYTHING,
    until: Until | None = None,
) -> ContentFound:
    """Return matching lines of one file, or of every file below a directory.

    `path` itself is searched even if a rule ignores it, or its name is skipped elsewhere.

    Raises:
        PathNotFoundError, SpecialFileError, PathError: `path` cannot be read.
        PermissionDeniedError: `path` is a file that may not be viewed.
        InvalidPatternError: the regular expression cannot be used.
        HostError: ripgrep cannot be run, or the disk fails.
    """
    is_one_file = _is_file(workspace, path)
    search = Search(workspace, shown, wanted, until or Until(), reads_past_nul=is_one_file)
    if is_one_file:
        search.require_viewable(path)
        with workspace.open_file(path) as file:
            start = file.read_start(limits.binary_probe_bytes)
            search.remarks.binary = binary_sign(start, file.size_bytes)
        if search.remarks.binary is None:
            search.in_order(iter([path.relative]))
    else:
        with converting(path, "list"):
            if not search.whole_tree(path, glob):
                search.walk(path, WalkTerms(glob))
    search.check()
    return search.found


def search_counted(
    workspace: Workspace,
    shown: ShownPaths,
    path: WorkspacePath,
    wanted: Wanted,
    glob: SearchGlob,
    until: Until | None = None,
) -> ContentFound:
    """Search as `search_content` does, and count the files searched and skipped."""
    search = Search(workspace, shown, wanted, until or Until(), reads_past_nul=True)
    choice = _Choice(workspace, shown)
    if _is_file(workspace, path):
        search.require_viewable(path)
        search.in_order(choice.of(iter([path.relative])))
    else:
        with converting(path, "list"):
            search.walk(path, WalkTerms(glob, SKIPPED_NAMES, honours_ignore=False), choice)
    search.check()
    found = search.found
    found.files_searched, found.skipped = choice.up_to(found)
    return found


def _is_file(workspace: Workspace, path: WorkspacePath) -> bool:
    """Return True for a file, False for a directory.

    Raises: PathNotFoundError, SpecialFileError, PathError: it is neither, or not readable.
    """
    try:
        with workspace.open_file(path):
            return True
    except errors.PathNotAFileError:
        return False


class _Choice:
    """Chooses the files of a counted search, and records the skipped ones before each."""

    def __init__(self, workspace: Workspace, shown: ShownPaths) -> None:
        self._workspace = workspace
        self._shown = shown
        self._seen: list[tuple[str, str, int]] = []
        """Paths, the reason if skipped, and the number skipped by name until then."""
        self.walk: Walk | None = None

    def of(self, paths: Iterator[str]) -> Iterator[str]:
        for path in paths:
            if self._shown.is_shown(path):
                reason = self._reason(path)
                self._seen.append((path, reason, self._by_name))
                if not reason:
                    yield path

    def up_to(self, found: ContentFound) -> tuple[int, Skipped]:
        """Count the files searched and skipped up to the last match; batches read ahead of it."""
        seen, by_name = self._seen, self._by_name
        if found.has_more and found.files:
            last = found.files[-1].path
            end = next(at for at, (path, _, _) in enumerate(seen, 1) if path == last)
            seen, by_name = seen[:end], seen[end - 1][2]
        counts = Counter(reason for _, reason, _ in seen)
        return counts.pop("", 0), Skipped(by_name, **counts)

    @property
    def _by_name(self) -> int:
        return 0 if self.walk is None else self.walk.skipped_by_name

    def _reason(self, path: str) -> str:
        if not self._shown.may_view(path):
            return "forbidden"
        try:
            with self._workspace.open_file(unchecked_path(path)) as file:
                if file.size_bytes > limits.dev_searched_file_bytes_max:
                    return "too_large"
                start = file.read_start(limits.binary_probe_bytes)
                return "binary" if binary_sign(start, file.size_bytes) else ""
        except errors.HostError:
            raise
        except errors.ToolError:
            return "unreadable"


class Search:
    def __init__(
        self,
        workspace: Workspace,
        shown: ShownPaths,
        wanted: Wanted,
        until: Until,
        *,
        reads_past_nul: bool,
    ) -> None:
        """With `reads_past_nul`, only NUL bytes near its beginning make a file binary.

        This is for files given by name: in a tree, the result would depend on what ripgrep's
        threads read before. Raises: InvalidPatternError.
        """
        _require_usable(wanted.regex.pattern)
        self._reads_past_nul = reads_past_nul
        self._workspace = workspace
        self._shown = shown
        self._wanted = wanted
        self._until = until
        self._started_ns = time.time_ns()
        self._allowed: dict[str, bool] = {}
        self._was_run = False
        self.found = ContentFound()
        self.remarks = self.found.remarks

    def require_viewable(self, path: WorkspacePath) -> None:
        """Raises: PermissionDeniedError: the file may not be viewed."""
        if not self._may_show(path.relative):
            raise errors.PermissionDeniedError(
                f"{path.shown} may not be viewed",
                hint="search elsewhere, or ask a person to change the policy",
            )

    def whole_tree(self, path: WorkspacePath, glob: SearchGlob) -> bool:
        """Let ripgrep walk a directory; return False, and add nothing, if it finds too many."""
        workspace, wanted = self._workspace, self._wanted
        command = tree_command(wanted.regex, glob, wanted.matches_max + 1)
        with held_open(workspace.open_at(path, READ_DIRECTORY)) as fd:
            require_enterable(fd)
            # ripgrep must not read ignore files above its directory, as it would not stop at the
            # workspace's root, and it applies fewer rules than git. So we apply all, as in a walk.
            reach = SearchReach(workspace, path, glob)
            prefix = "" if path.is_root else path.relative + "/"
            is_all = self._take_all(self._run(command, fd, prefix, reach.holds))
        if is_all:
            self.remarks.too_deep.update(reach.too_deep)
        return is_all

    def walk(self, path: WorkspacePath, terms: WalkTerms, choice: _Choice | None = None) -> None:
        remarks, is_shown = self.remarks, self._shown.is_shown
        with contextlib.closing(Walk(self._workspace, path, terms, self._until)) as walk:
            if choice is None:
                self.in_order(walk.paths())
            else:
                choice.walk = walk
                self.in_order(choice.of(walk.paths()))
            remarks.is_late = remarks.is_late or walk.is_late
            remarks.unreadable.update(filter(is_shown, walk.unreadable))
            remarks.too_deep.update(filter(is_shown, walk.too_deep))

    def in_order(self, paths: Iterator[str]) -> None:
        """Search files, workspace paths in byte order, until there are too many matches to show."""
        files_max = _FIRST_FILES
        while not self._is_over and (batch := list(itertools.islice(paths, files_max))):
            if files_max <= _FIRST_FILES:
                with contextlib.closing(self._run_on(batch, in_order=True)) as run:
                    for lines in run:
                        self._take(lines)
                        if self._is_over:
                            break
            elif not self._take_all(self._run_on(batch, in_order=False)):
                # Some files of this batch were not searched; which ones is chance: try fewer.
                files_max //= _BATCH_GROWTH
                paths = itertools.chain(batch, paths)
                continue
            files_max = min(_BATCH_FILES_MAX, files_max * _BATCH_GROWTH)

    def check(self) -> None:
        """Check the pattern, if no run has. Raises: InvalidPatternError."""
        if self._was_run:
            return
        self._was_run = True
        command = check_command(self._wanted.regex)
        with Child(command, self._workspace.root_fd, self._until) as child:
            for _ in child.output():
                continue
            if child.finish() == 2 and not child.is_late:
                raise _invalid(self._wanted, child.errors)

    @property
    def _left(self) -> int:
        return self._wanted.matches_max - self.found.matches

    @property
    def _is_over(self) -> bool:
        return self.found.has_more or self.remarks.is_late

    def _take(self, lines: FileLines) -> None:
        self.found.has_more = lines.has_more
        self.found.matches += lines.matches
        if lines.numbers:
            self.found.files.append(lines)

    def _take_all(self, run: Generator[FileLines]) -> bool:
        """Add the matches of a run in byte order; none, and False, if they are too many to show."""
        # Keyed by path: a file that is moved meanwhile may appear twice.
        files: dict[str, FileLines] = {}
        matches = 0
        with contextlib.closing(run):
            for lines in run:
                matches += lines.matches
                if lines.has_more or matches > self._left:
                    return False
                files[lines.path] = lines
        for path in sorted(files, key=os.fsencode):
            self._take(files[path])
        return True

    def _may_show(self, path: str) -> bool:
        allowed = self._allowed.get(path)
        if allowed is None:
            # Threat: a match would reveal content of a file that may not be viewed. Such a
            # file has no effect: no row, no reached limit, no notice.
            allowed = self._allowed[path] = (
                not is_temporary_name(path.rpartition("/")[2])
                and self._shown.is_shown(path)
                and self._shown.may_view(path)
            )
        return allowed

    # One run

    def _run_on(self, names: list[str], *, in_order: bool) -> Generator[FileLines]:
        if not self._reads_past_nul:
            names = [name for name in names if not self._is_large_binary(name)]
        for some in _batches(names):
            if not self.remarks.is_late:
                command = files_command(self._wanted.regex, some, self._left + 1, in_order=in_order)
                yield from self._run(command, self._workspace.root_fd)

    def _run(
        self,
        command: list[str],
        directory_fd: int,
        prefix: str = "",
        is_meant: Callable[[str], bool] | None = None,
    ) -> Generator[FileLines]:
        """Yield the confirmed lines of each file that ripgrep proposes.

        Raises: InvalidPatternError: ripgrep cannot use the pattern.
        """
        with Child(command, directory_fd, self._until) as child:
            for name, rows in read_proposals(child.output()):
                self._was_run = True
                path = prefix + os.fsdecode(name)
                if self._may_show(path) and (is_meant is None or is_meant(path)):
                    lines = self._confirm(path, rows)
                    if lines is not None:
                        yield lines
            if child.is_late:
                self.remarks.is_late = True
                return
            code = child.finish()
            if code in (0, 1):
                self._was_run = True
            elif code < 0:
                self.remarks.is_broken = True
            else:
                self.check()
                self._note_unreadable(child.errors, prefix)

    def _is_large_binary(self, path: str) -> bool:
        """Return True for a large file with a NUL byte near its beginning; False if it is gone.

        Threat: a disk image of many gigabytes would use up the search's time. In a tree ripgrep
        stops at a NUL byte, but it reads a file given by name to the end.
        """
        try:
            # Used only for the size: an ancestor that is a link may mislead this stat.
            status = os.stat(path, dir_fd=self._workspace.root_fd, follow_symlinks=False)
            if status.st_size <= _LARGE_BYTES:
                return False
            with self._workspace.open_file(unchecked_path(path)) as file:
                start = file.read_start(limits.binary_probe_bytes)
                return binary_sign(start, file.size_bytes) is BinarySign.NUL
        except errors.HostError:
            raise
        except (OSError, errors.ToolError):
            return False

    def _confirm(self, path: str, rows: list[bytes]) -> FileLines | None:
        try:
            file = self._workspace.open_file(unchecked_path(path))
        except errors.HostError:
            raise
        except errors.ToolError:
            return None  # gone, swapped or unreadable: it has no rows
        with file:
            content = Content(file, self._until)
            lines, is_all = None, True
            if not self._is_binary(path, content):
                lines, is_all = confirmed(path, content, rows, self._wanted.context, self._left)
            self.remarks.is_late = self.remarks.is_late or content.is_late
            # Report a concurrent change of the content.
            if (
                not (is_all or content.is_late)
                and file.status.changed_ns > self._started_ns - _CLOCK_TICK_NS
            ):
                self.remarks.changed.add(path)
        return lines if lines is not None and (lines.matches or lines.has_more) else None

    def _is_binary(self, path: str, content: Content) -> bool:
        """Return True if the file has no rows: it is binary, or time ran out in between."""
        sign = binary_sign(content.part(0, limits.binary_probe_bytes), content.size)
        if sign is BinarySign.LARGE_UTF16:
            self.remarks.large_utf16.add(path)
        if self._reads_past_nul or sign is not None:
            return sign is not None
        # Check the whole file: how far ripgrep read depends on the limit.
        return any(b"\0" in piece for piece in content.pieces(0)) or content.is_late

    def _note_unreadable(self, printed: bytes, prefix: str) -> None:
        """Note the files that ripgrep could not read, if the workspace cannot read them either."""
        for found in itertools.islice(_FAILURE.finditer(printed), _FAILURES_CHECKED_MAX):
            path = prefix + os.fsdecode(found[1])
            if self._shown.is_shown(path) and self._is_unreadable(path):
                self.remarks.unreadable.add(path)

    def _is_unreadable(self, path: str) -> bool:
        """Check a name from a message. Threat: a file name may look like such a message."""
        if len(os.fsencode(path)) >= limits.path_bytes_max:
            return True
        try:
            with held_open(self._workspace.open_at(unchecked_path(path), READ_FILE)) as fd:
                os.pread(fd, 1, 0)
        except IsADirectoryError:
            return False
        except OSError as failure:
            return failure.errno not in _GONE
        return False


def _batches(names: list[str]) -> Iterable[list[str]]:
    batch: list[str] = []
    size = 0
    for name in names:
        size += len(name) * 4 + 8
        batch.append(name)
        if size > _BATCH_NAME_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _require_usable(pattern: str) -> None:
    size = len(pattern.encode())
    if size > limits.search_pattern_bytes_max:
        raise errors.InvalidPatternError(
            f"the pattern has {size} bytes, over {limits.search_pattern_bytes_max}",
            where="pattern",
            hint="give a shorter one",
        )
    if "\0" in pattern:
        raise errors.InvalidPatternError(
            f"the pattern {quote(pattern)} has a NUL character",
            where="pattern",
            hint="files with NUL bytes are binary and not searched",
        )


def _invalid(wanted: Wanted, printed: bytes) -> errors.InvalidPatternError:
    said = printed.decode("utf-8", "replace").split("\n\n")[0].splitlines()
    reasons = [line.removeprefix("rg: ").strip() for line in said]
    # The pattern itself, wrapped and underlined, precedes the reason.
    reason = next((line for line in reasons if line.startswith("error: ")), "")
    reason = reason.removeprefix("error: ") or (reasons[0] if reasons else "")
    cut = limits.message_value_chars_max
    return errors.InvalidPatternError(
        f"invalid regex: {quote(wanted.regex.pattern)}: {show_name(reason[:cut])}",
        where="pattern",
        hint=_hint(reason, wanted.literal_argument),
    )


def _hint(reason: str, literal_argument: str | None) -> str:
    if "\\n" in reason or "\\r" in reason:
        return "a pattern is matched against one line at a time"
    if "look-around" in reason or "backreference" in reason:
        return "look-around and backreferences are not supported"
    if "size limit" in reason:
        return "use smaller repetition counts"
    escape = "escape special characters with a backslash"
    return escape if literal_argument is None else f"{escape}, or use {literal_argument}"
