"""Replace a text by another, and leave every other byte unchanged.

A common prefix or suffix of old and new text is not part of the edit: its bytes in
the file stay as they are, line ends included. In the really new part, a newline
without CR becomes the line end of the lines around it. But if the old text has a
CRLF, the edit is about line ends, and those of the new text are taken literally.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import BinaryFileError, TextEncodingError, TextTooLargeError
from paddock.pattern import lazy_pattern
from paddock.text.show import number_lines, quote

_REJECTED_BYTES_MAX: Final = 16_000_000
"""Bytes of candidates that do not match: about a second."""
_BARE_NEWLINE = lazy_pattern(rb"(?<!\r)\n")
_CR_LOCATE, _LF_LOCATE, _CRLF = b"\r", b"\n", b"\r\n"


class Span(Struct, frozen=True):
    start: int
    end: int


def find_spans(content: bytes, sought: bytes) -> Iterator[Span]:
    """Yield every match of `sought`, which is not empty, from the front, overlaps included.

    A newline without CR in it matches LF and CRLF. Raises: TextTooLargeError: too much of
    `content` differs only in line ends.
    """
    if _BARE_NEWLINE.search(sought) is None or b"\r\n" not in content:
        yield from _find_literal(content, sought, 1)
    else:
        yield from _find_in_either_style(content, sought, 1)


def find_apart(content: bytes, sought: bytes) -> Iterator[Span]:
    """Yield matches as `find_spans` does, but without overlaps."""
    if _BARE_NEWLINE.search(sought) is None or b"\r\n" not in content:
        yield from _find_literal(content, sought, len(sought))
    else:
        yield from _find_in_either_style(content, sought, len(sought.replace(_CRLF, _LF_LOCATE)))


def _find_in_either_style(content: bytes, sought: bytes, step: int) -> Iterator[Span]:
    """Search with plain newlines, then check the line ends of each candidate; linear.

    `step` is the minimum distance in bytes between two matches, CRLF counted as one.
    """
    # A CR at the very end may be the first half of a line end, which a search with
    # plain newlines does not see.
    tail = _CR_LOCATE if sought.endswith(_CR_LOCATE) else b""
    sought = sought.removesuffix(_CR_LOCATE)
    flat, wanted = content.replace(_CRLF, _LF_LOCATE), sought.replace(_CRLF, _LF_LOCATE)
    pieces = sought.split(_LF_LOCATE) if _CR_LOCATE in sought else []
    at, seen, start, rejected = flat.find(wanted), 0, 0, 0
    while at >= 0:
        start, seen = _advance(content, start, at - seen), at
        end = _advance(content, start, len(wanted))
        if content.startswith(tail, end) and _has_ends(content[start:end], pieces):
            yield Span(start, end + len(tail))
            at = flat.find(wanted, at + step)
        else:
            # Threat: a long text of line ends could be rejected at every offset of a file.
            rejected += end - start
            if rejected > _REJECTED_BYTES_MAX:
                raise TextTooLargeError(
                    "the text matches in too many places, except for its line ends",
                    hint="give a shorter text, or newlines without CR: they match both line ends",
                )
            at = flat.find(wanted, at + 1)


def _advance(content: bytes, at: int, count: int) -> int:
    """Return the offset `count` bytes after `at`, CRLF counted as one; `at` is not inside one."""
    while count:
        stop = at + count
        count = content.count(_CRLF, at, stop)
        at = stop + (content[stop - 1 : stop + 1] == _CRLF)
    return at


def _has_ends(found: bytes, pieces: list[bytes]) -> bool:
    return not pieces or all(
        piece in (sought, sought + _CR_LOCATE)
        for piece, sought in zip(found.split(_LF_LOCATE), pieces, strict=True)
    )


def _find_literal(content: bytes, sought: bytes, step: int) -> Iterator[Span]:
    # Without a CRLF that a match could split, plain search is exact.
    at = content.find(sought)
    while at >= 0:
        yield Span(at, at + len(sought))
        at = content.find(sought, at + step)


def lines_of(content: bytes, spans: list[Span]) -> list[int]:
    lines: list[int] = []
    line, seen = 1, 0
    for span in spans:
        line += content.count(b"\n", seen, span.start)
        seen = span.start
        lines.append(line)
    return lines


_CR, _LF = 13, 10


class Spliced(Struct, frozen=True):
    """A content with `inserted` in place of `replaced`, unjoined to avoid copying a large file."""

    before: bytes
    replaced: Span
    inserted: bytes

    @property
    def pieces(self) -> tuple[memoryview, ...]:
        before = memoryview(self.before)
        front, back = before[: self.replaced.start], before[self.replaced.end :]
        return front, memoryview(self.inserted), back

    @property
    def changes_nothing(self) -> bool:
        return self.before[self.replaced.start : self.replaced.end] == self.inserted


def splice(content: bytes, place: Span, old: bytes, new: bytes) -> Spliced:
    span, inserted = _Change(old, new).at(content, place, _LineEnds(content))
    return Spliced(content, span, inserted)


def splice_all(content: bytes, old: bytes, new: bytes, bytes_max: int) -> tuple[bytes, int]:
    """Replace every match of `old` by `new`; return the result and the number of matches.

    Raises: TextTooLargeError: over `bytes_max`, or as `find_apart`.
    """
    has_newlines = _BARE_NEWLINE.search(old) or _BARE_NEWLINE.search(new)
    if has_newlines is None or b"\r\n" not in content:
        # No line end has to be adapted: replace bytes.
        count = content.count(old)
        _require_room(len(content) + count * (len(new) - len(old)), bytes_max)
        return content.replace(old, new), count
    change, ends = _Change(old, new), _LineEnds(content)
    pieces: list[bytes] = []
    count = seen = size = 0
    for place in find_apart(content, old):
        span, inserted = change.at(content, place, ends)
        pieces += (content[seen : span.start], inserted)
        size += span.start - seen + len(inserted)
        _require_room(size, bytes_max)
        seen = span.end
        count += 1
    _require_room(size + len(content) - seen, bytes_max)
    return b"".join((*pieces, content[seen:])), count


def _require_room(size_bytes: int, bytes_max: int) -> None:
    if size_bytes > bytes_max:
        raise TextTooLargeError(
            f"the file would have {size_bytes} bytes or more, {bytes_max} are allowed",
            hint="replace less; nothing was changed",
        )


class _Change:
    __slots__ = ("_adapts", "_back", "_front", "_inserted", "_old")

    def __init__(self, old: bytes, new: bytes) -> None:
        self._old = old
        self._front = _common_front(old, new)
        self._back = _common_back(old, new, self._front)
        self._inserted = new[self._front : len(new) - self._back]
        self._adapts = b"\r\n" not in old and _BARE_NEWLINE.search(self._inserted) is not None

    def at(self, content: bytes, place: Span, ends: "_LineEnds") -> tuple[Span, bytes]:
        old, front, back = self._old, self._front, self._back
        start = place.start + _width(content, place.start, old[:front])
        end = place.end - _width_back(content, place.end, old[len(old) - back :])
        span, inserted = Span(start, end), self._inserted
        if self._adapts:
            newline = ends.near(span.start)
            if newline != b"\n":
                inserted = _BARE_NEWLINE.sub(newline, inserted)
        return span, inserted


class _LineEnds:
    """Finds the line end near an offset; ascending offsets cost one pass in total."""

    __slots__ = ("_content", "_last", "_next")

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._next = -1
        self._last: int | None = None

    def near(self, start: int) -> bytes:
        """Return the first line end from `start` on, else the one before; LF if there is none."""
        content = self._content
        if self._last is None and self._next < start:
            self._next = content.find(b"\n", start)
            if self._next < 0:
                self._last = content.rfind(b"\n")
        at = self._next if self._last is None else self._last
        return b"\r\n" if at > 0 and content[at - 1] == _CR else b"\n"


def _common_front(old: bytes, new: bytes) -> int:
    longest = min(len(old), len(new))
    count = _shared_length(old[:longest], new[:longest])
    return count - 1 if count and old[count - 1] == _CR else count


def _common_back(old: bytes, new: bytes, front: int) -> int:
    longest = min(len(old), len(new)) - front
    if longest == 0:
        return 0
    count = _shared_length(old[: -longest - 1 : -1], new[: -longest - 1 : -1])
    if count and old[-count] == _LF and (_follows_cr(old, count) or _follows_cr(new, count)):
        return count - 1
    return count


def _follows_cr(text: bytes, count: int) -> bool:
    return len(text) > count and text[-count - 1] == _CR


def _shared_length(left: bytes, right: bytes) -> int:
    if left == right:
        return len(left)
    low, high = 0, len(left)
    # Comparing slices is one memcmp: log2(n) of them beat a loop over bytes.
    while low + 1 < high:
        middle = (low + high) // 2
        if left[low:middle] == right[low:middle]:
            low = middle
        else:
            high = middle
    return low


def _width(content: bytes, start: int, shared: bytes) -> int:
    at = start
    for piece in _pieces(shared):
        at += len(piece)
        if piece == b"\n" and content[at - 1] == _CR:
            at += 1
    return at - start


def _width_back(content: bytes, end: int, shared: bytes) -> int:
    at = end
    for piece in reversed(_pieces(shared)):
        at -= len(piece)
        if piece == b"\n" and at > 0 and content[at - 1] == _CR:
            at -= 1
    return end - at


def _pieces(shared: bytes) -> list[bytes]:
    """Split `shared` so that each bare newline is a separate piece."""
    pieces: list[bytes] = []
    seen = 0
    for newline in _BARE_NEWLINE.finditer(shared):
        pieces += [shared[seen : newline.start()], b"\n"]
        seen = newline.end()
    return [piece for piece in [*pieces, shared[seen:]] if piece]


_BYTES_SEARCHED_MAX = 20_000_000
_LINES_COMPARED_MAX = 20_000
_SIMILARITY_MIN = 0.6
_PAIRS_COMPARED_MAX = 10_000_000
"""Pairs of characters: two similar lines cost the product of their lengths, others the sum."""
_WALKED_CHARS_MAX: Final = 20_000_000
"""Characters compared after the first lines of candidates."""
_WALKED_LINE_CHARS: Final = 32
"""The cost of a line besides its characters."""


class NearLine(Struct, frozen=True):
    number: int
    text: str
    is_end: bool = False
    """True if the content ends with this line, but the sought text does not."""


def find_nearest(content: bytes, sought: bytes) -> list[NearLine]:
    """Return up to `limits.nearest_lines_max` lines that differ from `sought`, nearest first.

    A candidate begins with a line that equals the first sought one except for white space;
    if there is none, with a similar line. The first differing line of each candidate is
    returned. Search and comparison are bounded.
    """
    wanted = sought.decode("utf-8", "replace").split("\n")
    lead = next((at for at, line in enumerate(wanted) if line.strip()), None)
    if lead is None:
        return []
    lines = content[:_BYTES_SEARCHED_MAX].decode("utf-8", "replace").split("\n")
    first = wanted[lead].rstrip("\r")
    squeezed = "".join(first.split())
    places = (at for at, line in enumerate(lines) if "".join(line.split()) == squeezed)
    is_whole = len(content) <= _BYTES_SEARCHED_MAX
    found = _differing(lines, wanted, (at - lead for at in places), is_whole=is_whole)
    if found:
        return found
    similar = _most_similar(first, lines[:_LINES_COMPARED_MAX])
    return _differing(lines, wanted, (at - lead for at in similar), is_whole=is_whole)


def _differing(
    lines: list[str], wanted: list[str], places: Iterable[int], *, is_whole: bool
) -> list[NearLine]:
    """Return the first differing line of each candidate, longest agreement first.

    `places` are the indices at which `wanted` would begin; `is_whole`: `lines` is complete.
    """
    agreeing: dict[int, int] = {}
    left = _WALKED_CHARS_MAX
    for begin in places:
        agreed, left = _agreed(lines, wanted, begin, left)
        if left < 0:
            break
        at = max(begin + agreed, 0)
        if agreed < len(wanted) and (is_whole or at < len(lines)):
            agreeing[at] = max(agreed, agreeing.get(at, 0))
    # Sorting is stable: candidates with equal agreement keep their order.
    ordered = sorted(agreeing, key=lambda at: -agreeing[at])[: limits.nearest_lines_max]
    last = len(lines) - 1
    if last and not lines[last]:
        last -= 1  # no line follows the last line end
    shown = ((at, min(at, last)) for at in ordered)
    return [NearLine(line + 1, lines[line].rstrip("\r"), at > last) for at, line in shown]


def _agreed(lines: list[str], wanted: list[str], begin: int, left: int) -> tuple[int, int]:
    """Count the lines of `wanted` that match from line `begin` on; return also the budget left.

    Like a search for the text: its first line may begin, and its last one end, inside a
    line, and a line end without CR matches any.
    """
    last = len(wanted) - 1
    for count, text in enumerate(wanted):
        left -= len(text) + _WALKED_LINE_CHARS
        if left < 0 or not 0 <= begin + count < len(lines):
            return count, left
        line = lines[begin + count]
        if count == last:
            agrees = text in line if last == 0 else line.startswith(text)
        else:
            ends = (text, text + "\r")
            agrees = line.endswith(ends) if count == 0 else line in ends
        if not agrees:
            return count, left
    return len(wanted), left


def _most_similar(wanted: str, lines: list[str]) -> list[int]:
    import difflib  # noqa: PLC0415 - only for a text that was not found

    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(wanted.strip())
    scored: list[tuple[float, int]] = []
    left = _PAIRS_COMPARED_MAX
    for index, line in enumerate(lines):
        candidate = line.strip()
        # A line of a very different length cannot be similar; skip it unread.
        if not len(wanted) // 3 <= len(candidate) <= len(wanted) * 3 + 3:
            continue
        left -= len(wanted) + len(candidate)
        if left < 0:
            break
        matcher.set_seq1(candidate)
        if matcher.real_quick_ratio() < _SIMILARITY_MIN or matcher.quick_ratio() < _SIMILARITY_MIN:
            continue
        left -= len(wanted) * len(candidate)
        if left < 0:
            break
        ratio = matcher.ratio()
        if ratio >= _SIMILARITY_MIN:
            scored.append((-ratio, index))
    return [index for _, index in sorted(scored)[: limits.nearest_lines_max]]


def snippet_around(spliced: Spliced) -> str:
    """Return the inserted lines with three more before and after, numbered.

    Only these lines are split, so the cost does not grow with the file. A long snippet is
    cut in the middle and says so.
    """
    before, replaced = spliced.before, spliced.replaced
    start = _back_lines(before, replaced.start, limits.snippet_context_lines)
    changed = before[start : replaced.start] + spliced.inserted
    # A text that ends with a newline ends on the line before.
    after = limits.snippet_context_lines + (not changed.endswith(b"\n"))
    end = _forward_lines(before, replaced.end, after)
    first = before.count(b"\n", 0, start) + 1
    lines = (changed + before[replaced.end : end]).split(b"\n")
    if lines and lines[-1] == b"":
        lines.pop()
    half = limits.snippet_lines_max // 2
    if len(lines) <= limits.snippet_lines_max:
        return number_lines(lines, first, limits.snippet_line_chars_max)
    head = number_lines(lines[:half], first, limits.snippet_line_chars_max)
    tail_first = first + len(lines) - half
    tail = number_lines(lines[-half:], tail_first, limits.snippet_line_chars_max)
    missing = len(lines) - 2 * half
    return f"{head}\n[... {missing} lines not shown; view with offset={first + half}]\n{tail}"


def snippet_of_head(content: bytes) -> str:
    """Return the first lines of a new file, numbered; a cut is stated."""
    lines = content.split(b"\n", limits.snippet_lines_max)
    rest = lines.pop() if len(lines) > limits.snippet_lines_max else b""
    if lines and lines[-1] == b"":
        lines.pop()
    shown = number_lines(lines, 1, limits.snippet_line_chars_max)
    if not rest:
        return shown
    missing = rest.count(b"\n") + (not rest.endswith(b"\n"))
    return f"{shown}\n[... {missing} lines not shown; view with offset={len(lines) + 1}]"


def _back_lines(content: bytes, at: int, count: int) -> int:
    start = content.rfind(b"\n", 0, at) + 1
    for _ in range(count):
        if start == 0:
            break
        start = content.rfind(b"\n", 0, start - 1) + 1
    return start


def _forward_lines(content: bytes, at: int, count: int) -> int:
    end = at
    for _ in range(count):
        end = content.find(b"\n", end) + 1
        if end == 0:
            return len(content)
    return end


# Checks of content before it is shown, edited or written.

KEEP_ENCODING: Final = (
    "do not convert it: an edit with ASCII old and new text keeps the file's encoding; "
    "to read it, decode it in a command (iconv -f ENCODING)"
)
_MULTI_BYTE: Final = (
    lazy_pattern(rb"(?:[\x00-\x80\xff]++|[\x81-\xfe][\x30-\x7e\x80-\xfe])*+"),
    lazy_pattern(
        rb"(?:[\x00-\x80\xa0-\xdf\xfd-\xff]++|[\x81-\x9f\xe0-\xfc][\x40-\x7e\x80-\xfc])*+"
    ),
)
"""Encodings in which a byte below 0x80 may end a character: GB 18030, Big5, UHC; Shift-JIS."""
_NEVER_WITHIN: Final = 0x30
"""In none of them can a smaller byte be part of a multi-byte character."""
_LOOKED_BACK_BYTES: Final = 4096
_SAMPLE_BYTES: Final = 1_000_000
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


def require_text(content: bytes, name: str) -> None:
    """Refuse content that is not UTF-8 text. Raises: BinaryFileError, TextEncodingError."""
    if b"\0" in content[: limits.binary_probe_bytes]:
        raise BinaryFileError(
            f"{quote(name)} is a binary file: it has a NUL byte at offset {content.index(0)}",
            hint="only UTF-8 text can be viewed or edited",
        )
    try:
        content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise TextEncodingError(
            f"{quote(name)} is not UTF-8: byte 0x{content[error.start]:02x} "
            f"at offset {error.start}, line {line}",
            hint=f"nothing was changed; {KEEP_ENCODING}",
        ) from None


def require_apart(content: bytes, starts: Iterable[int], name: str) -> None:
    """Refuse an edit of ASCII text that may begin within a character of another encoding.

    Such characters begin with a byte of 0x80 or more, so only the first byte of a match
    can be the end of one: 0x5c is both a backslash and half of a Japanese character.

    Raises:
        BinaryFileError: a NUL byte anywhere, or a UTF-16 byte-order mark.
        TextEncodingError: a match may begin so, in an encoding that the file may have.
    """
    if b"\0" in content or content.startswith(_UTF16_MARKS):
        raise BinaryFileError(f"{quote(name)} is a binary file", hint="only text can be edited")
    sample = content[:_SAMPLE_BYTES]
    # A character may be cut at the end of the sample.
    possible = [each for each in _MULTI_BYTE if _matched(each, sample) >= len(sample) - 1]
    for at in starts:
        if at == 0 or content[at - 1] < 0x80 or content[at] < _NEVER_WITHIN:
            continue
        begin = at
        while begin and at - begin < _LOOKED_BACK_BYTES and content[begin - 1] >= _NEVER_WITHIN:
            begin -= 1
        before = content[begin:at]
        if len(before) == _LOOKED_BACK_BYTES or any(
            _matched(each, before) < len(before) for each in possible
        ):
            raise TextEncodingError(
                f"{quote(name)} is not UTF-8, and the old text may begin inside a multi-byte "
                f"character, at offset {at}",
                hint="begin the old text one ASCII character earlier",
            )


def _matched(encoding: re.Pattern[bytes], content: bytes) -> int:
    found = encoding.match(content)
    return found.end() if found else 0


def require_content(text: str, argument: str) -> bytes:
    """Encode an argument that will be written.

    Raises:
        BinaryFileError: it has a NUL.
        TextEncodingError: it has half of a surrogate pair.
        TextTooLargeError: over `limits.content_bytes_max`.
    """
    at = text.find("\0")
    if at >= 0:
        raise BinaryFileError(
            f"{argument} has a NUL character at position {at}",
            hint="only text can be written",
        )
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise TextEncodingError(
            f"{argument} has half of a surrogate pair at position {error.start}",
            hint="send whole Unicode characters",
        ) from None
    if len(content) > limits.content_bytes_max:
        raise TextTooLargeError(
            f"{argument} has {len(content)} bytes, {limits.content_bytes_max} are allowed",
            hint="write it in parts",
        )
    return content
