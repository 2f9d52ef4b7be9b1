"""Walk a syntax tree to collect the raw commands of a line, and everything doubtful about it.

Each word is parsed again from its source (`words`), and the bytes around the tokens are checked;
an unknown kind of node, an error or a missing token makes the line a problem.
"""

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field

from paddock.pattern import lazy_pattern
from paddock.policy.commands.numbers import Numbers, holds_default
from paddock.policy.commands.programs import HARMLESS, INTEGER
from paddock.policy.commands.words import Word, WordProblem, parse_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tree_sitter import Node


_AFTER_MARK: Final = b" \t\n;|&>)"


def find_document(data: bytes, at: int, mark: bytes, *, tabs: bool) -> tuple[int, int] | None:
    """Return the start of a here-document and its end mark; None without end, or for two."""
    line_end = data.find(b"\n", at)
    if line_end < 0 or b"<<" in data[at:line_end] or data[at] not in _AFTER_MARK:
        return None
    ends = re.compile(rb"^" + rb"\t*" * tabs + re.escape(mark) + rb"$", re.MULTILINE)
    found = ends.search(data, line_end + 1)
    return None if found is None else (line_end + 1, found.end() - len(mark))


# Threat: the grammar reads a line differently than bash. Text between two tokens must be blank,
# commands must be separated as bash requires, and no tokens may touch that bash reads as one.

WORDS: Final = frozenset(
    "word number string raw_string ansi_c_string translated_string concatenation "
    "simple_expansion expansion command_substitution process_substitution "
    "arithmetic_expansion brace_expression".split()
)
STATEMENTS: Final = frozenset(
    "command list pipeline redirected_statement subshell compound_statement if_statement "
    "while_statement for_statement c_style_for_statement case_statement negated_command "
    "function_definition test_command declaration_command unset_command variable_assignment "
    "variable_assignments".split()
)
TRANSPARENT: Final = (WORDS | STATEMENTS) | frozenset(
    "program elif_clause else_clause do_group case_item comment string_content variable_name "
    "special_variable_name subscript array binary_expression unary_expression "
    "parenthesized_expression ternary_expression postfix_expression test_operator regex "
    "heredoc_body heredoc_content command_name extglob_pattern".split()
)
RUN_TIME: Final = {
    "command_substitution": "a command substitution puts the output of a command into the line",
    "process_substitution": "a process substitution runs a command behind a file name",
    "arithmetic_expansion": "an arithmetic expansion is evaluated at run time",
    "expansion": "a variable's value is only known at run time",
    "simple_expansion": "a variable's value is only known at run time",
    "c_style_for_statement": "arithmetic is evaluated at run time",
    "subscript": "a subscript is evaluated at run time",
}
ARITHMETIC: Final = "arithmetic is evaluated at run time"
TESTED: Final = "a test with arithmetic is evaluated at run time"
EVALUATING: Final = "an expansion evaluates what a variable holds at run time"
TO_INTEGER: Final = "a numeric variable evaluates its new value at run time"
EVALUATED: Final = frozenset(
    {ARITHMETIC, TESTED, EVALUATING, TO_INTEGER}
    | {RUN_TIME["arithmetic_expansion"], RUN_TIME["subscript"]}
)
"""Reasons that may hide any program: arithmetic runs the commands in a subscript."""

RESERVED: Final = frozenset(
    "if then else elif fi do done case esac while until for select function coproc in { } ! "
    "[[ ]]".split()
)
SAFE_TESTS: Final = frozenset(
    "-b -c -d -e -f -g -h -k -n -p -r -s -t -u -w -x -z -G -L -N -O -S -nt -ot -ef".split()
) | frozenset({"=", "==", "!=", "=~", "<", ">", "&&", "||", "!", "(", ")", "[[", "]]", "\n"})
"""Tests of `[[ … ]]` without arithmetic, which would evaluate subscripts and commands in them."""

_GAP: Final = lazy_pattern(rb"(?:[ \t\n]|\\\n)*")
_BLANK: Final = lazy_pattern(rb"(?:[ \t]|\\\n)*")
_CONTINUATIONS: Final = lazy_pattern(rb"(?:\\\n)+")
_BEFORE_COMMAND: Final = b" \t\n;&|()`"
_AFTER_COMMAND: Final = b" \t\n;&|()<>`"
_WORDLIKE: Final = WORDS | {"$", "==", "=~", "=", "!=", "[", "]", "command_name"}
"""Some words are anonymous to the grammar: `$`, `==`, an operator of `[`."""
_REDIRECTIONS: Final = frozenset({"file_redirect", "herestring_redirect"})
_JOINERS: Final = frozenset({";", "&", "|", "|&", "&&", "||"})
_OPERATORS: Final = _JOINERS | {"(", ")"}


_ASSIGNMENT = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*(?:\[|\+?=)")
_TIMING = frozenset({"time", "-p", "--"})
_COUNTERS = lazy_pattern(
    r"[a-z]|file|dir|name|item|pkg|test|line|num|idx|attempt|try|run", re.ASCII
)
"""Variables that do not affect which program runs: zsh uses `path`, `fpath` and others."""
_TERMINAL = lazy_pattern(r"-t[ \t]+\d+[ \t]")
_SUBSCRIPT = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\[")
_TWICE = lazy_pattern(r"[!\w./-]*", re.ASCII)
"""Text that a second expansion of `>&WORD` does not change."""
_SENTENCE = lazy_pattern(r"[\w\s.,:/=@%+-]*", re.ASCII)
"""The message of `${x:?…}`, with blanks: it is one word there."""
_FORCED = lazy_pattern(rb">[>&|]*!(?:[ \t]|\\\n)*")
"""zsh's `>! f`, in which bash reads `f` as another word."""
_CASE_ENDS = frozenset({";;", ";&", ";;&"})
_HIDDEN = lazy_pattern(rb"\\.|`(?P<script>(?:[^`\\]|\\.)*+)`|(?P<other>`|\$\()", re.DOTALL)
_EVALUATING = lazy_pattern(
    rb"\$\{(?:!(?!\}|\w+(?:[@*]|\[[@*]\])\})|[^}]*@P\}"
    rb"|[\w@*#?$!-]+(?:\[[^]]*\])?:(?![-=+?]| ?-?\d+(?::-?\d+)?\}))"
)
"""`${!x}`, `${x@P}` and `${x:y}`: each runs a `$(…)` in a value."""
_ESCAPED = lazy_pattern(rb"\\([$`\\\"])")


class RawCommand(Struct):
    text: str
    words: list[Word] = []
    assignments: list[str] = []
    documents: list[str] = []
    writes: list[str] = []
    is_piped: bool = False


class Findings(Struct):
    commands: list[RawCommand] = []
    writes: list[str] = []
    reads: list[str] = []
    run_time: dict[str, None] = {}
    problems: dict[str, None] = {}
    changes: dict[str, None] = {}
    assigned: list[str] = []
    scripts: list[str] = []
    numbers: Numbers = field(default_factory=Numbers)
    has_statement: bool = False
    """True if it has an assignment, a test or arithmetic, which are not commands."""


def walk_tree(root: "Node", data: bytes) -> Findings:
    walk = _Walk(data)
    if root.has_error:
        walk.problem("the line does not parse")
    walk.require_blank(data[: root.start_byte], data[root.end_byte :])
    walk.found.numbers.has_defaults = holds_default(data)
    stack = [root]
    while stack:
        node = stack.pop()
        stack.extend(reversed(walk.visit(node)))
    return walk.found


class _Walk:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.found = Findings()
        # Words after a redirection belong to the command before it; by its span.
        self.trailing: dict[tuple[int, int], list[Node]] = {}
        # The command that owns the next redirections and documents; at first a placeholder.
        self.owner = RawCommand("")
        self.forced = {match.end() for match in _FORCED.finditer(data)}
        self.piped: set[tuple[int, int]] = set()

    def visit(self, node: "Node") -> "list[Node]":
        kind = node.type
        if node.is_error or node.is_missing:
            self.problem("the line does not parse")
            return node.children
        if not node.is_named:
            return []
        if kind in RUN_TIME:
            self.evaluated(node, RUN_TIME[kind])
        match kind:
            case "command" | "declaration_command" | "unset_command":
                return self.command(node)
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
            case "pipeline":
                for child in node.children[1:]:
                    self.piped.add((child.start_byte, child.end_byte))
            case "function_definition":
                self.found.changes["a function is defined in the line"] = None
            case "for_statement":
                name = node.child_by_field_name("variable")
                values = map(self.source, node.children_by_field_name("value"))
                self.found.numbers.loop(self.source(name) if name else "", values)
                if name is None or not _COUNTERS.fullmatch(self.source(name)):
                    self.found.changes["a loop assigns a variable"] = None
                if name is not None and INTEGER.fullmatch(self.source(name)):
                    self.found.run_time[TO_INTEGER] = None
            case "comment":
                self.comment(node)
            case _:
                pass
        return self.structure(node)

    def evaluated(self, node: "Node", why: str) -> None:
        source = self.source(node).strip()
        if node.type == "c_style_for_statement":
            source = source.removeprefix("for").lstrip().partition("))")[0] + "))"
        if why in EVALUATED:
            self.found.numbers.evaluate(source, why)
        else:
            self.found.run_time[why] = None

    def structure(self, node: "Node") -> "list[Node]":
        kind = node.type
        if kind not in TRANSPARENT:
            self.problem(f"unknown syntax: {kind.replace('_', ' ')}")
        if kind in ("regex", "extglob_pattern") and re.search(r"\$[\w({]|`", self.source(node)):
            self.problem("an expansion in a pattern")
        if kind in WORDS:
            # A word outside a command: a loop's values, a case's subject.
            return self.word(node)[1]
        children = node.children
        if kind == "compound_statement" and children and children[0].type == "((":
            self.found.has_statement = True
            self.evaluated(node, ARITHMETIC)
            return children
        if kind == "compound_statement" and not self.source(node)[1:2].isspace():
            self.problem("a group that bash reads as a word")
        if kind in STATEMENTS or kind in ("program", "do_group", "else_clause", "case_item"):
            self.gaps(children, newline=True)
            first, last = (children or [node])[0], (children or [node])[-1]
            before = self.data[node.start_byte : first.start_byte]
            self.require_blank(before, self.data[last.end_byte : node.end_byte])
        if kind != "case_item" and any(child.type in _CASE_ENDS for child in children):
            self.problem("the end of a case item outside of a case")
        return children

    # --- commands ---------------------------------------------------------

    def command(self, node: "Node") -> "list[Node]":
        self.gaps(node.children, newline=False)
        self.edges(node)
        span = (node.start_byte, node.end_byte)
        raw = RawCommand(self.source(node), is_piped=span in self.piped)
        later: list[Node] = []
        for child in [*node.children, *self.trailing.get(span, ())]:
            is_assignment = child.type == "variable_assignment"
            if is_assignment:
                raw.assignments.append(self.source(child))
            if child.type in _REDIRECTIONS:
                later.append(child)
            elif child.is_error or child.is_missing:
                self.problem("the line does not parse")
                later.extend(child.children)
            elif node.type != "command" and child.type not in WORDS:
                raw.words.append(_declared(self.source(child)))
                later += [child] * is_assignment
            elif is_assignment:
                later.append(child)
            else:
                # Threat: `export "$(rm x)"`: commands in its words run, too.
                self.argument(child, raw, later)
        self.add(raw)
        return later

    def argument(self, child: "Node", raw: RawCommand, later: "list[Node]") -> None:
        if child.type == "command_name":
            child = child.children[0] if child.children else child
        if child.type not in WORDS and child.is_named:
            self.problem(f"{child.type.replace('_', ' ')} where a word is expected")
        word, inner = self.word(child)
        raw.words.append(word)
        later.extend(inner)

    def test(self, node: "Node") -> "list[Node]":
        children = node.children
        self.edges(node)
        if children and children[0].type == "[[":
            self.found.has_statement = True
            if not self.source(node)[2:3].isspace() or not self.source(node)[-3:-2].isspace():
                self.problem("a test that bash reads as a word")
            # Threat: to zsh the operand of -t is arithmetic: `[[ -t 'path[$(cmd)]' ]]`.
            is_safe = len(_TERMINAL.findall(self.source(node))) == self.source(node).count("-t")
            operators = (
                leaf
                for leaf in _leaves(node)
                if leaf.type == "test_operator" or not (leaf.is_named or leaf.type in "\"'$")
            )
            if not is_safe or any(self.source(leaf) not in SAFE_TESTS for leaf in operators):
                self.evaluated(node, TESTED)
            return children
        raw = RawCommand(self.source(node))
        later: list[Node] = []
        leaves = list(_leaves(node))
        self.gaps(leaves, newline=False)
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
            first = next((word for word in raw.words if word.source not in _TIMING), None)
            if first is not None and first.source in RESERVED:
                # Also after `time`, which is a keyword: `time { …; }`.
                self.problem("a reserved word where a program is expected")
            elif first is not None and _SUBSCRIPT.match(first.source):
                # Before a command, `a[` starts an assignment up to its closing bracket.
                self.problem("a subscript where a program is expected")
            self.found.commands.append(raw)

    def assignment(self, node: "Node") -> "list[Node]":
        source = self.source(node)
        self.found.has_statement = True
        self.found.numbers.assign(source)
        if INTEGER.match(source):
            self.found.run_time[TO_INTEGER] = None
        if not HARMLESS.fullmatch(source):
            self.found.changes["a variable is assigned in the line"] = None
            self.found.assigned.append(source)
        if not _ASSIGNMENT.match(source) or any(
            left.end_byte != right.start_byte for left, right in pairwise(node.children)
        ):
            self.problem("an assignment that is not understood")
        later: list[Node] = []
        for child in node.children:
            if child.type in WORDS:
                later.extend(self.word(child)[1])
            elif child.is_named and child.type != "variable_name":
                later.append(child)
        return later

    # --- redirections -----------------------------------------------------

    def redirected(self, node: "Node") -> "list[Node]":
        """Give the words after a redirection to the command that they belong to."""
        words: list[Node] = []
        for child in node.children:
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
                self.problem("words after the redirection of a compound command")
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
        if sign.endswith("&") and not _TWICE.fullmatch(word.text):
            self.problem("bash expands the word of a duplication twice")
        if word.text.startswith(("/dev/tcp/", "/dev/udp/")):
            self.found.run_time["a redirection opens a connection"] = None
        if sign not in ("<", "<&"):
            seen = [word.text]
            if word.source.startswith("!") and len(word.text) > 1:
                seen.append(word.text[1:])
            self.found.writes += seen
            self.owner.writes += seen
        elif sign == "<":
            self.found.reads.append(word.text)
        return inner

    def here_string(self, node: "Node") -> "list[Node]":
        self.gaps(node.children, newline=False)
        self.before_operator(node.start_byte)
        string = next((child for child in node.children if child.type in WORDS), None)
        if string is None:
            return []
        word, inner = self.word(string)
        self.owner.documents.append(word.text)
        return inner

    def here_document(self, node: "Node") -> "list[Node]":
        children = node.children
        found = {child.type: child for child in reversed(children)}
        start, body, end = (found.get(f"heredoc_{name}") for name in ("start", "body", "end"))
        if start is None or end is None:
            self.problem("a here-document without its end")
            return children
        self.before_operator(node.start_byte)
        mark = self.source(start)
        plain = mark.strip("'\"").lstrip("\\")
        document = find_document(self.data, start.end_byte, plain.encode(), tabs="<<-" in found)
        if document is None or document[1] != end.start_byte or not re.fullmatch(r"\w+", plain):
            self.problem("a here-document that is not understood")
            return children
        content = self.data[document[0] : document[1]]
        literal = plain != mark
        if not literal and b"\\\n" in content:
            self.problem("a here-document whose lines are joined")
        if not literal and re.search(rb"[$`]", content):
            self.found.run_time["a here-document is expanded at run time"] = None
            self.hidden(body, *document)
        self.owner.documents.append(content.decode())
        skipped = {start.id, end.id}
        if body is not None and literal:
            skipped.add(body.id)
        self.gaps([child for child in children if child not in (body, end)], newline=False)
        # Threat: for a redirection after `<<E`, the grammar adds later words to it.
        if any(child.type in WORDS or _extra_words(child) for child in children):
            self.problem("words after a here-document")
        return [child for child in children if child.id not in skipped]

    # --- words and what is between them -----------------------------------

    def word(self, node: "Node") -> "tuple[Word, list[Node]]":
        source, parent = self.source(node), node.parent
        if parent is not None and parent.type == "string":
            # The grammar adds the blanks between two expansions to the second.
            source = source.lstrip()
        try:
            word = parse_word(source)
        except WordProblem:
            if parent is not None and parent.type == "expansion" and _SENTENCE.fullmatch(source):
                return Word(source, source), []
            self.problem("a word that is not understood")
            return Word(source, source, unknown="it is not understood"), node.children
        if source.startswith("#"):
            self.problem("a comment where a word is expected")
        if node.start_byte in self.forced:
            self.found.writes.append(word.text)
        if not word.unknown:
            return word, []
        self.hidden(node, node.start_byte, node.end_byte)
        if node.type in RUN_TIME:
            self.evaluated(node, RUN_TIME[node.type])
        elif not any(child.type in RUN_TIME for child in node.children):
            self.found.run_time[word.unknown] = None
        return word, [child for child in node.children if child.is_named]

    def hidden(self, node: "Node | None", start: int, end: int) -> None:
        r"""Find commands that bash runs there, but that the grammar reads as text.

        Threat: "`cmd`" in a here-document or in "${x:-…}", everything after the tabs of `<<-`, and
        the inner command of "`a \`cmd\``".
        """
        rest, scripts = bytearray(self.data[start:end]), list[bytes]()
        for first, last in () if node is None else _understood(node):
            inside = self.data[first:last]
            rest[first - start : last - start] = b" " * len(inside)
            if inside.startswith((b"`", b"$`")) and b"\\" in inside:
                scripts.append(inside.lstrip(b"$")[1:-1])
        if _EVALUATING.search(rest):
            self.found.run_time[EVALUATING] = None
        for match in _HIDDEN.finditer(rest):
            if match["other"]:
                self.problem("a substitution that is not understood")
            elif match["script"]:
                scripts.append(match["script"])
        # They may be between double quotes.
        plain = (_ESCAPED.sub(rb"\1", each) for each in scripts)
        self.found.scripts += (each.decode(errors="replace") for each in plain)

    # --- the bytes around tokens, which bash may read differently ----------

    def before_operator(self, at: int) -> None:
        """Refuse text that bash may read as part of the operator: `{name}>`, and a joined line."""
        if self.data[max(at - 2, 0) : at].endswith((b"}", b"\\\n")):
            self.problem("a redirection to a descriptor that is named by a variable")
        start = at
        while start and self.data[start - 1] in b"0123456789":
            start -= 1
        if start < at and (not start or self.data[start - 1] in _AFTER_COMMAND):
            self.problem("a number that belongs to a redirection")

    def comment(self, node: "Node") -> None:
        if node.start_byte and self.data[node.start_byte - 1] not in _BEFORE_COMMAND:
            self.problem("a comment inside a word")

    def gaps(self, children: "Sequence[Node]", *, newline: bool) -> None:
        """Check that only blanks separate the tokens, in a way that bash reads the same."""
        for child in children:
            if not child.is_named and self.source(child) != child.type:
                # The grammar includes text before some operators in them.
                self.problem("an operator with something before it")
        for left, right in pairwise(children):
            gap = self.data[left.end_byte : right.start_byte]
            has_end = b"\n" in gap.replace(b"\\\n", b"")
            kinds = {left.type, right.type}
            if kinds <= STATEMENTS and kinds != {"variable_assignment"} and not has_end:
                self.problem("two commands without a separator")
            is_begun = left.type in _WORDLIKE or left.type in _REDIRECTIONS
            if not gap and is_begun and right.type in _WORDLIKE:
                self.problem("two words without a blank between them")
            if right.type in _JOINERS and has_end:
                self.problem("an operator at the start of a line")
            if gap and left.type == "file_descriptor":
                self.problem("a blank between a descriptor and its redirection")
            if gap in (b"", b" "):
                continue
            if not (_GAP if newline else _BLANK).fullmatch(gap):
                self.problem("a line that continues in a way that is not understood")
            are_apart = (left.type in _OPERATORS) != (right.type in _OPERATORS)
            if _CONTINUATIONS.fullmatch(gap) and not are_apart:
                self.problem("a continued line joins the text before and after it")

    def require_blank(self, *parts: bytes) -> None:
        if not all(map(_GAP.fullmatch, parts)):
            self.problem("text outside of every command")

    def edges(self, node: "Node") -> None:
        before, after = node.start_byte, node.end_byte
        if before and self.data[before - 1] not in _BEFORE_COMMAND:
            self.problem("a command starts inside a word")
        if after < len(self.data) and self.data[after] not in _AFTER_COMMAND:
            self.problem("a command ends inside a word")

    def source(self, node: "Node") -> str:
        return self.data[node.start_byte : node.end_byte].decode()

    def problem(self, sentence: str) -> None:
        self.found.problems[sentence] = None


def _declared(source: str) -> Word:
    try:
        return parse_word(source)
    except WordProblem:
        return Word(source, source, unknown="an array is built at run time")


def _extra_words(redirect: "Node") -> "list[Node]":
    """Return the words after the target, which the grammar adds to the redirection."""
    if redirect.type not in _REDIRECTIONS:
        return []
    words = [child for child in redirect.children if child.is_named and child.type in WORDS]
    closes = any(child.type in (">&-", "<&-") for child in redirect.children)
    return words if closes else words[1:]


def _understood(node: "Node") -> "Iterable[tuple[int, int]]":
    """Yield the spans of substitutions, which are visited separately, and of quoted text."""
    stack = [(node, False)]
    while stack:
        one, in_braces = stack.pop()
        # In "${x:-'`cmd`'}" single quotes quote nothing.
        is_quoted = one.type in ("raw_string", "ansi_c_string") and not in_braces
        if is_quoted or one.type == "command_substitution":
            yield one.start_byte, one.end_byte
            continue
        if one.type == "arithmetic_expansion":
            yield one.start_byte, one.start_byte + len("$((")
        stack.extend((child, in_braces or one.type == "expansion") for child in one.children)


def _leaves(node: "Node") -> "Iterable[Node]":
    stack = [node]
    while stack:
        one = stack.pop()
        if one.children and one.type not in WORDS:
            stack.extend(reversed(one.children))
        else:
            yield one
