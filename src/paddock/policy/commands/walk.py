"""A syntax tree to the raw commands of a line, and to what is doubtful about it.

Threat: a grammar that reads a line otherwise than bash does. So the tree only
says where the words and the structure are; each word is read again from its
source (`words`), what stands between tokens must be blank, commands must be
apart from each other as bash wants it, and a node of an unknown kind, an error
or a missing token makes the line a problem.
"""

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from paddock.policy.commands.words import Word, WordProblem, parse_word

if TYPE_CHECKING:
    from collections.abc import Iterable

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

RESERVED: Final = frozenset(
    {
        "if", "then", "else", "elif", "fi", "do", "done", "case", "esac", "while", "until", "for",
        "select", "function", "coproc", "in", "{", "}", "!", "[[", "]]",
    }
)  # fmt: skip
SAFE_TESTS: Final = frozenset(
    "-b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S -nt -ot -ef".split()
) | frozenset({"=", "==", "!=", "=~", "<", ">", "&&", "||", "!", "(", ")", "[[", "]]", "\n"})
"""What does no arithmetic in `[[ … ]]`: that would evaluate subscripts, and run commands in them."""

_GAP: Final = re.compile(rb"(?:[ \t\n]|\\\n)*")
_BLANK: Final = re.compile(rb"(?:[ \t]|\\\n)*")
_CONTINUATIONS: Final = re.compile(rb"(?:\\\n)+")
_BEFORE_COMMAND: Final = b" \t\n;&|()`"
_AFTER_COMMAND: Final = b" \t\n;&|()<>`"
_OPERATORS: Final = b";&|<>()\n"


@dataclass(slots=True)
class RawCommand:
    """A simple command as the tree shows it, wrappers and all."""

    text: str
    words: list[Word] = field(default_factory=list[Word])
    assignments: list[str] = field(default_factory=list[str])
    documents: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class Findings:
    """What a walk found; each list of sentences without repetitions, in order."""

    commands: list[RawCommand] = field(default_factory=list[RawCommand])
    writes: list[str] = field(default_factory=list[str])
    run_time: dict[str, None] = field(default_factory=dict[str, None])
    problems: dict[str, None] = field(default_factory=dict[str, None])
    changes: dict[str, None] = field(default_factory=dict[str, None])
    assigned: list[str] = field(default_factory=list[str])


def walk_tree(root: "Node", data: bytes) -> Findings:
    """Return what stands in the tree of `data`, in source order."""
    walk = _Walk(data)
    walk.frame(root)
    stack = [root]
    while stack:
        node = stack.pop()
        stack.extend(reversed(walk.visit(node)))
    return walk.found


class _Walk:
    """One walk. `visit` returns the nodes to go on with."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.found = Findings()
        # Words after a redirection belong to the command before it; by its span.
        self.trailing: dict[tuple[int, int], list[Node]] = {}
        self.owner: RawCommand | None = None

    def visit(self, node: "Node") -> "list[Node]":
        kind = node.type
        if node.is_error or node.is_missing:
            self.problem("the line does not parse")
            return node.children
        if not node.is_named:
            return []
        if kind in RUN_TIME:
            self.found.run_time[RUN_TIME[kind]] = None
        match kind:
            case "command":
                return self.command(node)
            case "declaration_command" | "unset_command":
                return self.declaration(node)
            case "redirected_statement":
                return self.redirected(node)
            case "file_redirect":
                return self.redirect(node)
            case "herestring_redirect":
                return self.here_string(node)
            case "heredoc_redirect":
                return self.here_document(node)
            case "test_command":
                return self.test(node)
            case "variable_assignment":
                return self.assignment(node)
            case "function_definition":
                self.found.changes["a function is defined in the line"] = None
            case "for_statement":
                self.found.changes["a loop assigns a variable"] = None
            case "comment":
                self.comment(node)
            case _:
                pass
        return self.structure(node)

    def structure(self, node: "Node") -> "list[Node]":
        kind = node.type
        if kind not in TRANSPARENT:
            self.problem(f"{kind.replace('_', ' ')} is not known here")
        if kind in ("regex", "extglob_pattern") and re.search(r"\$[\w({]|`", self.source(node)):
            self.problem("an expansion in a pattern")
        if kind in WORDS:
            # A word outside a command: a loop's values, a case's subject.
            return self.word(node)[1]
        children = node.children
        if kind == "compound_statement" and children and children[0].type == "((":
            self.found.run_time["arithmetic is evaluated at run time"] = None
            return children
        if kind in STATEMENTS or kind in ("program", "do_group", "else_clause", "case_item"):
            self.gaps(children, newline=True)
        return children

    # --- commands ---------------------------------------------------------

    def command(self, node: "Node") -> "list[Node]":
        children = node.children
        self.gaps(children, newline=False)
        self.edges(node)
        raw = RawCommand(self.source(node))
        later: list[Node] = []
        for child in [*children, *self.trailing.get((node.start_byte, node.end_byte), ())]:
            kind = child.type
            if kind == "variable_assignment":
                raw.assignments.append(self.source(child))
                later.append(child)
            elif kind in ("file_redirect", "herestring_redirect"):
                later.append(child)
            elif child.is_error or child.is_missing:
                self.problem("the line does not parse")
                later.extend(child.children)
            else:
                self.argument(child, raw, later)
        self.add(raw)
        return later

    def argument(self, child: "Node", raw: RawCommand, later: "list[Node]") -> None:
        if child.type == "command_name":
            child = child.children[0] if child.children else child
        if child.type not in WORDS and child.is_named:
            self.problem(f"{child.type.replace('_', ' ')} stands where a word is expected")
        word, inner = self.word(child)
        raw.words.append(word)
        later.extend(inner)

    def declaration(self, node: "Node") -> "list[Node]":
        self.gaps(node.children, newline=False)
        self.edges(node)
        raw = RawCommand(self.source(node))
        later: list[Node] = []
        for child in node.children:
            if child.type in ("file_redirect", "herestring_redirect"):
                later.append(child)
                continue
            source = self.source(child)
            if child.type == "variable_assignment":
                raw.assignments.append(source)
                later.append(child)
            try:
                raw.words.append(parse_word(source))
            except WordProblem:
                raw.words.append(Word(source, source, unknown="an array is made at run time"))
        self.add(raw)
        return later

    def test(self, node: "Node") -> "list[Node]":
        """`[ … ]` is a command, `[[ … ]]` is syntax."""
        children = node.children
        if children and children[0].type == "[[":
            for leaf in _leaves(node):
                operator = self.source(leaf)
                if not leaf.is_named and operator not in SAFE_TESTS and leaf.type not in "\"'$":
                    self.found.run_time["a test with arithmetic is evaluated at run time"] = None
                if leaf.type == "test_operator" and operator not in SAFE_TESTS:
                    self.found.run_time["a test with arithmetic is evaluated at run time"] = None
            return children
        raw = RawCommand(self.source(node))
        later: list[Node] = []
        leaves = list(_leaves(node))
        self.gaps(leaves, newline=False)
        self.edges(node)
        for leaf in leaves:
            if not leaf.is_named and leaf.type in ("<", ">", "(", ")", "&&", "||"):
                self.problem("an operator between [ and ] is not a test")
            word, inner = self.word(leaf)
            raw.words.append(word)
            later.extend(inner)
        self.add(raw)
        return later

    def add(self, raw: RawCommand) -> None:
        self.owner = raw
        if raw.words:
            if raw.words[0].source in RESERVED:
                self.problem("a reserved word stands where a program is expected")
            self.found.commands.append(raw)

    def assignment(self, node: "Node") -> "list[Node]":
        self.found.changes["a variable is assigned in the line"] = None
        self.found.assigned.append(self.source(node))
        later: list[Node] = []
        for child in node.children:
            if child.type in WORDS:
                later.extend(self.word(child)[1])
            elif child.is_named and child.type != "variable_name":
                later.append(child)
        return later

    # --- redirections -----------------------------------------------------

    def redirected(self, node: "Node") -> "list[Node]":
        """Hand the words that stand after a redirection to the command that they belong to."""
        words: list[Node] = []
        for child in node.children:
            if child.type in ("file_redirect", "herestring_redirect"):
                words.extend(_extra_words(child))
        if words:
            last = node.children[0]
            while last.type in ("list", "pipeline", "negated_command", "redirected_statement"):
                named = [child for child in last.children if child.is_named]
                if not named:
                    break
                last = named[-1]
            if last.type == "command":
                self.trailing.setdefault((last.start_byte, last.end_byte), []).extend(words)
            elif last.type == "file_redirect":
                raw = RawCommand(self.source(node))
                later: list[Node] = []
                for word in words:
                    self.argument(word, raw, later)
                self.add(raw)
                return [*node.children, *later]
            else:
                self.problem("words stand after the redirection of a compound command")
        self.gaps(node.children, newline=False)
        return node.children

    def redirect(self, node: "Node") -> "list[Node]":
        children = node.children
        operator = next((child for child in children if not child.is_named), None)
        targets = [child for child in children if child.is_named and child.type in WORDS]
        if operator is None:
            self.problem("a redirection without an operator")
            return children
        self.gaps(children, newline=False)
        self.before_operator(children[0].start_byte)
        sign = operator.type
        if sign in (">&-", "<&-") or not targets:
            return []
        word, inner = self.word(targets[0])
        if word.unknown or word.glob or word.alternatives:
            self.found.run_time["the target of a redirection is only known at run time"] = None
        if sign.endswith("&") and re.fullmatch(r"\d+-?|-", word.text):
            return inner
        if sign not in ("<", "<&"):
            self.found.writes.append(word.text)
        return inner

    def before_operator(self, at: int) -> None:
        """Refuse what bash reads as part of the operator: `{name}>`, and a joined line."""
        line = self.data[:at]
        if re.search(rb"\{\w+\}\Z|\\\n\Z", line):
            self.problem("a redirection to a descriptor that is named by a variable")

    def here_string(self, node: "Node") -> "list[Node]":
        later: list[Node] = []
        for child in node.children:
            if child.type in WORDS:
                word, inner = self.word(child)
                later.extend(inner)
                if self.owner is not None:
                    self.owner.documents.append(word.text)
                break
        return later

    def here_document(self, node: "Node") -> "list[Node]":
        """Check that the document is what bash reads, and read what its line goes on with."""
        children = node.children
        start = next((child for child in children if child.type == "heredoc_start"), None)
        body = next((child for child in children if child.type == "heredoc_body"), None)
        end = next((child for child in children if child.type == "heredoc_end"), None)
        if start is None or end is None:
            self.problem("a here-document without its end")
            return children
        mark = self.source(start)
        tabs = any(child.type == "<<-" for child in children)
        plain = mark.strip("'\"").lstrip("\\")
        document = self.document(start.end_byte, plain.encode(), tabs=tabs)
        if document is None or document[1] != end.start_byte or not re.fullmatch(r"\w+", plain):
            self.problem("a here-document that is not understood")
            return children
        content = self.data[document[0] : document[1]]
        literal = plain != mark
        if not literal and b"\\\n" in content:
            self.problem("a here-document whose lines are joined")
        if not literal and re.search(rb"[$`]", content):
            self.found.run_time["a here-document is expanded at run time"] = None
        if self.owner is not None:
            self.owner.documents.append(content.decode())
        skipped = {start.id, end.id} | ({body.id} if body is not None and literal else set())
        self.gaps([child for child in children if child not in (body, end)], newline=False)
        if any(child.type in WORDS for child in children):
            self.problem("words stand after a here-document")
        return [child for child in children if child.id not in skipped]

    def document(self, at: int, mark: bytes, *, tabs: bool) -> tuple[int, int] | None:
        """Return where the document that is announced before `at` starts and where its mark stands."""
        line_end = self.data.find(b"\n", at)
        if line_end < 0 or b"<<" in self.data[at:line_end]:
            return None
        if self.data[at : at + 1] not in (b" ", b"\t", b"\n", b";", b"|", b"&", b">", b")"):
            return None
        place = line_end + 1
        while place < len(self.data):
            stop = self.data.find(b"\n", place)
            stop = len(self.data) if stop < 0 else stop
            line = self.data[place:stop]
            bare = line.lstrip(b"\t") if tabs else line
            if bare == mark:
                return line_end + 1, place + len(line) - len(bare)
            place = stop + 1
        return None

    # --- words and what is between them -----------------------------------

    def word(self, node: "Node") -> "tuple[Word, list[Node]]":
        """Return the word at `node`, and the nodes in it that may hold commands."""
        source = self.source(node)
        try:
            word = parse_word(source)
        except WordProblem:
            self.problem("a word that is not understood")
            return Word(source, source, unknown="it is not understood"), node.children
        if source.startswith("#"):
            self.problem("a comment where a word is expected")
        if not word.unknown:
            return word, []
        if node.type in RUN_TIME:
            self.found.run_time[RUN_TIME[node.type]] = None
        elif not any(child.is_named for child in node.children):
            self.found.run_time[word.unknown] = None
        return word, [child for child in node.children if child.is_named] or []

    def comment(self, node: "Node") -> None:
        if node.start_byte and self.data[node.start_byte - 1] not in _BEFORE_COMMAND:
            self.problem("a comment inside a word")

    def gaps(self, children: "list[Node]", *, newline: bool) -> None:
        """Check that nothing but blanks stands between tokens, and what bash reads into them."""
        for left, right in zip(children, children[1:], strict=False):
            gap = self.data[left.end_byte : right.start_byte]
            if not gap:
                if left.type in WORDS and right.type in WORDS:
                    self.problem("two words without a blank between them")
                continue
            if gap == b" " and not newline:
                continue
            if left.type == "file_descriptor":
                self.problem("a blank between a descriptor and its redirection")
            if not (_GAP if newline else _BLANK).fullmatch(gap):
                self.problem("a line that continues in a way that is not understood")
            if _CONTINUATIONS.fullmatch(gap) and not self.is_apart(left.end_byte, right.start_byte):
                self.problem("a continued line joins what stands before and after it")
            if (
                left.type in STATEMENTS
                and right.type in STATEMENTS
                and b"\n" not in gap.replace(b"\\\n", b"")
            ):
                self.problem("two commands without a separator")

    def is_apart(self, left_end: int, right_start: int) -> bool:
        """Whether the two neighbours of a bare continuation stay two tokens."""
        left = self.data[left_end - 1] in _OPERATORS
        right = self.data[right_start] in _OPERATORS
        return left != right and not (right and self.data[left_end - 1 : left_end].isdigit())

    def edges(self, node: "Node") -> None:
        """Check that a command starts and ends where bash starts and ends one."""
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

    def source(self, node: "Node") -> str:
        return self.data[node.start_byte : node.end_byte].decode()

    def problem(self, sentence: str) -> None:
        self.found.problems[sentence] = None


def _extra_words(redirect: "Node") -> "list[Node]":
    """Return the words after the target, which the grammar counts to the redirection."""
    words = [child for child in redirect.children if child.is_named and child.type in WORDS]
    closes = any(child.type in (">&-", "<&-") for child in redirect.children)
    return words if closes else words[1:]


def _leaves(node: "Node") -> "Iterable[Node]":
    stack = [node]
    while stack:
        one = stack.pop()
        if one.children and one.type not in WORDS:
            stack.extend(reversed(one.children))
        else:
            yield one

