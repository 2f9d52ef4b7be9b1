"""What shows a file's content without viewing it is judged as viewing, and the refusal has its rule."""

import json

import pytest

POLICY = """[profiles.standard]
allow = ["tool:file:*", "tool:search:*"]
deny = ["tool:file:view denied/**"]
ask = ["tool:file:view asked/**"]
"""


@pytest.fixture
def reader(user):
    (user.project / "paddock.toml").write_text(POLICY)
    assert user.run("trust", "--yes").status == 0
    for folder in ("denied", "asked"):
        (user.project / folder).mkdir()
        (user.project / folder / "x").write_bytes(b"needle\n")
    (user.project / ".env").write_bytes(b"needle=1\n")
    return user


SHOWING = [
    ("grep", {"pattern": "needle", "path": "{}"}),
    ("move_file", {"path": "{}", "to": "open"}),
]


def ask(reader, tool, arguments, path, *options):
    given = {name: value.format(path) for name, value in arguments.items()}
    return reader.call(tool, *options, **given).json


@pytest.mark.parametrize(("tool", "arguments"), SHOWING)
def test_a_denied_file_is_refused_with_its_rule(reader, tool, arguments):
    refused = ask(reader, tool, arguments, "denied/x")
    rule = {"text": "tool:file:view denied/**", "file": "paddock.toml", "line": 3}
    assert (refused["code"], refused["rule"]) == ("policy.denied", rule)
    assert (reader.project / "denied/x").exists()
    asked = ("ledger", "query", "--ledger", "ho1m", "--type", "TOOL_DENIED", "--json")
    (row,) = reader.run(*asked).out.splitlines()
    assert "tool:file:view denied/x" in json.loads(row)["metadata"]["actions"]


@pytest.mark.parametrize(("tool", "arguments"), SHOWING)
def test_a_file_that_is_asked_about_is_shown_after_a_yes(reader, tool, arguments):
    assert ask(reader, tool, arguments, "asked/x", "--no-input")["code"] == "approval.unavailable"
    assert ask(reader, tool, arguments, "asked/x", "--yes")["status"] == "ok"


@pytest.mark.parametrize(("tool", "arguments"), SHOWING)
def test_a_secret_stays_one(reader, tool, arguments):
    refused = ask(reader, tool, arguments, ".env", "--yes")
    assert refused["code"] in {"policy.secret", "policy.protected"}
    assert refused["rule"]["text"] == ".env"
    assert (reader.project / ".env").read_bytes() == b"needle=1\n"
