"""The tokens of a line: which kinds of node there are, and whether bash would see the same.

Threat: a grammar that reads a line otherwise than bash does. What stands
between two tokens must be blank, commands must be apart as bash wants it, and
nothing may touch that bash would read as one token.
"""

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tree_sitter import Node

WORDS: Final = frozenset(
    {
        "word", "number", "string", "raw_string", "ansi_c_string", "translated_string",
        "concatenation", "simple_expansion", "expansion", "command_substitution",
        "process_substitution", "arithmetic_expansion", "brace_expression",
    }
)  # fmt: skip
STATEMENTS: Final = frozenset(
    {
        "command", "list", "pipeline", "redirected_statement", "subshell", "compound_statement",
        "if_statement", "while_statement", "for_statement", "c_style_for_statement",
        "case_statement", "negated_command", "function_definition", "test_command",
        "declaration_command", "unset_command", "variable_assignment", "variable_assignments",
    }
)  # fmt: skip
TRANSPARENT: Final = (WORDS | STATEMENTS) | frozenset(
    {
        "program", "elif_clause", "else_clause", "do_group", "case_item", "comment",
        "string_content", "variable_name", "special_variable_name", "subscript", "array",
        "binary_expression", "unary_expression", "parenthesized_expression",
        "ternary_expression", "postfix_expression", "test_operator", "regex",
        "heredoc_body", "heredoc_content", "command_name", "extglob_pattern",
    }
)  # fmt: skip
RUN_TIME: Final = {
    "command_substitution": "a command substitution puts the output of a command into the line",
    "process_substitution": "a process substitution runs a command behind a file name",
    "arithmetic_expansion": "an arithmetic expansion is evaluated at run time",
    "expansion": "a variable's value is only known at run time",
    "simple_expansion": "a variable's value is only known at run time",
    "c_style_for_statement": "arithmetic is evaluated at run time",
    "subscript": "a subscript is evaluated at run time",
}
"""Kinds of node that make a line known at run time only, with the reason."""
ARITHMETIC: Final = "arithmetic is evaluated at run time"
TESTED: Final = "a test with arithmetic is evaluated at run time"
EVALUATED: Final = frozenset(
    {ARITHMETIC, TESTED, RUN_TIME["arithmetic_expansion"], RUN_TIME["subscript"]}
)
"""Reasons behind which any program may stand: a subscript in arithmetic runs what it holds."""

RESERVED: Final = frozenset(
    {
        "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for",
        "select", "function", "coproc", "in", "{", "}", "!", "[[", "]]",
    }
)  # fmt: skip
SAFE_TESTS: Final = frozenset(
    "-b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S -nt -ot -ef".split()
) | frozenset({"=", "==", "!=", "=~", "<", ">", "&&", "||", "!", "(", ")", "[[", "]]", "\n"})
"""What does no arithmetic in `[[ … ]]`: that would evaluate subscripts, and commands in them."""

_GAP: Final = re.compile(rb"(?:[ \t\n]|\\\n)*")
_BLANK: Final = re.compile(rb"(?:[ \t]|\\\n)*")
_CONTINUATIONS: Final = re.compile(rb"(?:\\\n)+")
_BEFORE_COMMAND: Final = b" \t\n;&|()`"
_AFTER_COMMAND: Final = b" \t\n;&|()<>`"
_ANONYMOUS_WORDS: Final = frozenset({"$", "==", "=~", "=", "!=", "[", "]", "command_name"})
_REDIRECTIONS: Final = frozenset({"file_redirect", "herestring_redirect"})
_JOINERS: Final = frozenset({";", "&", "|", "|&", "&&", "||"})


class TokenCheck:
    """Looks at the bytes around tokens; what is doubtful goes into `problems`."""

    def __init__(self, data: bytes, problems: dict[str, None]) -> None:
        self.data = data
        self.problems = problems

    def problem(self, sentence: str) -> None:
        """Note a reason why the line is not understood."""
        self.problems[sentence] = None

    def before_operator(self, at: int) -> None:
        """Refuse what bash may read as part of the operator: `{name}>`, and a joined line."""
        if self.data[max(at - 2, 0) : at].endswith((b"}", b"\\\n")):
            self.problem("a redirection to a descriptor that is named by a variable")
        start = at
        while start and self.data[start - 1] in b"0123456789":
            start -= 1
        if start < at and (not start or self.data[start - 1] in _AFTER_COMMAND):
            self.problem("a number that belongs to a redirection")

    def comment(self, node: "Node") -> None:
        """Check that bash sees a comment here as well."""
        if node.start_byte and self.data[node.start_byte - 1] not in _BEFORE_COMMAND:
            self.problem("a comment inside a word")

    def gaps(self, children: "Sequence[Node]", *, newline: bool) -> None:
        """Check that nothing but blanks stands between tokens, and what bash reads into them."""
        for child in children:
            if not child.is_named and self.source(child) != child.type.encode():
                # The grammar hides what stands before some operators in them.
                self.problem("an operator with something before it")
        for left, right in pairwise(children):
            gap = self.data[left.end_byte : right.start_byte]
            if (
                left.type in STATEMENTS
                and right.type in STATEMENTS
                and {left.type, right.type} != {"variable_assignment"}
                and b"\n" not in gap.replace(b"\\\n", b"")
            ):
                self.problem("two commands without a separator")
            if (
                not gap
                and _is_wordlike(right)
                and (_is_wordlike(left) or left.type in _REDIRECTIONS)
            ):
                self.problem("two words without a blank between them")
            if right.type in _JOINERS and b"\n" in gap.replace(b"\\\n", b""):
                self.problem("an operator at the start of a line")
            if gap and left.type == "file_descriptor":
                self.problem("a blank between a descriptor and its redirection")
            if gap in (b"", b" "):
                continue
            if not (_GAP if newline else _BLANK).fullmatch(gap):
                self.problem("a line that continues in a way that is not understood")
            if _CONTINUATIONS.fullmatch(gap) and not _are_apart(left, right):
                self.problem("a continued line joins what stands before and after it")

    def inside(self, node: "Node", children: "Sequence[Node]") -> None:
        """Check what stands in `node` before its first and after its last child."""
        if children:
            first, last = children[0].start_byte, children[-1].end_byte
            ends = (self.data[node.start_byte : first], self.data[last : node.end_byte])
            if ends != (b"", b"") and not all(_GAP.fullmatch(part) for part in ends):
                self.problem("text outside of every command")

    def source(self, node: "Node") -> bytes:
        """Return the bytes of `node`."""
        return self.data[node.start_byte : node.end_byte]

    def edges(self, node: "Node") -> None:
        before, after = node.start_byte, node.end_byte
        if before and self.data[before - 1] not in _BEFORE_COMMAND:
            self.problem("a command starts inside a word")
        if after < len(self.data) and self.data[after] not in _AFTER_COMMAND:
            self.problem("a command ends inside a word")

    def frame(self, root: "Node") -> None:
        """Check the tree as a whole, and what stands before the first and after the last token."""
        if root.has_error:
            self.problem("the line does not parse")
        outside = (self.data[: root.start_byte], self.data[root.end_byte :])
        if not all(_GAP.fullmatch(part) for part in outside):
            self.problem("text outside of every command")


def _are_apart(left: "Node", right: "Node") -> bool:
    """Whether the two neighbours of a bare continuation stay two tokens: one is an operator."""
    operators = [node.type in _JOINERS or node.type in ("(", ")") for node in (left, right)]
    return operators[0] != operators[1]


def _is_wordlike(node: "Node") -> bool:
    # Some words are anonymous to the grammar: `$`, `==`, an operator of `[`.
    return node.type in WORDS or node.type in _ANONYMOUS_WORDS
