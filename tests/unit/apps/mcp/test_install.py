"""`paddock mcp install`: one entry in somebody else's file, and every other byte as it was."""

import json
import os
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.apps.mcp.json_members import set_member

ENTRY = {"command": "paddock", "args": ["mcp"]}
OTHERS = b"""{
    "mcpServers" : { "other": {"command":"x","args":[ ]}
    },
\t"\\u00e9": [1,  2.50, 1e3],
    "paddock": {"mcpServers": {}}
}"""


def test_a_new_file_has_the_entry(user):
    assert user.run("mcp", "install", "--client", "claude").status == 0
    assert json.loads((user.project / ".mcp.json").read_bytes()) == {
        "mcpServers": {"paddock": ENTRY}
    }


def test_whoever_names_the_client_without_a_terminal_has_said_it_by_that(user):
    ran = user.run("mcp", "install", "--client", "claude", "--json")
    file = user.project / ".mcp.json"
    assert (ran.status, ran.err) == (0, "")
    assert ran.json == {"status": "ok", "file": str(file), "is_new": True, "entry": ENTRY}
    assert file.exists()


def test_another_servers_entry_stays_byte_for_byte(user):
    file = user.project / ".mcp.json"
    file.write_bytes(OTHERS)
    os.chmod(file, 0o664)
    assert user.run("mcp", "install", "--client", "claude", "--agent", "main").status == 0
    written = file.read_bytes()
    added = written.replace(OTHERS[: OTHERS.index(b"\n    },")], b"", 1)
    assert written.startswith(OTHERS[: OTHERS.index(b"\n    },")])
    assert written.endswith(OTHERS[OTHERS.index(b"\n    },") :])
    assert b"paddock" in added
    found = json.loads(written)
    assert found.pop("mcpServers") == {
        "other": {"command": "x", "args": []},
        "paddock": {"command": "paddock", "args": ["mcp", "--agent", "main"]},
    }
    assert found == {"é": [1, 2.5, 1e3], "paddock": {"mcpServers": {}}}
    assert os.stat(file).st_mode & 0o777 == 0o664


def test_again_changes_nothing(user):
    user.run("mcp", "install", "--client", "claude")
    before = (user.project / ".mcp.json").read_bytes()
    ran = user.run("mcp", "install", "--client", "claude", "--json")
    assert (ran.status, ran.json["is_new"]) == (0, False)
    assert (user.project / ".mcp.json").read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"", b"# mine\nmodel = 'x'", b"[mcp_servers.other]\nurl='u'\n"]
)
def test_codex_gets_a_table_behind_what_stands_there(user, content):
    file = user.home / ".codex/config.toml"
    file.parent.mkdir()
    file.write_bytes(content)
    assert user.run("mcp", "install", "--client", "codex").status == 0
    written = file.read_bytes()
    assert written.startswith(content)
    entry = tomllib.loads(written.decode())["mcp_servers"]["paddock"]
    assert (entry["args"], entry["required"]) == (["mcp"], True)
    assert os.path.isabs(entry["command"])
    assert user.run("mcp", "install", "--client", "codex").status == 0
    assert file.read_bytes() == written


@pytest.mark.parametrize(
    ("client", "name", "content", "status"),
    [
        ("claude", ".mcp.json", b"{", 3),
        ("claude", ".mcp.json", b"[]", 3),
        ("claude", ".mcp.json", b'{"mcpServers": []}', 3),
        ("claude", ".mcp.json", b'{"mcpServers": {}, "mcpServers": {}}', 3),
        ("codex", ".codex/config.toml", b"= 1", 3),
        ("codex", ".codex/config.toml", b"mcp_servers = 1\n", 2),
        ("codex", ".codex/config.toml", b"mcp_servers = {}\n", 2),
        ("codex", ".codex/config.toml", b"mcp_servers = {other = {command = 'x'}}\n", 2),
        ("codex", ".codex/config.toml", b"[[mcp_servers]]\ncommand = 'x'\n", 2),
        ("codex", ".codex/config.toml", b"[mcp_servers.paddock]\ncommand = 'x'\n", 2),
    ],
)
def test_a_file_that_cannot_be_edited_stays_as_it_is(user, client, name, content, status):
    file = user.project / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    ran = user.run("mcp", "install", "--client", client, "--scope", "project")
    assert (ran.status, file.read_bytes()) == (status, content)


def test_a_link_is_not_written_through(user, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"{}")
    os.symlink(tmp_path / "elsewhere", user.project / ".mcp.json")
    assert user.run("mcp", "install", "--client", "claude").status == 3
    assert (tmp_path / "elsewhere").read_bytes() == b"{}"


def test_an_agent_that_is_not_there_is_not_configured(user):
    ran = user.run("mcp", "install", "--client", "claude", "--agent", "nobody")
    assert (ran.status, (user.project / ".mcp.json").exists()) == (2, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(st.text(), JSON, max_size=4),
    st.none() | st.dictionaries(st.text(), JSON, max_size=3),
    st.sampled_from([None, 1, 4, "\t"]),
    st.booleans(),
)
def test_whatever_stands_in_the_file_one_member_is_set(others, servers, indent, is_ascii):
    values = dict(others)
    values.pop("mcpServers", None)
    if servers is not None:
        values["mcpServers"] = servers
    text = json.dumps(values, indent=indent, ensure_ascii=is_ascii)
    changed = set_member(text, ("mcpServers", "paddock"), ENTRY)
    wanted = {**values, "mcpServers": {**(servers or {}), "paddock": ENTRY}}
    assert json.loads(changed) == wanted
    assert list(json.loads(changed)) == list(wanted)
