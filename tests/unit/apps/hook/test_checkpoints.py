"""When a checkpoint covers what the hook wrote: with events behind which no call waits."""

import os
import time
from pathlib import Path

import pytest

from paddock import limits
from paddock.apps.hook.lean import handler
from paddock.apps.hook.lean.handler import is_checkpoint_due
from paddock.apps.hook.lean.request import DeclinedError
from paddock.ledger.tree import checkpoints_folder, read_notes
from tests.support.hooks import Client

WRITE = {"file_path": "{root}/docs/a", "content": "x"}
AFTER = ("PostToolUse", "PostToolUseFailure")


def covered(client: Client) -> int:
    """How many entries the newest checkpoint covers."""
    notes = read_notes(checkpoints_folder(str(client.ledger)))
    return int(notes[-1][0]) if notes else 0


def age(client: Client, seconds: float) -> None:
    """Let the newest checkpoint be so old."""
    folder = checkpoints_folder(str(client.ledger))
    then = time.time() - seconds
    for path in (*folder.iterdir(), folder):
        os.utime(path, (then, then))


def event(client: Client, name: str) -> bytes:
    return client.event("Write", tool_input=WRITE, hook_event_name=name)


@pytest.fixture
def begun(client: Client) -> Client:
    """A session with an image, two entries and a checkpoint over both."""
    client.say(client.event(hook_event_name="SessionStart"), keeps_image=True)
    client.say(event(client, "PostToolUse"))
    assert covered(client) == 3
    return client


@pytest.mark.parametrize("name", [*AFTER, "SessionStart"])
def test_an_event_that_no_call_waits_for_covers_what_stands_before_it(begun: Client, name):
    begun.lean(begun.event("Write", tool_input={"file_path": "/elsewhere/x"}))
    age(begun, 2)

    with pytest.raises(DeclinedError, match="checkpoint"):
        begun.lean(event(begun, name))
    begun.say(event(begun, name))

    assert covered(begun) == 5


@pytest.mark.parametrize("name", [*AFTER, "SessionStart"])
def test_within_a_second_it_is_as_quick_as_a_call(begun: Client, name):
    age(begun, 0)
    begun.lean(event(begun, name))
    age(begun, 0)
    begun.say(event(begun, name))

    assert covered(begun) == 3


@pytest.mark.parametrize("name", ["PreToolUse", "PermissionRequest"])
def test_a_call_never_waits_for_a_checkpoint(begun: Client, name):
    age(begun, 3_600)
    begun.lean(event(begun, name))
    begun.say(event(begun, name))

    assert covered(begun) == 3


@pytest.mark.parametrize(
    ("name", "client", "age_s", "wanted"),
    [
        ("PostToolUse", "claude", 0.5, False),
        ("PostToolUse", "claude", 2, True),
        ("PostToolUse", "claude", -60, True),
        ("PostToolUse", "codex", 2, False),
        ("PostToolUse", "codex", 61, True),
        ("SessionStart", "codex", 2, True),
        ("SubagentStop", "claude", 3_600, False),
    ],
)
def test_a_client_that_waits_is_held_up_once_a_minute_at_most(
    tmp_path: Path, name, client, age_s, wanted
):
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    then = time.time() - age_s
    os.utime(folder, (then, then))

    said = {"event": name, "client": client}
    assert is_checkpoint_due(str(tmp_path), said) is wanted
    assert is_checkpoint_due(str(tmp_path / "none"), said) is (name != "SubagentStop")


def test_the_lean_path_knows_the_same_pause():
    assert limits.checkpoint_interval_s == handler.CHECKPOINT_S
