"""V4A diffs: hunks that are found by their context, as OpenAI's `apply_patch` sends them.

    @@ class Anchor          where to go on looking; several narrow it down
     a line of context
    -a line that goes
    +a line that comes
    *** End of File          the hunk stands at the end

Context is looked for exactly, then without white space at the ends of lines, then without any
around them, and from where the last hunk ended. All hunks have a place, or there is no result.
Every line that is not named keeps its bytes; a new one ends as its neighbours do.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Final

from msgspec import Struct, field

from paddock import limits
from paddock.errors import InvalidArgumentsError, StringNotFoundError, TextTooLargeError
from paddock.text.show import quote

_END_OF_FILE: Final = b"*** End of File"
_END_OF_PATCH: Final = b"*** End Patch"
_SEARCHED_BYTES_MAX: Final = 2_000_000_000
"""Looked through for all hunks together: some seconds."""
_FORMS: Final[tuple[Callable[[bytes], bytes], ...]] = (bytes, bytes.rstrip, bytes.strip)
_EXACT, _STRIPPED = 0, 2


class Change(Struct, frozen=True):
    """`removed` lines from the `at`th of the context on give way to `added`."""

    at: int
    removed: int
    added: tuple[bytes, ...]


class Hunk(Struct, frozen=True):
    anchors: tuple[bytes, ...]
    must_anchor: bool
    context: tuple[bytes, ...]
    changes: tuple[Change, ...]
    is_at_end: bool


def created_content(diff: bytes) -> bytes:
    """The content of a new file: each line of its diff begins with +. Raises: as `parse_hunks`."""
    lines = _lines_of(diff)
    for number, line in enumerate(lines, 1):
        if not line.startswith(b"+"):
            raise _invalid("Invalid Add File Line", line, number)
    return _newline_of(diff).join(line[1:] for line in lines)


def patched_content(content: bytes, diff: bytes) -> bytes:
    """The content with all hunks of `diff`, whose newlines match those of any line.

    Raises: InvalidArgumentsError: no V4A diff; StringNotFoundError: a hunk has no place;
    TextTooLargeError.
    """
    text = _Text(content)
    changes: list[Change] = []
    cursor = 0
    for hunk in parse_hunks(diff):
        for count, anchor in enumerate(hunk.anchors):
            cursor = _advance(text, cursor, hunk, anchor, is_first=count == 0)
        place = _find_place(text, cursor, hunk)
        cursor = place + len(hunk.context)
        changes += (
            Change(place + change.at, change.removed, change.added) for change in hunk.changes
        )
    return text.changed(changes, _newline_of(diff))


def parse_hunks(diff: bytes) -> list[Hunk]:
    """Raises: InvalidArgumentsError: with the line that is none of a diff."""
    lines = _lines_of(diff)
    hunks: list[Hunk] = []
    at = 0
    while at < len(lines):
        anchors: list[bytes] = []
        headers = at
        while at < len(lines) and (lines[at] == b"@@" or lines[at].startswith(b"@@ ")):
            anchors.append(lines[at][3:])
            at += 1
        if hunks and at == headers:
            raise _invalid("Invalid Line", lines[at], at + 1)
        body = at
        while at < len(lines) and not lines[at].startswith((b"@@", _END_OF_FILE)):
            at += 1
        is_at_end = at < len(lines) and lines[at].startswith(_END_OF_FILE)
        if at == body and (not is_at_end or at == headers):
            raise _invalid("Nothing in this section", lines[at - 1] if at else b"", at)
        named = tuple(anchor for anchor in anchors if anchor.strip())
        context, changes = _section(lines[body:at], body + 1)
        hunks.append(Hunk(named, len(anchors) > 1, context, changes, is_at_end))
        at += is_at_end
    if not hunks:
        raise InvalidArgumentsError(
            "the diff is empty", where="diff", hint="give lines that begin with +, - or a space"
        )
    return hunks


def _section(lines: Sequence[bytes], first: int) -> tuple[tuple[bytes, ...], tuple[Change, ...]]:
    context: list[bytes] = []
    changes: list[Change] = []
    added: list[bytes] = []
    removed = 0
    # One line of context more closes what is open.
    for number, line in enumerate((*lines, b" "), first):
        mark, rest = line[:1] or b" ", line[1:]
        if mark == b" " and (added or removed):
            changes.append(Change(len(context) - removed, removed, tuple(added)))
            added, removed = [], 0
        if mark == b"+":
            added.append(rest)
        elif mark in b"- ":
            removed += mark == b"-"
            context.append(rest)
        else:
            raise _invalid("Invalid Line", line, number)
    return tuple(context[:-1]), tuple(changes)


def _lines_of(diff: bytes) -> list[bytes]:
    """The lines up to the end of the patch. Raises: InvalidArgumentsError: something is behind."""
    lines = [line.rstrip(b"\r") for line in diff.split(b"\n")]
    if not lines[-1]:
        lines.pop()
    for at, line in enumerate(lines):
        if not line.startswith(_END_OF_PATCH):
            continue
        # Threat: a part that nobody applies, of a patch that was reported as done.
        if any(lines[at + 1 :]):
            raise _invalid("Invalid Line after the end of the patch", lines[at + 1], at + 2)
        return lines[:at]
    return lines


def _newline_of(diff: bytes) -> bytes:
    return b"\r\n" if b"\r\n" in diff else b"\n"


def _invalid(what: str, line: bytes, number: int) -> InvalidArgumentsError:
    return InvalidArgumentsError(
        f"{what}: {quote(line.decode('utf-8', 'replace'))}",
        where="diff",
        hint=f"it is line {number} of the diff; nothing was changed: one file a call, and each "
        "line begins with +, -, a space or @@",
    )


def _advance(text: "_Text", cursor: int, hunk: Hunk, anchor: bytes, *, is_first: bool) -> int:
    """Where to go on: behind the anchor, or here where it is missing, or has been passed."""
    for form in (_EXACT, _STRIPPED):
        if is_first and text.find((anchor,), 0, cursor, form) is not None:
            return cursor
        found = text.find((anchor,), cursor, text.count, form)
        if found is not None:
            return found + 1
    if hunk.must_anchor:
        raise _not_found(f"Invalid Anchor {cursor}", (anchor,))
    return cursor


def _find_place(text: "_Text", cursor: int, hunk: Hunk) -> int:
    starts, end = (cursor,), text.count
    if hunk.is_at_end:
        # What is behind the last newline is no line.
        end = text.count - (not text.lines[-1])
        starts = (max(0, end - len(hunk.context)), min(cursor, end))
    for start in starts:
        if not hunk.context:
            return start
        for form in range(len(_FORMS)):
            found = text.find(hunk.context, start, end, form)
            if found is not None:
                return found
    raise _not_found(f"Invalid {'EOF ' * hunk.is_at_end}Context {cursor}", hunk.context)


def _not_found(what: str, lines: Sequence[bytes]) -> StringNotFoundError:
    shown = b"\n".join(lines).decode("utf-8", "replace")[: limits.snippet_line_chars_max]
    return StringNotFoundError(
        f"{what}: {quote(shown)}",
        hint="nothing was changed; view the file and copy the context exactly",
    )


class _View(Struct, frozen=True):
    """All lines in one form, a newline before and behind each, and where each newline stands."""

    text: bytes
    starts: tuple[int, ...]


class _Text(Struct):
    content: bytes
    lines: list[bytes] = field(default_factory=list[bytes])
    """Without line ends; what is behind the last newline is the last one."""
    ends: list[bytes] = field(default_factory=list[bytes])
    views: dict[int, _View] = field(default_factory=dict[int, _View])
    left: int = _SEARCHED_BYTES_MAX

    def __post_init__(self) -> None:
        *ended, last = self.content.split(b"\n")
        self.ends = [b"\r\n" if line.endswith(b"\r") else b"\n" for line in ended]
        self.lines = [*(line.removesuffix(b"\r") for line in ended), last]

    @property
    def count(self) -> int:
        return len(self.lines)

    def find(self, wanted: Sequence[bytes], start: int, end: int, form: int) -> int | None:
        """The first of the places from line `start` on at which all of `wanted` is before `end`."""
        view = self.views.get(form)
        if view is None:
            rows = [_FORMS[form](line) for line in self.lines]
            starts = tuple(accumulate((len(row) + 1 for row in rows), initial=0))
            view = self.views[form] = _View(b"\n".join((b"", *rows, b"")), starts)
        sought = b"\n".join((b"", *(_FORMS[form](line) for line in wanted), b""))
        low, high = view.starts[start], view.starts[end] + 1
        at = view.text.find(sought, low, high)
        # Threat: a long diff whose hunks are looked for all through a large file, one by one.
        self.left -= (high if at < 0 else at) - low
        if self.left < 0:
            raise TextTooLargeError(
                "the hunks stand too far apart in too large a file",
                hint="nothing was changed; give fewer hunks at once",
            )
        return None if at < 0 else bisect_left(view.starts, at)

    def changed(self, changes: Sequence[Change], newline: bytes) -> bytes:
        rows = list(self._rows(changes, newline))
        if rows:
            rows[-1] = (rows[-1][0], b"")
        return b"".join(part for row in rows for part in row)

    def _rows(self, changes: Sequence[Change], newline: bytes) -> Iterator[tuple[bytes, bytes]]:
        lines = self.lines
        # The last line gets an end where another one comes behind it.
        ends = [*self.ends, self._end_near(len(lines), newline)]
        seen = 0
        for change in changes:
            if change.at < seen:
                raise _not_found(f"Overlapping hunks at line {change.at + 1}", change.added)
            yield from zip(lines[seen : change.at], ends[seen : change.at], strict=True)
            yield from ((line, self._end_near(change.at, newline)) for line in change.added)
            seen = change.at + change.removed
        yield from zip(lines[seen:], ends[seen:], strict=True)

    def _end_near(self, at: int, newline: bytes) -> bytes:
        """The line end of that line, or of the last one that has any."""
        return self.ends[min(at, len(self.ends) - 1)] if self.ends else newline
