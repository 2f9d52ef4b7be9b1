"""Apply V4A diffs: hunks that are located by their context, as OpenAI's `apply_patch` sends them.

    @@ class Anchor          start the search after this line; several narrow it down
     a line of context
    -a removed line
    +an added line
    *** End of File          the hunk is at the end

From the end of the last hunk on, context is matched exactly, then without trailing white space,
then without leading white space too. Either all hunks apply, or none. Lines outside of the hunks
keep their bytes; an added line gets the line end of its neighbours.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, takewhile
from typing import Final, TypeAlias

from paddock import limits
from paddock.errors import InvalidArgumentsError, StringNotFoundError, TextTooLargeError
from paddock.text.show import quote

_END_OF_FILE: Final = b"*** End of File"
_SEARCHED_BYTES_MAX: Final = 500_000_000
"""Searched for all hunks together: about a second."""
_LINES_MAX: Final = 1_000_000
_FORMS: Final[tuple[Callable[[bytes], bytes], ...]] = (bytes, bytes.rstrip, bytes.strip)
_EXACT, _STRIPPED = 0, 2
_Change: TypeAlias = tuple[int, int, Sequence[bytes]]
"""Start line, number of removed lines, added lines."""


def created_content(diff: str) -> str:
    """Return the content of a new file, whose lines begin with +. Raises: InvalidArgumentsError."""
    given = diff.encode("utf-8", "surrogatepass")
    lines = _lines_of(given)
    for line in lines:
        if not line.startswith(b"+"):
            raise _invalid("Invalid Add File Line", line)
    return _newline_of(given).join(line[1:] for line in lines).decode("utf-8", "surrogatepass")


def patched_content(content: bytes, diff: bytes) -> bytes:
    """Apply all hunks of `diff`.

    Raises: InvalidArgumentsError: not a V4A diff; StringNotFoundError: a hunk does not match;
    TextTooLargeError.
    """
    if content.count(b"\n") + diff.count(b"\n") > _LINES_MAX:
        raise _too_large(f"file and diff have over {_LINES_MAX} lines")
    text, cursor = _Text(content, _newline_of(diff)), 0
    changes: list[_Change] = []
    for headers, body, is_at_end in _hunks(_lines_of(diff)):
        for count, anchor in enumerate(filter(bytes.strip, headers)):
            found = text.find_anchor(anchor, cursor, may_be_passed=count == 0)
            if found is None and len(headers) > 1:
                raise _not_found(f"Invalid Anchor {cursor}", [anchor])
            cursor = cursor if found is None else found
        context, own = _section(body)
        place = text.find_place(context, cursor, is_at_end=is_at_end)
        changes += ((place + at, removed, added) for at, removed, added in own)
        cursor = place + len(context)
    return text.changed(changes)


def _hunks(lines: list[bytes]) -> Iterator[tuple[list[bytes], list[bytes], bool]]:
    """Yield each hunk's headers without @@, its lines, and True if it is at the end."""
    if not lines:
        raise _invalid("Nothing in this section", b"")
    at, total = 0, len(lines)
    while at < total:
        start = at
        while start < total and (lines[start] == b"@@" or lines[start].startswith(b"@@ ")):
            start += 1
        end = start
        while end < total and not lines[end].startswith((b"@@", _END_OF_FILE)):
            end += 1
        is_at_end = end < total and lines[end].startswith(_END_OF_FILE)
        if (at and start == at) or (end == start and not (start > at and is_at_end)):
            raise _invalid("Invalid Line", lines[min(start, total - 1)])
        yield [line[3:] for line in lines[at:start]], lines[start:end], is_at_end
        at = end + is_at_end


def _section(lines: Sequence[bytes]) -> tuple[list[bytes], list[_Change]]:
    context: list[bytes] = []
    changes: list[_Change] = []
    added: list[bytes] = []
    removed = 0
    # An extra line of context closes an open change.
    for line in (*lines, b" "):
        mark, rest = line[:1] or b" ", line[1:]
        if mark == b" " and (added or removed):
            changes.append((len(context) - removed, removed, added))
            added, removed = [], 0
        if mark == b"+":
            added.append(rest)
        elif mark in b"- ":
            removed += mark == b"-"
            context.append(rest)
        else:
            raise _invalid("Invalid Line", line)
    return context[:-1], changes


def _lines_of(diff: bytes) -> list[bytes]:
    lines = [line.rstrip(b"\r") for line in diff.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    kept = list(takewhile(lambda line: not line.startswith(b"*** End Patch"), lines))
    # Threat: lines of a patch could be ignored, and the patch reported as applied.
    if any(left := lines[len(kept) + 1 :]):
        raise _invalid("Invalid Line after the end of the patch", left[0])
    return kept


def _newline_of(diff: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in diff else b"\n"


def _invalid(what: str, line: bytes) -> InvalidArgumentsError:
    return InvalidArgumentsError(
        f"{what}: {quote(line.decode('utf-8', 'replace'))}",
        where="diff",
        hint="nothing was changed; give one file per call, each line with +, -, a space or @@",
    )


def _not_found(what: str, lines: Sequence[bytes]) -> StringNotFoundError:
    shown = b"\n".join(lines).decode("utf-8", "replace")[: limits.snippet_line_chars_max]
    hint = "nothing was changed; view the file and copy the context exactly"
    return StringNotFoundError(f"{what}: {quote(shown)}", hint=hint)


def _too_large(what: str) -> TextTooLargeError:
    return TextTooLargeError(what, hint="nothing was changed; give fewer hunks, or use a command")


class _Text:
    """Lines and, separately, their line ends; the last line follows the last newline."""

    def __init__(self, content: bytes, newline: bytes) -> None:
        *ended, last = content.split(b"\n")
        self._ends = [b"\r\n" if line.endswith(b"\r") else b"\n" for line in ended]
        self._newline = self._ends[-1] if ended else newline
        self._lines = [*(line.removesuffix(b"\r") for line in ended), last]
        self._views: dict[int, tuple[bytes, list[int]]] = {}
        self._left = _SEARCHED_BYTES_MAX

    def find_anchor(self, anchor: bytes, cursor: int, *, may_be_passed: bool) -> int | None:
        for form in (_EXACT, _STRIPPED):
            if may_be_passed and self._find([anchor], 0, cursor, form) is not None:
                return cursor
            found = self._find([anchor], cursor, len(self._lines), form)
            if found is not None:
                return found + 1
        return None

    def find_place(self, context: list[bytes], cursor: int, *, is_at_end: bool) -> int:
        starts, end = [cursor], len(self._lines)
        if is_at_end:
            end -= not self._lines[-1]
            starts = [max(0, end - len(context)), min(cursor, end)]
        for start in starts:
            if not context:
                return start
            for form in range(len(_FORMS)):
                found = self._find(context, start, end, form)
                if found is not None:
                    return found
        raise _not_found(f"Invalid {'EOF ' * is_at_end}Context {cursor}", context)

    def _find(self, wanted: list[bytes], start: int, end: int, form: int) -> int | None:
        if form not in self._views:
            rows = list(map(_FORMS[form], self._lines))
            starts = list(accumulate((len(row) + 1 for row in rows), initial=0))
            # A newline before and after each row: `starts` are the offsets of those before.
            self._views[form] = b"\n".join((b"", *rows, b"")), starts
        text, starts = self._views[form]
        low, high = starts[start], starts[end] + 1
        at = text.find(b"\n".join((b"", *map(_FORMS[form], wanted), b"")), low, high)
        # Threat: a long diff could search a large file once for each hunk.
        self._left -= (high if at < 0 else at) - low
        if self._left < 0:
            raise _too_large("the hunks are too far apart in too large a file")
        return None if at < 0 else bisect_left(starts, at)

    def changed(self, changes: Sequence[_Change]) -> bytes:
        # The last line gets a line end if another one follows it.
        rows, ends = list[tuple[bytes, bytes]](), [*self._ends, self._newline]
        seen = 0
        for at, removed, added in changes:
            if at < seen:
                raise _not_found(f"Overlapping hunks at line {at + 1}", added)
            rows += zip(self._lines[seen:at], ends[seen:at], strict=True)
            rows += ((line, ends[min(at, len(ends) - 1)]) for line in added)
            seen = at + removed
        rows += zip(self._lines[seen:], ends[seen:], strict=True)
        ended, last = rows[:-1], rows[-1:]
        return b"".join([*(part for row in ended for part in row), *(line for line, _ in last)])
