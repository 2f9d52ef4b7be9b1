"""The source is written in plain English: some habits of before may not come back.

A word is looked for in comments and texts alone, so a name may hold it.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.support.repository import ROOT, modules

HABITS = {
    "a docstring begins with a verb or a noun": re.compile(r'^\w*"""(?:What|Whether)\b'),
    "name who acts": re.compile(r"\b(?:whoever|whomever|whosoever)\b", re.IGNORECASE),
    "write `is not a`": re.compile(
        r"(?<![Tt]here )\b(?:is|are|was|were) no (?!longer\b|more\b|less\b)[a-z]"
    ),
    "write `again`, `the same`, `from there`": re.compile(r"\b(?:anew|likewise|thence|hitherto)\b"),
    "write `is` or `exists`": re.compile(r"\bstands? (?:there|at|in|on|below|beside|outside)\b"),
}
GLOSSARY_ROWS_MAX = 20


def habits_in(path: Path) -> Iterator[str]:
    """Where and why; a text that is made of several tokens is looked at token by token."""
    text = io.StringIO(path.read_text(encoding="utf-8"))
    for token in tokenize.generate_tokens(text.readline):
        if token.type in {tokenize.COMMENT, tokenize.STRING}:
            for why, habit in HABITS.items():
                if found := habit.search(token.string):
                    yield f"{path.name}:{token.start[0]}: {found[0]!r}: {why}"


def test_no_text_of_the_source_has_a_habit_of_before():
    assert [each for path in modules() for each in habits_in(path)] == []


def test_each_habit_is_found(tmp_path: Path):
    planted = tmp_path / "planted.py"
    planted.write_text(
        '"""What it does, likewise."""\nwhoever = 1\n# whoever asks: it is no file\nX = "it stands there"\n'
    )

    assert [each.rpartition(": ")[2] for each in habits_in(planted)] == [
        "a docstring begins with a verb or a noun",
        "write `again`, `the same`, `from there`",
        "name who acts",
        "write `is not a`",
        "write `is` or `exists`",
    ]


def test_the_glossary_has_at_most_twenty_words():
    rows = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8").splitlines()
    words = [
        row for row in rows if row.startswith("| ") and not row.startswith(("| word", "| ---"))
    ]

    assert 0 < len(words) <= GLOSSARY_ROWS_MAX
