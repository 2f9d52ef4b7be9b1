"""Blocks as a terminal shows them: wrapped between words, with colours where they are wanted."""

import io
from typing import Final

from rich.cells import cell_len
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as Rich

from paddock.apps.admin.show import (
    COLUMN_GAP,
    TABLE_INDENT,
    Block,
    FittedLine,
    Row,
    ShownTable,
    ShownText,
    TextLook,
    shown_text,
)

_WIDTH_MIN: Final = 20
_STYLES: Final = {
    TextLook.PLAIN: "",
    TextLook.DIM: "dim",
    TextLook.STRONG: "bold",
    TextLook.GOOD: "green",
    TextLook.BAD: "bold red",
    TextLook.WARN: "yellow",
    TextLook.LOUD: "bold reverse red",
    TextLook.ADDED: "green",
    TextLook.REMOVED: "red",
    TextLook.PLACE: "cyan",
}


class RichDrawing:
    """With colours, and wrapped between words. rich knows how wide a character is."""

    def __init__(self, *, colours: bool) -> None:
        self._file = io.StringIO()
        self._console = Console(
            file=self._file,
            force_terminal=True,
            color_system="standard",
            # Bold and reverse stay: NO_COLOR is about colour alone.
            no_color=not colours,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def lines(self, block: Block, width: int) -> list[str]:
        console, width = self._console, max(width, _WIDTH_MIN)
        match block:
            case ShownText():
                return self._text(block, width)
            case ShownTable():
                console.print(self._table(block), width=width)
            case FittedLine():
                console.print(self._fitted(block, width), width=width, no_wrap=True)
        return self._taken()

    def live(self, text: str, width: int, rows_max: int) -> str:
        """What is not a whole line yet, wrapped as it will be: its last rows, uncoloured."""
        rows = Rich(shown_text(text)).wrap(self._console, max(width, _WIDTH_MIN))
        return "\n".join(each.plain.rstrip() for each in rows[-rows_max:])

    def _text(self, block: ShownText, width: int) -> list[str]:
        found: list[str] = []
        inner = max(width - cell_len(block.gutter), _WIDTH_MIN // 2)
        for each in block.rows:
            found += [f"{block.gutter}{text}" for text in self._wrapped(_rich(each), inner)]
        return found

    def _wrapped(self, text: Rich, width: int) -> list[str]:
        """Where a line goes on, it stands as far in as it began."""
        indent = min(len(text.plain) - len(text.plain.lstrip(" ")), width // 2)
        self._console.print(text[indent:], width=width - indent, overflow="fold")
        return [f"{' ' * indent}{each}".rstrip(" ") for each in self._taken()]

    def _table(self, block: ShownTable) -> Padding:
        count = max((len(each) for each in block.rows), default=len(block.head))
        table = RichTable(
            box=None,
            show_header=bool(block.head),
            header_style="dim",
            pad_edge=False,
            padding=(0, COLUMN_GAP, 0, 0),
        )
        for place in range(count):
            is_last = place == count - 1
            name = block.head[place] if place < len(block.head) else ""
            table.add_column(name, overflow="fold", no_wrap=not is_last)
        for each in block.rows:
            table.add_row(*(_rich((span,)) for span in each))
        return Padding(table, (0, 0, 0, TABLE_INDENT))

    def _fitted(self, block: FittedLine, width: int) -> Rich:
        left, right = _rich(block.left), _rich(block.right)
        room = max(width - left.cell_len - right.cell_len, 1)
        middle = _rich((block.middle,))
        middle.truncate(room, overflow="ellipsis")
        return left + middle + right

    def _taken(self) -> list[str]:
        text = self._file.getvalue()
        self._file.seek(0)
        self._file.truncate()
        return [each.rstrip(" ") for each in text.removesuffix("\n").split("\n")]


def _rich(row: Row) -> Rich:
    found = Rich()
    for span in row:
        found.append(shown_text(span.text), style=_STYLES[span.look])
    return found
