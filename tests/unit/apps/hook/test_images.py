"""A stale or tampered image decides nothing."""

import marshal
import os
from pathlib import Path

import pytest

from paddock.apps.hook.lean.image import FORMAT, KEY_BYTES, seal
from paddock.apps.hook.lean.request import DeclinedError
from paddock.plane.discover import register_bare_plane
from tests.support.hooks import Client
from tests.support.users import plain_ids

WRITE = {"file_path": "{root}/docs/a", "content": "x"}


def data(client: Client, path: str = "{root}/docs/a", **more) -> bytes:
    return client.event("Write", tool_input={"file_path": path, "content": "x"}, **more)


def prepared(client: Client) -> Path:
    """A client whose image is there; the image's file."""
    assert client.say(data(client), keeps_image=True).word == "none"
    (image,) = (client.place.home / ".local/state/paddock/hook").glob("*.image")
    assert client.lean(data(client)).word == "none"
    return image


def declines(client: Client, given: bytes | None = None) -> bool:
    before = len(client.entries())
    try:
        client.lean(given or data(client))
    except DeclinedError:
        assert len(client.entries()) == before
        return True
    return False


def test_both_ways_leave_entries_in_one_chain(client: Client):
    prepared(client)
    client.say(data(client))
    client.lean(data(client, "{root}/.git/x"))

    assert [entry.decision for entry in client.entries()] == ["allow", "allow", "allow", "deny"]


def test_image_and_key_are_the_users_alone(client: Client):
    image = prepared(client)
    key = client.place.home / ".config/paddock/keys/hook.key"

    assert [path.stat().st_mode & 0o777 for path in (image, key)] == [0o600, 0o600]
    assert len(key.read_bytes()) == KEY_BYTES


@pytest.mark.parametrize("at", [0, len(FORMAT), len(FORMAT) + 5, len(FORMAT) + 40, -1])
def test_a_changed_byte_breaks_the_seal(at, client: Client):
    image = prepared(client)
    content = bytearray(image.read_bytes())
    content[at] ^= 1
    image.write_bytes(content)

    assert declines(client)


def test_an_image_of_somebody_elses_making_does_not_count(client: Client):
    image = prepared(client)
    body = marshal.loads(image.read_bytes()[len(FORMAT) + 32 :])
    body["guards"] = (((None, None, None, ()), (), (), (), (), ()), ((), ()))
    forged = marshal.dumps(body)
    image.write_bytes(FORMAT + seal(bytes(KEY_BYTES), forged) + forged)

    assert declines(client)
    assert client.start(data(client, "{root}/.git/x")).stdout.count(b'"deny"') == 1


def test_a_cut_an_empty_and_an_appended_image_do_not_count(client: Client):
    image = prepared(client)
    whole = image.read_bytes()
    for content in (whole[:-1], whole + b"x", b"", whole[:20]):
        image.write_bytes(content)
        assert declines(client)


def test_an_image_that_others_may_touch_does_not_count(client: Client):
    image = prepared(client)
    for mode in (0o640, 0o606, 0o666):
        image.chmod(mode)
        assert declines(client)
    image.chmod(0o600)
    assert not declines(client)


def test_a_link_in_the_place_of_the_image_or_its_key_does_not_count(client: Client):
    image = prepared(client)
    key = client.place.home / ".config/paddock/keys/hook.key"
    for path in (image, key):
        moved = path.with_suffix(".moved")
        path.rename(moved)
        path.symlink_to(moved)
        assert declines(client)
        path.unlink()
        moved.rename(path)
    assert not declines(client)


@pytest.mark.needs("root")
def test_another_users_image_does_not_count(client: Client):
    image = prepared(client)
    os.chown(image, *plain_ids())

    assert declines(client)


def test_a_policy_that_appears_changes_or_goes_makes_the_image_stale(client: Client):
    prepared(client)
    file = client.place.project / "paddock.toml"
    client.write_policy('[paths]\nprotected = ["docs/"]\n')
    assert declines(client)
    assert client.say(data(client), keeps_image=True).word == "deny"
    assert client.lean(data(client)).word == "deny"
    text = file.read_bytes()
    status = file.stat()
    # Threat: the same size, the same time, the same file.
    file.write_bytes(text.replace(b"docs", b"socd"))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert declines(client)
    file.write_bytes(text)
    assert not declines(client)
    file.unlink()
    assert declines(client)


def test_a_plane_that_comes_to_stand_in_the_project_makes_the_image_stale(client: Client):
    prepared(client)
    inside = data(client, "{root}/docs/plane/HOT/config/policy.toml")
    assert client.lean(inside).word == "none"
    register_bare_plane(client.place.project / "docs" / "plane", client.place.environment)
    assert declines(client)
    assert client.say(inside, keeps_image=True).word == "deny"
    assert client.lean(inside).word == "deny"
    assert client.lean(data(client)).word == "none"


def test_trust_that_is_taken_back_makes_the_image_stale(client: Client):
    client.write_policy('[hook]\non_allow = "approve"\n')
    assert client.say(data(client), keeps_image=True).word == "allow"
    assert client.lean(data(client)).word == "allow"
    (record,) = (client.place.home / ".local/state/paddock/trust").glob("*.json")
    record.unlink()

    assert declines(client)
    assert client.say(data(client)).word == "none"


def test_the_users_own_configuration_makes_the_image_stale(client: Client):
    prepared(client)
    config = client.place.home / ".config/paddock/config.toml"
    config.write_text('[paths]\nprotected = ["docs/"]\n')

    assert declines(client)
    assert client.say(data(client)).word == "deny"


@pytest.mark.parametrize("name", ["HOT/config/admin_config.json", "paddock.json"])
def test_another_root_or_a_second_policy_makes_the_image_stale(name, client: Client):
    prepared(client)
    marker = client.place.project / name
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.write_text("{}")

    assert declines(client)


def test_a_marker_above_the_project_makes_the_image_stale(client: Client):
    prepared(client)
    marker = client.place.base / "HOT/config/admin_config.json"
    marker.parent.mkdir(parents=True)
    marker.write_text("{}")

    assert declines(client)


@pytest.mark.parametrize("name", ["paddock.toml", "paddock.json"])
def test_a_policy_above_the_project_makes_the_image_stale(name, client: Client):
    prepared(client)
    (client.place.base / name).write_text("{}" if name.endswith("json") else "")

    assert declines(client)


def test_an_agents_changed_declaration_makes_the_image_stale(client: Client):
    prepared(client)
    (agent,) = (client.place.home / ".local/state/paddock/planes").glob("*/agents/main/agent.json")
    agent.write_text(agent.read_text().replace("standard", "locked"))

    assert declines(client)
    assert client.say(data(client)).word == "deny"


def test_a_replaced_ledger_is_not_written_by_the_lean_path(client: Client):
    prepared(client)
    copy = client.ledger.with_name("copy")
    copy.write_bytes(client.ledger.read_bytes())
    copy.replace(client.ledger)

    assert declines(client)


def test_where_the_ledger_goes_on_in_another_file_the_next_call_makes_another_image(
    client: Client,
):
    prepared(client)
    copy = client.ledger.with_name("copy")
    copy.write_bytes(client.ledger.read_bytes())
    copy.replace(client.ledger)

    assert client.start(data(client)).returncode == 0
    assert not declines(client)
    assert len(client.entries()) == 4


def test_a_command_about_which_only_otherwise_asks_needs_no_more_than_the_image(client: Client):
    prepared(client)
    command = {"command": "npm test 2>&1 | tail -20"}

    assert not declines(client, client.event("Bash", tool_input=command))
    assert client.entries()[-1].decision == "confine"


def test_a_question_to_a_person_is_left_to_the_path_that_makes_checkpoints(client: Client):
    client.write_policy('[profiles.standard]\nallow = ["tool:*"]\nask = ["tool:file:create x"]\n')
    prepared(client)

    assert declines(client, data(client, "{root}/x"))
    assert client.say(data(client, "{root}/x")).word == "ask"


def test_what_an_image_does_not_hold_is_left_to_the_policy(client: Client):
    client.place.run("agent", "create", "reviewer", "--profile", "locked")
    prepared(client)

    assert not declines(client, data(client, "{root}/docs/ä"))
    assert declines(client, data(client, agent_type="reviewer"))
    assert declines(client, data(client, agent_id="a"))
    assert declines(client, client.event("Bash", tool_input={"command": "echo $X"}))
    assert not declines(client, data(client, agent_type="Explore"))


@pytest.mark.parametrize(
    "policy",
    [
        '[profiles.standard]\ndeny = ["tool:file:view"]\n',
        '[agents."Explore"]\nprofile = "own"\n[profiles.own]\nallow = ["tool:*"]\n',
    ],
)
def test_an_untrusted_policy_that_has_a_say_has_no_image(policy, client: Client):
    client.write_policy(policy, trusted=False)
    client.say(data(client), keeps_image=True)

    assert declines(client)


def test_another_environment_is_another_image(client: Client):
    prepared(client)
    client.variables["CLAUDE_CONFIG_DIR"] = "/elsewhere"
    assert declines(client)
    client.variables.clear()
    client.variables["PADDOCK_PLANE"] = client.root
    assert declines(client)
    client.variables.clear()
    assert not declines(client)


def test_old_images_go_where_there_are_many(client: Client, monkeypatch: pytest.MonkeyPatch):
    image = prepared(client)
    monkeypatch.setattr("paddock.apps.hook.context.IMAGES_MAX", 2)
    for number in range(3):
        old = image.with_name(f"{number}.image")
        old.write_bytes(b"")
        os.utime(old, (number, number))
    client.say(data(client), keeps_image=True)

    assert sorted(path.name for path in image.parent.glob("*.image")) == sorted(
        ["2.image", image.name]
    )


def test_a_warning_that_the_lean_path_did_not_give_is_still_due(client: Client):
    prepared(client)
    with client.ledger.open("ab") as file:
        file.write(b"torn")

    assert declines_to_write(client, data(client, "{root}/src/a"))
    assert client.say(data(client, "{root}/src/a")).context != ""
    assert client.say(data(client, "{root}/src/a")).context == ""


def declines_to_write(client: Client, given: bytes) -> bool:
    try:
        client.lean(given)
    except DeclinedError:
        return True
    return False
