"""Arguments for somebody else's server, as policy has the ledger keep them."""

import hashlib
import json

import pytest
from msgspec.structs import replace

from paddock.policy.arguments import redact
from paddock.policy.settings import McpServer
from paddock.runtime.records import DigestsAlone, kept_arguments
from paddock.tools.spec import Tool
from paddock.tools.view import VIEW

GIVEN = {"repo": "a", "limit": 1.5, "auth": {"key": "hunter2", "user": "me"}, "list": [{"k": 1}]}


class Kept:
    """Contents in memory."""

    def __init__(self) -> None:
        self.said: list[bytes] = []

    def stand_in(self, content):
        self.said.append(content)
        return {"salted_sha256": "0", "bytes": len(content)}

    def sync(self) -> None:
        pass


def kept(given, contents=None, **said):
    tool = VIEW
    spec = replace(tool.spec, recording=McpServer("issues", ("x",), **said))
    return kept_arguments(given, Tool(spec, tool.handler), contents or Kept())


def test_arguments_are_kept_whole():
    assert kept(GIVEN) == GIVEN
    assert kept({}) == {}


def test_a_digest_is_of_all_of_them_and_salted():
    (found,) = kept(GIVEN, DigestsAlone(lambda n: b"s" * n), record="digest").items()

    content = json.dumps(GIVEN, sort_keys=True, separators=(",", ":")).encode()
    digest = hashlib.sha256(b"s" * 16 + content).hexdigest()
    assert found == (
        "…",
        {"salted_sha256": digest, "salt": (b"s" * 16).hex(), "bytes": len(content)},
    )


def test_what_a_pointer_leads_to_is_kept_nowhere():
    contents = Kept()
    redacted = {**GIVEN, "auth": {"key": {"redacted": True}, "user": "me"}}

    assert kept(GIVEN, contents, redact=("/auth/key", "/none")) == redacted
    kept(GIVEN, contents, redact=("/auth/key",), record="digest")
    assert contents.said == [json.dumps(redacted, sort_keys=True, separators=(",", ":")).encode()]


@pytest.mark.parametrize(
    ("pointer", "wanted"),
    [
        ("/list/k", [{"k": {"redacted": True}}, [{"k": {"redacted": True}}]]),
        ("/list/0/k", [{"k": {"redacted": True}}, [{"k": {"redacted": True}}]]),
        ("/list/1", [{"k": 1}, {"redacted": True}]),
        ("list", {"redacted": True}),
    ],
)
def test_of_an_array_it_is_left_out_of_each_element(pointer, wanted):
    assert redact({"list": [{"k": 1}, [{"k": 2}]]}, [pointer]) == {"list": wanted}


@pytest.mark.parametrize(
    "given",
    [{"a": "x" * 70_000}, {"a": "\0"}, {"a": "\ud800"}, {"a": 2**60}, {"a": float("inf")}],
)
def test_what_no_line_may_hold_or_is_long_is_kept_as_a_digest(given):
    assert list(kept(given)) == ["…"]
