"""The door to the grammar: text to a syntax tree, loaded at the first parse.

No other module imports tree-sitter. Nothing here judges: a tree with errors is
still a tree.
"""

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from paddock.limits import command_chars_max, command_code_chars_max

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

# What the parser takes as one token, however long it is.
_OPAQUE: Final = re.compile(
    r"""\\.
      | <<-?[ \t]*(?P<quote>['"]?)(?P<mark>\w+)(?P=quote)[^\n]*\n(?:.*?\n)??\t*(?P=mark)(?=\n|\Z)
      | '[^']*'
      | "(?:[^"\\]|\\.)*"
      | (?<![^\s;&|()])\#[^\n]*
    """,
    re.VERBOSE | re.DOTALL,
)


def parse_tree(text: str) -> "Node | None":
    """Return the root of the syntax tree of `text`; None where it is too long to parse.

    Limits: `command_chars_max`; `command_code_chars_max` outside quotes,
    comments and here-documents, since the parser's time is quadratic there.
    """
    if len(text) > command_chars_max:
        return None
    if len(text) > command_code_chars_max and _code_chars(text) > command_code_chars_max:
        return None
    return _parser().parse(text.encode()).root_node


def _code_chars(text: str) -> int:
    at, count = 0, 0
    for match in _OPAQUE.finditer(text):
        count += match.start() - at
        at = match.end()
    return count + len(text) - at


@cache
def _parser() -> "Parser":
    # A policy without command rules never pays for the grammar.
    import tree_sitter  # noqa: PLC0415 - late on purpose
    import tree_sitter_bash  # noqa: PLC0415 - late on purpose

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
