"""A client's own file: shown before it is edited, and written only as it was read."""

import os
from pathlib import Path

import pytest

from paddock.errors import ConfigError
from paddock.plane.clients import CLAUDE, CODEX, ClientFileEdit, read_client_file


@pytest.mark.parametrize("follows", [False, True])
def test_an_edit_is_shown_and_then_made(tmp_path: Path, follows):
    path = tmp_path / "settings.json"
    path.write_text("{\n}\n")
    edit = ClientFileEdit(read_client_file(path, follows=follows), b'{\n"new": 1\n}\n')

    assert edit.changes
    assert edit.shown().splitlines() == [
        f"--- {path}",
        f"+++ {path}",
        "@@ -1,2 +1,3 @@",
        " {",
        '+"new": 1',
        " }",
    ]
    assert path.read_text() == "{\n}\n"
    edit.apply()
    assert path.read_text() == '{\n"new": 1\n}\n'
    assert os.listdir(tmp_path) == ["settings.json"]
    assert not ClientFileEdit(read_client_file(path, follows=follows), path.read_bytes()).changes


@pytest.mark.parametrize("content", [b"{...}", None])
def test_a_change_of_somebody_else_in_between_stops_the_write(tmp_path: Path, content):
    path = tmp_path / "settings.json"
    path.write_text("{}")
    file = read_client_file(path, follows=False)
    path.write_text('{"new": 1}')

    with pytest.raises(ConfigError, match="another process"):
        ClientFileEdit(file, content).apply()
    assert path.read_text() == '{"new": 1}'
    assert os.listdir(tmp_path) == ["settings.json"]


@pytest.mark.parametrize(("follows", "mode"), [(False, 0o644), (True, 0o600)])
def test_the_mode_of_a_file_stays_and_a_users_new_one_is_private(tmp_path: Path, follows, mode):
    old, new = tmp_path / "old.json", tmp_path / "dir" / "new.json"
    old.write_text("{}")
    old.chmod(0o640)
    for path in (old, new):
        ClientFileEdit(read_client_file(path, follows=follows), b"{ }").apply()

    assert [path.stat().st_mode & 0o777 for path in (old, new)] == [0o640, mode]


def test_a_file_that_goes_takes_a_clients_folder_along_that_has_nothing_else(tmp_path: Path):
    # A project whose only file it was stays, and so does a home.
    for name in ("alone/.claude", "shared/.claude", "project"):
        (tmp_path / name).mkdir(parents=True)
        path = tmp_path / name / "settings.json"
        path.write_text("{}")
        if name.startswith("shared"):
            path.with_name("mine").touch()
        ClientFileEdit(read_client_file(path, follows=False), None).apply()

    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")) == [
        "alone",
        "project",
        "shared",
        "shared/.claude",
        "shared/.claude/mine",
    ]


@pytest.mark.parametrize("link", ["dir", "dir/settings.json"])
def test_only_the_users_own_link_is_followed(tmp_path: Path, link):
    kept = tmp_path / "kept" / "settings.json"
    kept.parent.mkdir()
    kept.write_text("{}")
    path = tmp_path / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(kept.parent if link == "dir" else kept)
    named = tmp_path / "dir" / "settings.json"

    with pytest.raises(ConfigError):
        read_client_file(named, follows=False)
    ClientFileEdit(read_client_file(named, follows=True), b"{ }").apply()
    assert (path.is_symlink(), kept.read_text()) == (True, "{ }")


def test_what_is_not_utf8_is_refused_with_its_place(tmp_path: Path):
    path = tmp_path / "settings.json"
    path.write_bytes(b"{\xff}")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 1"):
        _ = read_client_file(path, follows=False).text


@pytest.mark.parametrize(
    ("client", "variable", "folder"),
    [(CLAUDE, "CLAUDE_CONFIG_DIR", ".claude"), (CODEX, "CODEX_HOME", ".codex")],
)
def test_a_clients_own_folder_is_in_the_home_unless_its_variable_names_another(
    client, variable, folder
):
    assert client.of_user("/home/a", {}) == f"/home/a/{folder}"
    assert client.of_user("/", {variable: ""}) == f"/{folder}"
    assert client.of_user("/home/a", {variable: "/else/where"}) == "/else/where"
