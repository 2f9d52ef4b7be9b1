"""What ripgrep prints, taken apart: files, and under each its lines.

    ./src/a.py NUL 12:text of line 12
    13:text of line 13
    (an empty line ends the file)

With `--crlf` the empty line may end in CRLF, and a last line without a line end gets one.

No text can pass for another: a row begins with a digit and a path with `./`, a path ends at a NUL,
which neither holds, and no row is empty. What else ripgrep prints is that files are binary: behind
a file's rows, for any number of files; it begins with a path. A row is kept up to a limit.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from paddock import limits
from paddock.pattern import lazy_pattern

_PATH_START: Final = b"./"
_BINARY: Final = b": binary file matches (found "
_EMPTY_LINE: Final = lazy_pattern(rb"\n\r?\n")
_LINE_AND_PATH_BYTES_MAX: Final = 1 + len(_PATH_START) + limits.path_bytes_max


class Proposal(NamedTuple):
    """Rows of one file: `number:text`, without the line end. More may follow."""

    path: bytes
    rows: list[bytes]


class ProposalReader:
    """Takes pieces of output and gives proposals. `known` are the paths asked for, if any were."""

    __slots__ = ("_known", "_path", "_rest", "_skips_row", "binary")

    def __init__(self, known: AbstractSet[bytes] | None = None) -> None:
        self._known = known
        self._path: bytes | None = None
        self._rest = b""
        self._skips_row = False
        self.binary: list[bytes] = []
        """Files whose search ended at a NUL byte: those that stand before the last path that came,
        and after `close` all of them."""

    def feed(self, piece: bytes) -> Iterator[Proposal]:
        data = self._rest + piece if self._rest else piece
        at = 0
        while at < len(data):
            if self._path is None:
                end = data.find(b"\0", at)
                if end < 0:
                    break
                self._path = self._named(data[at:end])
                at = end + 1
                continue
            if self._skips_row:
                end = data.find(b"\n", at)
                if end < 0:
                    at = len(data)
                    break
                at = end + 1
                self._skips_row = False
                continue
            if data[at] in b"\r\n":
                self._path = None if data[at] == 0x0A else self._path
                at += 1
                continue
            if data[at] == _PATH_START[0]:
                past = self._past_words(data, at)
                if past < 0:
                    break
                at = past
                continue
            past, rows = self._rows(data, at)
            if past == at:
                break
            at = past
            if rows:
                yield Proposal(self._path, rows)
        self._rest = data[at:]

    def close(self) -> None:
        """Nothing more comes: look at what is left, which can only be a word about a binary."""
        self._named(self._rest)

    def feed_rows(self, piece: bytes) -> list[bytes]:
        self._path = self._path or b""
        return [row for proposal in self.feed(piece) for row in proposal.rows]

    def _rows(self, data: bytes, at: int) -> tuple[int, list[bytes]]:
        """Where to go on, and the rows before that; the end of the file's rows is left in place."""
        stop = _EMPTY_LINE.search(data, at)
        end = data.rfind(b"\n", at) if stop is None else stop.start()
        if end >= at:
            words = data.find(b"\n" + _PATH_START, at, end)
            end = end if words < 0 else words
            return end + 1, data[at:end].split(b"\n")
        if len(data) - at > limits.search_row_bytes_max:
            self._skips_row = True
            return len(data), [data[at : at + limits.search_row_bytes_max]]
        return at, []

    def _past_words(self, data: bytes, at: int) -> int:
        """Where to go on behind what is said of binary files; -1 if more of it is needed."""
        if self._known is not None:
            # Of any number of files, whose names may hold empty lines: only the next path,
            # which ends at a NUL byte, tells where it ends.
            self._path = None
            return at
        # In a walk it is said of the file alone that the rows are from.
        path = self._path or b""
        end = data.find(b"\n", at + len(_PATH_START) + len(path))
        if end >= 0:
            self.binary.append(path)
        return end + 1 if end >= 0 else -1

    def _named(self, text: bytes) -> bytes:
        """The path at the end of `text`, which words about binary files may stand before."""
        if self._known is None or text in self._known:
            return text[len(_PATH_START) :]
        # No longer path can be opened. Looking no farther back keeps the work in proportion.
        at = text.find(b"\n" + _PATH_START, max(0, len(text) - _LINE_AND_PATH_BYTES_MAX))
        while at >= 0 and text[at + 1 :] not in self._known:
            at = text.find(b"\n" + _PATH_START, at + 1)
        words, path = (text, b"") if at < 0 else (text[:at], text[at + 1 :])
        self._note_all(words, self._known)
        return path[len(_PATH_START) :]

    def _note_all(self, text: bytes, known: AbstractSet[bytes]) -> None:
        """Keep the names of binary files; names may hold line breaks, and the words themselves."""
        begin = 0
        at = text.find(_BINARY)
        while at >= 0:
            name = text[begin:at].lstrip(b"\r\n")
            if name in known:
                self.binary.append(name[len(_PATH_START) :])
                end = text.find(b"\n", at)
                begin = len(text) if end < 0 else end
            at = text.find(_BINARY, max(begin, at + 1))
