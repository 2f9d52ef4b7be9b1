"""A question that waits is told to the program that the user named, and no call waits for it."""

import json
import os

from tests.unit.apps.conftest import User

ASKING = b'[profiles.standard]\nallow = ["tool:file:*"]\nask = ["tool:file:create asked/**"]\n'


def notified_by(user: User, command: list[str]) -> None:
    folder = user.home / ".config" / "paddock"
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    (folder / "config.toml").write_text(f"[approvals]\nnotify = {json.dumps(command)}\n")


def test_the_named_program_gets_the_request_on_its_standard_input(asking: User):
    pipe = asking.home / "told"
    os.mkfifo(pipe)
    notified_by(asking, ["sh", "-c", f"cat > {pipe}"])
    kept = asking.call("create_file", "--json", path="asked/a", content="x\n").json["approval"]
    told = json.loads(pipe.read_text())
    shown = asking.run("approvals", "show", kept, "--json").json
    assert told == {name: value for name, value in shown.items() if name != "outdated"}
    assert told["arguments"] == {"path": "asked/a", "content": "x\n"}


def test_a_program_that_is_not_there_or_fails_changes_nothing_of_the_call(asking: User):
    notified_by(asking, ["/nonexistent/notify"])
    asked = asking.call("create_file", "--json", path="asked/a", content="x\n").json
    assert asked["code"] == "approval.unavailable"
    assert asked["approval"].startswith("APR-")


def test_a_project_names_no_program(user: User):
    policy = b'[approvals]\nnotify = ["sh", "-c", "touch /tmp/x"]\n'
    (user.project / "paddock.toml").write_bytes(policy)
    refused = user.run("trust", "--yes")
    assert refused.status == 3
    assert "is allowed only in the user's own configuration" in refused.err


def test_nobody_is_told_of_what_is_answered_at_once(asking: User):
    notified_by(asking, ["touch", str(asking.home / "told")])
    assert asking.call("create_file", "--yes", path="asked/a", content="x\n").status == 0
    assert not (asking.home / "told").exists()
