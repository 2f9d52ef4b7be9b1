"""One word an idea: a public class's name stands once in the package, unless it is listed here."""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.repository import modules

REPEATED: Final = {
    "the hook's lean path imports nothing that costs, and has its own small form": {
        "Engine": 2,
        "Finding": 3,
        "Judged": 2,
        "Line": 3,
        "Mark": 3,
        "Place": 4,
        "Record": 2,
        "Rule": 2,
        "Scene": 2,
        "Verdict": 3,
        "Wanted": 2,
    },
    "a program inside the sandbox stands alone, and has its own side of it": {
        "Ended": 2,
        "Keeper": 3,
        "Layers": 2,
        "Report": 4,
        "Start": 2,
        "Terms": 3,
        "Watcher": 2,
    },
    "a port: a layer says in its own words what it needs": {
        "Disk": 2,
        "Ports": 2,
        "Shell": 2,
        "Shown": 3,
        "Witness": 2,
    },
    "a door's command, answer or screen, and what lies below it": {
        "Agents": 2,
        "Answer": 3,
        "Asking": 2,
        "Call": 2,
        "Calls": 2,
        "Candidate": 2,
        "Command": 2,
        "Console": 4,
        "Door": 2,
        "Fitted": 2,
        "LedgerCommand": 2,
        "PolicyCommand": 2,
        "Prepared": 3,
        "Progress": 3,
        "Question": 2,
        "Run": 2,
        "Screen": 2,
        "Seen": 3,
        "Silence": 2,
        "Span": 2,
        "Status": 3,
        "Streams": 2,
        "Table": 2,
        "Text": 2,
        "Tools": 3,
        "Wire": 2,
    },
    "modules have each their own, and none knows two of them": {
        "Approval": 2,
        "Area": 2,
        "Change": 2,
        "Child": 2,
        "Claim": 2,
        "CommandLine": 2,
        "Comparison": 2,
        "Conversation": 2,
        "Differences": 2,
        "Done": 2,
        "Edit": 2,
        "Effects": 2,
        "Exchange": 2,
        "Explanation": 2,
        "Fail": 2,
        "Fault": 2,
        "Found": 2,
        "Ground": 6,
        "Head": 2,
        "Held": 2,
        "Kept": 3,
        "Kind": 4,
        "LeftOut": 2,
        "Listing": 2,
        "Look": 2,
        "NameIndex": 2,
        "Note": 2,
        "Phase": 2,
        "Plan": 3,
        "Problem": 2,
        "Receipt": 2,
        "Recorded": 3,
        "Recorder": 2,
        "Recovered": 2,
        "Reservation": 2,
        "Running": 2,
        "Settled": 2,
        "Standing": 4,
        "Tree": 2,
    },
}
"""Why a name stands more than once, and how often."""


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


def test_a_public_class_has_a_name_of_its_own_or_is_listed():
    listed = {name: count for names in REPEATED.values() for name, count in names.items()}

    assert repeated(texts_of(modules())) == listed


def test_a_name_that_stands_twice_is_found_and_a_private_one_is_not():
    one = "class Entry: ...\nclass _Own: ...\nclass Once: ...\n"
    other = "def made():\n    class Entry: ...\n\nclass _Own: ...\n"

    assert repeated([one, other]) == {"Entry": 2}
