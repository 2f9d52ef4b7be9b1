"""What can stand at the cursor."""

import pytest
from prompt_toolkit.completion import Completion

from paddock.apps.admin.plain import Vocabulary
from paddock.apps.admin.terminal import completions

KNOWN = Vocabulary(
    commands={"call": "call a tool", "cost": "what was spent", "show": "show things"},
    parameters={"list_files": ("path", "depth"), "list_packages": (), "view": ("path",)},
    words={"show": ("frameworks", "packages")},
)


@pytest.mark.parametrize(
    ("before", "found"),
    [
        ("/c", [("/call", 2), ("/cost", 2)]),
        ("/", [("/call", 1), ("/cost", 1), ("/show", 1)]),
        ("/x", []),
        ("/show p", [("packages", 1)]),
        ("/show ", [("frameworks", 0), ("packages", 0)]),
        ("/cost ", []),
        ("/call li", [("list_files", 2), ("list_packages", 2)]),
        ("/call list_files p", [("path=", 1)]),
        ("/call list_files path=. d", [("depth=", 1)]),
        ("/call nothing p", []),
        ("list_f", [("list_files", 6)]),
        ("list_files ", [("path=", 0), ("depth=", 0)]),
        ("view p", [("path=", 1)]),
        ("", []),
        ("what files", []),
    ],
)
def test_what_could_be_typed_next_is_offered(before, found):
    offered = [(each.text, -each.start_position) for each in completions(before, KNOWN)]
    assert offered == found


def test_a_candidate_says_what_it_is():
    offered = next(completions("/ca", KNOWN))
    assert offered == Completion("/call", -3, display_meta="call a tool")
