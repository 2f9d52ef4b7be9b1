"""What can be shown, as values: no colours, no widths, no terminal."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple


class Look(StrEnum):
    """What a piece of text is. A look never carries meaning of its own: the words do."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    LOUD = "loud"
    ADDED = "added"
    REMOVED = "removed"
    PLACE = "place"


class Span(NamedTuple):
    """A piece of one line. Whatever stands in `text` is escaped when it is drawn."""

    text: str
    look: Look = Look.PLAIN


Row = tuple[Span, ...]
SPOKEN: Final = "┃ "
"""Before every line of a model's."""


@dataclass(frozen=True, slots=True)
class Text:
    """Lines that wrap. `gutter` stands before each of them, and where they go on."""

    rows: tuple[Row, ...]
    gutter: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Columns that line up; the last one wraps."""

    rows: tuple[Row, ...]
    head: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fitted:
    """One line that never wraps: where it is too long, `middle` is cut and says so."""

    left: Row
    middle: Span
    right: Row


Block = Text | Table | Fitted


def line(*parts: str | Span, gutter: str = "") -> Text:
    return Text((row(*parts),), gutter)


def row(*parts: str | Span) -> Row:
    return tuple(part if isinstance(part, Span) else Span(part) for part in parts)


def lines(text: str, look: Look = Look.PLAIN, gutter: str = "") -> Text:
    """Text of somebody's, line by line."""
    return Text(tuple((Span(each, look),) for each in text.split("\n")), gutter)


def spoken(text: str, look: Look = Look.PLAIN) -> Text:
    """What a model says.

    Threat: it can write lines like ours, a call with its decision, a note, a question; so
    each line of it stands behind a mark that no row of ours begins with.
    """
    return lines(text, look, SPOKEN)


def pairs(rows: Iterable[tuple[str, str | Span]]) -> Table:
    """Names and what belongs to them."""
    found = (row(Span(name, Look.DIM), value) for name, value in rows)
    return Table(tuple(found))


def diff_rows(text: str) -> tuple[Row, ...]:
    """The lines of a unified diff, each with its look; the marks stand there anyway."""
    return tuple((Span(each, _look_of(each)),) for each in text.split("\n"))


def _look_of(diff_line: str) -> Look:
    if diff_line.startswith(("--- ", "+++ ")):
        return Look.DIM
    looks = {"+": Look.ADDED, "-": Look.REMOVED, "@": Look.PLACE}
    return looks.get(diff_line[:1], Look.PLAIN)
