"""The one door to tree-sitter, loaded at the first parse. A tree with errors is still a tree."""

import re
from bisect import bisect_left
from functools import cache
from typing import TYPE_CHECKING, Final

from paddock.limits import command_code_chars_max
from paddock.pattern import lazy_pattern

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# What the parser takes as one token, however long it is.
_OPAQUE: Final = lazy_pattern(
    r"""\\.
      | "\$\(cat[ ]<<'(?P<said>\w+)'\n(?:(?!(?P=said)\n)[^\n]*\n)*+(?P=said)\n\)"
      | <<-?+[ \t]*+(?P<quote>['"]?+)(?P<mark>\w++)(?P=quote)
      | '[^']*'
      | "(?:[^"\\]|\\.)*"
      | (?<![^\s;&|()])\#[^\n]*
    """,
    re.VERBOSE | re.DOTALL,
)
_DASH_BEFORE_DOCUMENT: Final = lazy_pattern(rb"(?<=[ \t])-(?=[ \t]*<<)")
"""A word that the grammar loses: `cat - <<E`. Any other letter in its place is one."""


def parse_tree(text: str) -> "Node | None":
    """None where over `command_code_chars_max`: the parser's time is quadratic there."""
    if count_code_chars(text) > command_code_chars_max:
        return None
    return _parser().parse(_DASH_BEFORE_DOCUMENT.sub(b"_", text.encode())).root_node


def count_code_chars(text: str) -> int:
    """Count outside quotes, comments and here-documents; no longer exact over the limit."""
    at, count = 0, 0
    ends: dict[str, list[int]] = {}
    while count <= command_code_chars_max:
        match = _OPAQUE.search(text, at)
        if match is None:
            return count + len(text) - at
        count += match.start() - at
        at = match.end()
        if match["mark"]:
            ends = ends or _line_ends(text)
            stop = _document_end(text, at, ends.get(match["mark"], []))
            if not stop:
                # What announces no document is code.
                stop = match.start() + 1
                count += 1
            at = stop
    return count


def _line_ends(text: str) -> dict[str, list[int]]:
    """Return where lines end that may end a here-document, by what stands on them."""
    found: dict[str, list[int]] = {}
    at = 0
    for line in text.split("\n"):
        at += len(line) + 1
        found.setdefault(line.lstrip("\t"), []).append(at - 1)
    return found


def _document_end(text: str, at: int, ends: list[int]) -> int:
    start = text.find("\n", at) + 1
    found = bisect_left(ends, start)
    return ends[found] if start and found < len(ends) else 0


@cache
def _parser() -> "Parser":
    # A policy without command rules never pays for the grammar.
    import tree_sitter  # noqa: PLC0415 - late on purpose
    import tree_sitter_bash  # noqa: PLC0415 - late on purpose

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
