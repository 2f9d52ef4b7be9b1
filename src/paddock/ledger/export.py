"""Export parts of a ledger that can be verified without the rest.

A page replaces omitted lines by the roots of whole subtrees, so the root that a checkpoint signs
can be recomputed from the page alone.
"""

from base64 import b64encode
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock import limits
from paddock.errors import HostError, UsageError
from paddock.ledger.format.line import leaf_hash
from paddock.ledger.format.lines import BadLine, inspect_line
from paddock.ledger.format.notes import HASH_BYTES, leaf_nodes, root_of
from paddock.ledger.query import Filter
from paddock.ledger.read import LedgerReader, is_shaped


class LeftOutLines(Struct, frozen=True):
    """The root of the tree over 2^`level` omitted lines."""

    level: int
    root: bytes


Row = bytes | LeftOutLines


class Exported(Struct, frozen=True):
    rows: list[Row]
    lines: int
    shown: int
    bad: int
    torn_bytes: int


class ExportedLines:
    """Stored lines, oldest first; `bad` and `torn_bytes` are final after iteration."""

    def __init__(self, path: str, wanted: Filter | None) -> None:
        self._path, self._wanted = path, wanted
        self.bad = self.torn_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        judged = _make_judge(self._wanted)
        with LedgerReader(self._path) as reader:
            size = reader.size()
            self.torn_bytes = size - reader.whole_bytes(size)
            for line in _whole_lines(reader):
                found = True if self._wanted is None else judged(line)
                if found is None:
                    self.bad += 1
                elif found:
                    yield line


def export_page(
    path: str, wanted: Filter | None, last: int | None, sizes: Sequence[int]
) -> Exported:
    """Keep line 0, matching lines and bad lines; no omitted range crosses one of `sizes`."""
    # Refuse more than a page holds before collecting it.
    most = None if last is None else min(last, limits.export_page_entries_max + 1)
    matched: deque[tuple[int, bytes]] = deque(maxlen=most)
    kept: dict[int, bytes] = {}
    judged = _make_judge(wanted)
    leaves, kept_bytes = bytearray(), 0
    with LedgerReader(path) as reader:
        size = reader.size()
        for place, line in enumerate(_whole_lines(reader)):
            leaves += bytes.fromhex(leaf_hash(line))
            found = judged(line) if place else None
            if found is None:
                kept[place] = line
            elif found:
                if len(matched) == most:
                    kept_bytes -= len(matched[0][1])
                matched.append((place, line))
            if place and found is not False:
                kept_bytes += len(line)
                entries_max, bytes_max = (
                    limits.export_page_entries_max,
                    limits.export_page_bytes_max,
                )
                if len(matched) + len(kept) > entries_max or kept_bytes > bytes_max:
                    said = f"a page holds {entries_max} entries and {bytes_max} bytes"
                    hint = "choose with --last, --since or --session, or export as jsonl"
                    raise UsageError(f"{said}, and this would be more", hint=hint)
        torn = size - reader.whole_bytes(size)
    count = len(leaves) // HASH_BYTES
    shown = dict(sorted({**kept, **dict(matched)}.items()))
    cuts = sorted({*(size for size in sizes if size < count), count})
    rows = list(_rows(leaves, shown, cuts))
    return Exported(rows, count, len(shown), max(0, len(kept) - 1), torn)


def _whole_lines(reader: LedgerReader) -> Iterator[bytes]:
    for start, _, runs in reader.files():
        for _, lines, is_whole in runs:
            if is_whole or start != reader.active.base:
                yield from lines


def _make_judge(wanted: Filter | None) -> Callable[[bytes], bool | None]:
    """Return a predicate for wanted lines; it returns None for a bad line that may match."""
    needles = [] if wanted is None else wanted.needles()

    def judged(line: bytes) -> bool | None:
        if is_shaped(line) and not all(needle in line for needle in needles):
            return False
        row = inspect_line(line)
        if isinstance(row, BadLine):
            return None
        return wanted is None or wanted.matches(row)

    return judged


def _rows(leaves: bytes | bytearray, shown: dict[int, bytes], cuts: Sequence[int]) -> Iterator[Row]:
    position = 0
    for place, line in shown.items():
        yield from _left_out(leaves, position, place, cuts)
        yield line
        position = place + 1
    yield from _left_out(leaves, position, cuts[-1], cuts)


def _left_out(
    leaves: bytes | bytearray, begin: int, end: int, cuts: Sequence[int]
) -> Iterator[LeftOutLines]:
    bounds = {*(cut for cut in cuts if begin < cut < end), end}
    if end > begin + 1:
        bounds.add(end - 1)  # its leaf hash is compared with the next line's `prev`
    for bound in sorted(bounds):
        while begin < bound:
            # The largest whole subtree that begins here.
            level = (bound - begin).bit_length() - 1
            level = min(level, (begin & -begin).bit_length() - 1) if begin else level
            places = range(begin, begin + (1 << level))
            part = [bytes(leaves[at * HASH_BYTES : (at + 1) * HASH_BYTES]) for at in places]
            yield LeftOutLines(level, root_of(leaf_nodes(part), len(part)))
            begin += len(part)


# The page is self-contained: it includes its script, style and data, and its
# Content-Security-Policy (a `meta` element, CSP level 3) lets nothing else run or load. The script
# is in `page/`; it reports what it verifies and what it cannot verify.
#
# Threat: an agent chose the ledger's contents. The page has them only as text, with the three
# characters that begin markup escaped, and the script puts them nowhere else.

_FOLDER: Final = Path(__file__).with_name("page")
_SCRIPTS: Final = ("sha2.js", "ed25519.js", "verify.js", "show.js")
_POLICY: Final = (
    "default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; "
    "base-uri 'none'; form-action 'none'"
)


class PageText(Struct, frozen=True):
    title: str
    about: str
    key: str
    notes: Sequence[str]


def make_page(text: PageText, rows: Iterable[Row]) -> bytes:
    style = _read("page.css")
    # Wrap the script in a function: it defines no globals that element names could shadow.
    script = f'"use strict";\n(() => {{\n{"".join(_read(name) for name in _SCRIPTS)}}})();\n'
    parts = {
        "POLICY": _POLICY.format(script=_digest(script), style=_digest(style)),
        "TITLE": _escaped(text.title),
        "ABOUT": _escaped(text.about),
        "KEY": _escaped(text.key),
        "NOTES": "\n".join(
            f'<pre class="note" hidden>\n{_escaped(note)}</pre>' for note in text.notes
        ),
        "LINES": "".join(f"{_row_text(row)}\n" for row in rows),
        "STYLE": style,
        "SCRIPT": script,
    }
    # Split the template at `@` before filling it: ledger text may contain an `@`.
    pieces = _read("page.html").split("@")
    filled = [parts[piece] if number % 2 else piece for number, piece in enumerate(pieces)]
    return "".join(filled).encode()


def _row_text(row: Row) -> str:
    if isinstance(row, LeftOutLines):
        return f"#{row.level} {row.root.hex()}"
    try:
        line = row.decode()
    except UnicodeDecodeError:
        line = ""
    # An HTML parser changes CR and NUL; other rows begin with a mark, `#` or `=`.
    if line.startswith("{") and not any(char < " " for char in line):
        return _escaped(line)
    return f"={b64encode(row).decode()}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode()).digest()).decode()


def _read(name: str) -> str:
    try:
        return (_FOLDER / name).read_text(encoding="utf-8")
    except OSError as fault:
        raise HostError(f"a part of the page is missing: {fault.strerror}", where=name) from fault
