"""A pattern with a `$` finds the lines that Python finds, whatever ends them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from paddock.workspace.paths import ROOT
from paddock.workspace.search.grep import search_content
from paddock.workspace.search.request import Regex, Wanted
from tests.property.test_search_agrees_with_ripgrep import Tree
from tests.support.shown import Shows

LINES = (
    *("if (x) {", "while (y) {", "int a = 1;", "return a", "", "  ", "end;", "end", "x end; "),
    *("a$b", "end;;", "\tend", "if while", "(", "aaa if", "int int"),
)
LITERALS = ("(if|while)", "(int|return|end)", r"\b(if|while)\b", "(a|end)", "end", "")
"""ripgrep looks for these first, and then at single lines."""
ATOMS = (
    *("(?:end|x)$", "x", ";", " ", "[^;]", "[^{]", r"[^;\s]", "[^x]*", "[$]", r"\$", r"\s", r"\S"),
    *(r"\s+", r"\w", r"\W", r"\D", r"\b", ".", ".*", "^", "$"),
)
PATTERNS = st.builds(
    "{}{}{}{}$".format,
    st.sampled_from(["", "^"]),
    st.sampled_from(LITERALS),
    st.sampled_from(["", ".*"]),
    st.lists(st.sampled_from(ATOMS), max_size=3).map("".join),
)
CONTENTS = st.builds(
    lambda ends, last: "".join(map("{}{}".format, LINES, [*ends, last])),
    st.lists(st.sampled_from(["\n", "\r\n"]), min_size=len(LINES) - 1, max_size=len(LINES) - 1),
    st.sampled_from(["\n", "\r\n", ""]),
)


def lines_that_python_finds(pattern, content):
    # Not splitlines, which splits at more than LF.
    lines = re.findall(r"[^\n]*\n|[^\n]+\Z", content)
    found = re.compile(pattern, re.ASCII)
    texts = [line.removesuffix("\n").removesuffix("\r") for line in lines]
    return [at for at, text in enumerate(texts, 1) if found.search(text)]


def lines_that_are_found(content, pattern):
    with Tree([], []) as tree:
        (tree.root / "a").write_bytes(content.encode())
        wanted = Wanted(Regex(pattern), 0, 500)
        found = search_content(tree.workspace, Shows(), ROOT, wanted)
        return [number for file in found.files for number in file.matching]


@given(pattern=PATTERNS, content=CONTENTS)
def test_a_dollar_stands_before_the_line_end_of_lf_crlf_and_mixed_files(pattern, content):
    assert lines_that_are_found(content, pattern) == lines_that_python_finds(pattern, content)
