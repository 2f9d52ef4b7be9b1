"""Contents of arguments: safe before the entry that names them, or the call does not run."""

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import ConfigError, HostError, StorageFullError
from paddock.runtime.dispatch import Dispatcher
from paddock.values.calls import ToolCall


class Watched(Struct, dict=True):
    """Contents in memory, with the order of what happened."""

    door: object
    said: list = field(default_factory=list)
    failure: Exception | None = None
    fails_at: str = "stand_in"

    def stand_in(self, content):
        self._step("stand_in", content)
        return {"salted_sha256": "0" * 64, "bytes": len(content)}

    def sync(self):
        self._step("sync", len(self.door.ledger.entries))

    def _step(self, name, seen):
        if self.failure is not None and self.fails_at == name:
            raise self.failure
        self.said.append((name, seen))


def call(door, contents, tool, **arguments):
    dispatcher = Dispatcher(replace(door.dispatcher()._context, contents=contents))
    return dispatcher.dispatch(ToolCall("C-1", tool, arguments))


def test_a_content_is_safe_before_the_intent_that_names_it(door):
    contents = Watched(door)
    assert call(door, contents, "create_file", path="a.txt", content="hello").status == "ok"
    # Nothing stood in the ledger when it was synced.
    assert contents.said == [("stand_in", b"hello"), ("sync", 0)]
    intent = dict(door.ledger.entries[0].entry.metadata)
    assert intent["arguments"]["content"] == {"salted_sha256": "0" * 64, "bytes": 5}


def test_a_call_without_a_content_keeps_and_waits_for_nothing(door):
    contents = Watched(door)
    (door.root / "a.txt").write_text("x")
    assert call(door, contents, "view", path="a.txt").status == "ok"
    assert contents.said == []


def test_a_refused_call_keeps_no_content(door):
    contents = Watched(door)
    assert call(door, contents, "create_file", path=".env", content="x").status == "error"
    assert (contents.said, door.events()) == ([], ["TOOL_DENIED"])


@pytest.mark.parametrize("fails_at", ["stand_in", "sync"])
@pytest.mark.parametrize(
    "failure", [StorageFullError("no space"), HostError("it failed"), ConfigError("it is open")]
)
def test_a_call_whose_content_cannot_be_kept_does_not_run(door, failure, fails_at):
    contents = Watched(door, failure=failure, fails_at=fails_at)
    result = call(door, contents, "create_file", path="a.txt", content="hello")
    assert (result.status, door.names(), door.events()) == ("error", [], ["TOOL_DENIED"])
    assert (door.metadata()["code"], result.refusal.code) == ("storage.full", "storage.full")
    # The refusal's own entry needs no store.
    assert "salt" in door.metadata()["arguments"]["content"]
