"""`paddock hook` as a person types it: the project that it judges by is the one that is named."""

import json

import pytest

from tests.support.hooks import Client
from tests.support.places import run_command


def word(ran) -> str:
    return json.loads(ran.out)["hookSpecificOutput"]["permissionDecisionReason"] if ran.out else ""


@pytest.mark.parametrize("before", [True, False])
def test_the_plane_that_is_named_judges_wherever_one_stands(before, client: Client):
    place = client.place
    client.write_policy('[paths]\nprotected = ["*.txt"]\n')
    other = place.base / "other"
    (other / ".git").mkdir(parents=True)
    root = str(place.project)

    def say(file, *plane):
        event = json.dumps({"tool_name": "Write", "tool_input": {"file_path": file, "content": ""}})
        words = (*plane, "hook") if before else ("hook", *plane)
        variables = {"HOME": str(place.home)}
        return run_command(*words, variables=variables, here=other, stdin=event.encode())

    assert word(say(f"{other}/b.txt")) == ""
    assert "Path outside project boundary" in word(say(f"{other}/b.txt", "--plane", root))
    assert "Protected path: a.txt" in word(say(f"{root}/a.txt", "--plane", "../project"))
    assert word(say(f"{root}/a.md", "--plane", root)) == ""
    assert "/nowhere" in word(say(f"{other}/b.txt", "--plane", "/nowhere"))
