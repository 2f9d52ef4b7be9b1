"""What every content search is made of: runs of ripgrep, and the confirmation of what they found.

ripgrep proposes, the workspace disposes. A proposal is a claim about a name; it becomes
rows only if the name may be shown, its content may be viewed, and the workspace itself
finds the lines there.
"""

import errno
import itertools
import os
import re
import time
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from paddock import limits
from paddock.errors import HostError, InvalidPatternError, ToolError
from paddock.pattern import lazy_pattern
from paddock.text.show import quote, show_name
from paddock.workspace.paths import is_temporary_name, unchecked_path
from paddock.workspace.read import OpenFile
from paddock.workspace.resolve import READ_FILE
from paddock.workspace.search.asked import BinarySign, FileLines, Remarks, ShownPaths, Wanted
from paddock.workspace.search.binaries import binary_sign, is_large_binary
from paddock.workspace.search.child import Child
from paddock.workspace.search.confirm import Content, lines_of
from paddock.workspace.search.program import check_command, files_command, text_command
from paddock.workspace.search.proposals import ProposalReader
from paddock.workspace.search.until import Until
from paddock.workspace.workspace import Workspace

_BATCH_NAME_BYTES: Final = 524_288
"""Names in one command; Linux takes 2 MB of arguments by default (execve(2))."""
_CLOCK_TICK_NS: Final = 20_000_000
"""File times move in ticks of up to 10 ms; twice that is on the safe side."""
_FAILURE: Final = lazy_pattern(rb"rg: (?:\./)?(.+?): [^\n]*\(os error \d+\)", re.DOTALL)
_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})
_FAILURES_LOOKED_AT_MAX: Final = 20


class Area(Protocol):
    """Where a run takes place, and which of the files that it finds are meant."""

    @property
    def prefix(self) -> str: ...

    def means(self, path: str) -> bool: ...


class _Anywhere:
    __slots__ = ()

    prefix = ""

    def means(self, path: str) -> bool:
        return True


_ANYWHERE: Final = _Anywhere()


Proposals = dict[str, list[bytes]]


class SearchEngine:
    __slots__ = (
        "_allowed",
        "_cut_at_nul",
        "_early",
        "_reads_past_nul",
        "_shown",
        "_started_ns",
        "_was_run",
        "_workspace",
        "remarks",
        "until",
        "wanted",
    )

    def __init__(
        self,
        workspace: Workspace,
        shown: ShownPaths,
        wanted: Wanted,
        until: Until,
        *,
        reads_past_nul: bool,
    ) -> None:
        """With `reads_past_nul`, a NUL byte behind a file's beginning makes it no binary.

        That holds for files that are given by name: of a tree, it would depend on what ripgrep's
        threads read before. Raises: InvalidPatternError.
        """
        self._reads_past_nul = reads_past_nul
        _require_usable(wanted.regex.pattern)
        self._workspace = workspace
        self._shown = shown
        self.wanted = wanted
        self.remarks = Remarks()
        self.until = until
        self._started_ns = time.time_ns()
        self._allowed: dict[str, bool] = {}
        self._early: dict[str, FileLines | None] = {}
        self._cut_at_nul: set[str] = set()
        """Files that ripgrep took for binary on its way, so that rows of them are missing."""
        self._was_run = False

    def may_show(self, path: str) -> bool:
        allowed = self._allowed.get(path)
        if allowed is None:
            # Threat: that a file which may not be viewed has a match tells what stands in
            # it. It counts for nothing: no row, no limit reached, no word about it.
            allowed = self._allowed[path] = (
                not is_temporary_name(path.rpartition("/")[2])
                and self._shown.is_shown(path)
                and self._shown.may_view(path)
            )
        return allowed

    def may_name(self, path: str) -> bool:
        return self._shown.is_shown(path)

    # Proposing

    def propose(self, names: list[str], most: int, *, in_order: bool) -> Proposals:
        """Rows of these files; those of more than `most` lines need not be complete.

        With `in_order` the files come in the order of `names`, so that what is missing
        stands behind what is there.
        """
        found: Proposals = {}
        if not self._reads_past_nul:
            names = [name for name in names if not is_large_binary(self._workspace, name)]
        for batch in _batches(names):
            most_each = self.wanted.matches_max + 1
            command = files_command(self.wanted.regex, batch, most_each, in_order=in_order)
            known = {b"./" + os.fsencode(name) for name in batch}
            with self.start(command, self._workspace.root_fd) as child:
                self.read(child, ProposalReader(known), found, most, _ANYWHERE)
            if self.remarks.is_late or _count(found) > most:
                break
        return found

    def start(self, command: list[str], directory_fd: int) -> Child:
        return Child(command, directory_fd, self.until)

    def read(
        self, child: Child, reader: ProposalReader, found: Proposals, most: int, area: Area
    ) -> None:
        """Add to `found` what one run proposes, until there are more than `most` rows.

        Raises: InvalidPatternError where ripgrep cannot use the pattern.
        """
        count = _count(found)
        last = ""
        for piece in child.output():
            self._was_run = True
            for proposal in reader.feed(piece):
                self._take_binary(reader, found, area)
                path = area.prefix + os.fsdecode(proposal.path)
                if self.may_show(path) and area.means(path):
                    if last and path != last:
                        # All of that file is there, and ripgrep works on meanwhile.
                        self._early[last] = self._confirm_file(
                            last, found[last], self.wanted.matches_max
                        )
                    last = path
                    found.setdefault(path, []).extend(proposal.rows)
                    count += len(proposal.rows)
            if count > most:
                # What was said of files before counts too: what comes first must not depend
                # on where a run is cut.
                self._take_binary(reader, found, area)
                return
        if child.is_late:
            self.remarks.is_late = True
            if last:
                self._early[last] = self._confirm_file(last, found[last], self.wanted.matches_max)
        else:
            self._ended(child.finish(), child.errors, area.prefix)
        reader.close()
        self._take_binary(reader, found, area)

    def _take_binary(self, reader: ProposalReader, found: Proposals, area: Area) -> None:
        """Add to `found` the files that ripgrep took for binary, whatever rows it has of them."""
        for name in reader.binary:
            path = area.prefix + os.fsdecode(name)
            if self.may_show(path) and area.means(path):
                found.setdefault(path, [])
                self._cut_at_nul.add(path)
                self._early.pop(path, None)
        reader.binary.clear()

    def check(self) -> None:
        """Make sure that the pattern can be used, if no run has. Raises: InvalidPatternError."""
        if self._was_run:
            return
        self._was_run = True
        with Child(check_command(self.wanted.regex), self._workspace.root_fd, self.until) as child:
            for _ in child.output():
                continue
            if child.finish() == 2 and not child.is_late:
                raise _invalid(self.wanted, child.errors)

    def _ended(self, code: int, errors: bytes, prefix: str) -> None:
        if code in (0, 1):
            self._was_run = True
        elif code < 0:
            self.remarks.is_broken = True
        else:
            self.check()
            self._note_unreadable(errors, prefix)

    def _note_unreadable(self, errors: bytes, prefix: str) -> None:
        """Name what cannot be read, if the workspace finds so too."""
        for found in itertools.islice(_FAILURE.finditer(errors), _FAILURES_LOOKED_AT_MAX):
            path = prefix + os.fsdecode(found[1])
            if self._shown.is_shown(path) and self._is_unreadable(path):
                self.remarks.unreadable.add(path)

    def _is_unreadable(self, path: str) -> bool:
        """Threat: the name of another file may look like a message with a name in it."""
        if len(os.fsencode(path)) >= limits.path_bytes_max:
            return True
        tree = self._workspace
        try:
            fd = tree.resolution.open(tree.root_fd, path, READ_FILE)
        except OSError as failure:
            return failure.errno not in _GONE
        try:
            os.pread(fd, 1, 0)
        except IsADirectoryError:
            return False
        except OSError:
            return True
        finally:
            os.close(fd)
        return False

    # Confirming

    def confirm(self, proposals: Proposals, most: int) -> Iterator[FileLines]:
        """In byte order of their paths, files with the lines that stand there; `most` matches.

        Where there are more, the last file says so, and may have nothing else to say. Once time
        is over, only those that were looked at while ripgrep worked are left.
        """
        left = most
        for path in sorted(proposals, key=os.fsencode):
            self.remarks.is_late = self.remarks.is_late or self.until.is_over
            if self.remarks.is_late and path not in self._early:
                continue
            lines = self._confirmed(path, proposals[path], left)
            if lines is not None:
                left -= lines.matches
                yield lines
                if lines.has_more:
                    return

    def _confirmed(self, path: str, rows: list[bytes], most: int) -> FileLines | None:
        if path in self._early:
            lines = self._early.pop(path)
            if lines is None or (lines.matches <= most and not lines.has_more):
                return lines
        return self._confirm_file(path, rows, most)

    def _confirm_file(self, path: str, rows: list[bytes], most: int) -> FileLines | None:
        try:
            file = self._workspace.open_file(unchecked_path(path))
        except HostError:
            raise
        except ToolError:
            return None  # gone, swapped, unreadable: it has no rows
        with file:
            content = Content(file, self.until)
            if self._is_binary(path, content):
                return None
            if path in self._cut_at_nul or not rows:
                rows = self._rows_of_text(path)
            lines = lines_of(content, rows, self.wanted.context)
            found = lines.standing(rows)
            if len(found) < len(rows) and self._has_changed(file):
                self.remarks.changed.add(path)
            if not found:
                return None
            shown = found[:most]
            numbers, texts = lines.around(shown, self.wanted.context)
            self.remarks.is_late = self.remarks.is_late or content.is_late
            has_more = len(found) > most
            return FileLines(path, numbers, texts, lines.numbers(shown), has_more)

    def _is_binary(self, path: str, content: Content) -> bool:
        """Whether a file has no rows; where time ends before that is known, it has none either."""
        sign = binary_sign(content.part(0, limits.binary_probe_bytes), content.size)
        if sign is BinarySign.LARGE_UTF16:
            self.remarks.large_utf16.add(path)
        if self._reads_past_nul or sign is not None:
            return sign is not None
        # All of a file that ripgrep found: how far ripgrep itself looked depends on the limit.
        is_binary = any(b"\0" in piece for piece in content.pieces(0))
        self.remarks.is_late = self.remarks.is_late or content.is_late
        return is_binary or content.is_late

    def _rows_of_text(self, path: str) -> list[bytes]:
        """Rows of a text with a NUL byte far from its beginning, where ripgrep stopped."""
        command = text_command(self.wanted.regex, path, self.wanted.matches_max + 1)
        reader = ProposalReader()
        with Child(command, self._workspace.root_fd, self.until) as child:
            rows = [row for piece in child.output() for row in reader.feed_rows(piece)]
            self.remarks.is_late = self.remarks.is_late or child.is_late
        return rows

    def _has_changed(self, file: OpenFile) -> bool:
        """Whether what stands inside was touched since the search began; names tell nothing."""
        return file.status.changed_ns > self._started_ns - _CLOCK_TICK_NS


def _count(found: Proposals) -> int:
    return sum(map(len, found.values()))


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
        raise InvalidPatternError(
            f"the pattern has {size} bytes, over {limits.search_pattern_bytes_max}",
            where="pattern",
            hint="give a shorter one",
        )
    if "\0" in pattern:
        raise InvalidPatternError(
            f"the pattern {quote(pattern)} holds a NUL character",
            where="pattern",
            hint="files with NUL bytes are binary and not searched",
        )


def _invalid(wanted: Wanted, errors: bytes) -> InvalidPatternError:
    """Ripgrep's own reason, which is about the pattern alone: nothing was searched."""
    said = errors.decode("utf-8", "replace").split("\n\n")[0].splitlines()
    reasons = [line.removeprefix("rg: ").strip() for line in said]
    # The pattern itself, wrapped and underlined, stands before the reason.
    reason = next((line for line in reasons if line.startswith("error: ")), "")
    reason = reason.removeprefix("error: ") or (reasons[0] if reasons else "")
    cut = limits.message_value_chars_max
    return InvalidPatternError(
        f"invalid regex: {quote(wanted.regex.pattern)}: {show_name(reason[:cut])}",
        where="pattern",
        hint=_hint(reason, wanted.literal_argument),
    )


def _hint(reason: str, literal_argument: str | None) -> str:
    if "\\n" in reason or "\\r" in reason:
        return "a pattern is matched against one line at a time"
    if "look-around" in reason or "backreference" in reason:
        return "regexes take linear time here: no look-around and no backreferences"
    if "size limit" in reason:
        return "use smaller repetition counts"
    escape = "escape characters that are meant as they stand"
    return escape if literal_argument is None else f"{escape}, or use {literal_argument}"
