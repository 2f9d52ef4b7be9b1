"""One word an idea: a public class's name stands once in the package."""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.repository import modules


def repeated(texts: Iterable[str]) -> dict[str, int]:
    """The public classes' names that stand more than once in these modules."""
    found = Counter(
        node.name
        for text in texts
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in found.items() if count > 1}


def texts_of(paths: Iterable[Path]) -> list[str]:
    return [path.read_text(encoding="utf-8") for path in paths]


def test_a_public_class_has_a_name_of_its_own():
    assert repeated(texts_of(modules())) == {}


def test_a_name_that_stands_twice_is_found_and_a_private_one_is_not():
    one = "class Entry: ...\nclass _Own: ...\nclass Once: ...\n"
    other = "def made():\n    class Entry: ...\n\nclass _Own: ...\n"

    assert repeated([one, other]) == {"Entry": 2}
