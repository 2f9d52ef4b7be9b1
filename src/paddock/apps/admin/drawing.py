"""Blocks as text: for pipes and plain terminals as they are; `rich_drawing` for others.

Threat: whatever is shown may have been written by a model, a file or a package: every
span passes `shown_text` here, and nothing else writes to a screen.
"""

from typing import Final, Protocol

from paddock.apps.admin.show import Block, FittedLine, Row, ShownTable, ShownText
from paddock.text.show import show_line

_TAB: Final = "    "
_MIDDLE_CHARS_MAX: Final = 100
"""Of a line that is fitted, where no width is known."""
COLUMN_GAP: Final = 2
TABLE_INDENT: Final = 2


def shown_text(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act upon."""
    return show_line(text.replace("\t", _TAB))[0].replace("\n", "\\n")


class Drawing(Protocol):
    def lines(self, block: Block, width: int) -> list[str]: ...


class PlainDrawing:
    def lines(self, block: Block, width: int = 0) -> list[str]:
        match block:
            case ShownText():
                return [f"{block.gutter}{_plain(each)}".rstrip() for each in block.rows]
            case ShownTable():
                return _columns(block)
            case FittedLine():
                middle = _cut(shown_text(block.middle.text), _MIDDLE_CHARS_MAX)
                return [f"{_plain(block.left)}{middle}{_plain(block.right)}".rstrip()]


def _plain(row: Row) -> str:
    return "".join(shown_text(span.text) for span in row)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _columns(table: ShownTable) -> list[str]:
    rows = [[shown_text(span.text) for span in each] for each in table.rows]
    if table.head:
        rows.insert(0, list(table.head))
    count = max((len(each) for each in rows), default=0)
    widths = [
        max((len(each[place]) for each in rows if place < len(each)), default=0)
        for place in range(count)
    ]
    margin = " " * TABLE_INDENT
    return [
        (margin + (" " * COLUMN_GAP).join(map(str.ljust, each, widths))).rstrip() for each in rows
    ]
