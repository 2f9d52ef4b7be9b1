"""`paddock mcp install`, `uninstall`: one entry in somebody else's file, and every other byte as it was."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PADDOCK = Path(sys.executable).parent / "paddock"
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
    "known",
    [
        b'{"command": "other", "args": ["mcp"], "env": {"KEY": "k"}}',
        b'{"command": "paddock", "args": ["serve"]}',
        b'{"type": "http", "url": "http://127.0.0.1:1/mcp"}',
        b"null",
    ],
)
@pytest.mark.parametrize("scope", ["project", "user"])
def test_another_programs_entry_of_our_name_stays(user, scope, known):
    file = file_of(user, "claude", scope)
    content = b'{"mcpServers": {"paddock": %s}}' % known
    file.write_bytes(content)
    ran = user.run("mcp", "install", "--client", "claude", "--scope", scope)
    assert (ran.status, file.read_bytes()) == (2, content)
    assert "another program is configured as the server 'paddock'" in ran.err


def test_of_an_entry_of_ours_only_what_starts_the_server_is_set(user):
    file = user.project / ".mcp.json"
    before = """{"mcpServers": {"paddock": {"timeout": 600000, "command": "/gone/paddock",
      "args": ["mcp", "--agent", "main"],   "env": {"KEY":"k"} }}}"""
    file.write_text(before)
    assert user.run("mcp", "install", "--client", "claude").status == 0
    written = file.read_text()
    assert json.loads(written)["mcpServers"]["paddock"] == {
        "timeout": 600000,
        "command": "paddock",
        "args": ["mcp"],
        "env": {"KEY": "k"},
    }
    assert written.endswith(',   "env": {"KEY":"k"} }}}')
    again = user.run("mcp", "install", "--client", "claude", "--json")
    assert (again.json["is_new"], file.read_text()) == (False, written)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_of_our_table_only_what_starts_the_server_is_set_and_what_is_missing_added(user, newline):
    file = user.project / ".codex/config.toml"
    file.parent.mkdir()
    own = """[mcp_servers.paddock] # mine
# another agent's
args = ["mcp", "--agent", "main"]
tool_timeout_sec = 900
command = "paddock"

[mcp_servers.paddock.env]
args = "x"
"""
    other = "[mcp_servers.other]\nargs = ['mcp']\ncommand = 'x'\n"
    file.write_bytes(f"{own}{other}".replace("\n", newline).encode())
    assert user.run("mcp", "install", "--client", "codex", "--scope", "project").status == 0
    expected = own.replace('args = ["mcp", "--agent", "main"]\n', "").replace(
        "# mine\n", '# mine\nargs = ["mcp"]\nrequired = true\n'
    )
    written = f"{expected}{other}".replace("\n", newline).encode()
    assert file.read_bytes() == written
    again = user.run("mcp", "install", "--client", "codex", "--scope", "project", "--json")
    assert (again.json["is_new"], file.read_bytes()) == (False, written)


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
        ("codex", ".codex/config.toml", b"mcp_servers = 1\n", 3),
        ("codex", ".codex/config.toml", b"mcp_servers = {}\n", 2),
        ("codex", ".codex/config.toml", b"mcp_servers = {other = {command = 'x'}}\n", 2),
        ("codex", ".codex/config.toml", b"[[mcp_servers]]\ncommand = 'x'\n", 3),
        ("codex", ".codex/config.toml", b"[mcp_servers.paddock]\ncommand = 'x'\n", 2),
        (
            "codex",
            ".codex/config.toml",
            b"[mcp_servers]\npaddock = {command = 'paddock', args = ['mcp']}\n",
            2,
        ),
        (
            "codex",
            ".codex/config.toml",
            b"[mcp_servers.paddock]\ncommand = 'paddock'\nargs = ['mcp',\n'x']\n",
            2,
        ),
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


@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_plane_that_is_named_is_the_one_wherever_the_client_is_started(user, client):
    elsewhere = user.home / "elsewhere"
    elsewhere.mkdir()
    named = ("--plane", "../home/elsewhere")
    ran = user.run("mcp", "install", "--client", client, "--scope", "user", "--json", *named)
    started = ran.json["entry"]["args"]
    assert (ran.status, started) == (0, ["mcp", "--plane", str(elsewhere)])
    assert not planes_of(user)
    where = {"cwd": user.project, "env": {"HOME": str(user.home), "PATH": os.environ["PATH"]}}
    subprocess.run([PADDOCK, *started], **where, stdin=subprocess.DEVNULL, check=True)
    assert [json.loads(each.read_bytes())["root"] for each in planes_of(user)] == [str(elsewhere)]


def test_a_projects_own_file_names_no_place(user):
    other = user.home / "elsewhere"
    other.mkdir()
    named = ("--plane", str(other))
    ran = user.run("mcp", "install", "--client", "claude", "--scope", "project", *named)
    assert ran.status == 0
    assert json.loads((other / ".mcp.json").read_bytes()) == {"mcpServers": {"paddock": ENTRY}}


def test_an_agent_that_is_not_there_is_not_configured(user):
    ran = user.run("mcp", "install", "--client", "claude", "--agent", "nobody")
    assert (ran.status, (user.project / ".mcp.json").exists()) == (2, False)


# --- taking it out -----------------------------------------------------------------

CODEX = """model = "x"

[mcp_servers.other]
url = "u"
"""
BEHIND = """
# of another
[profiles.x]
model = "y"
"""


def planes_of(user):
    return list((user.home / ".local/state").glob("paddock/planes/*/plane.json"))


def file_of(user, client, scope):
    names = {
        ("claude", "project"): user.project / ".mcp.json",
        ("claude", "user"): user.home / ".claude.json",
        ("codex", "project"): user.project / ".codex/config.toml",
        ("codex", "user"): user.home / ".codex/config.toml",
    }
    return names[client, scope]


def install(user, client, scope="project"):
    assert user.run("mcp", "install", "--client", client, "--scope", scope).status == 0


@pytest.mark.parametrize("scope", ["project", "user"])
@pytest.mark.parametrize("client", ["claude", "codex"])
def test_a_file_that_was_made_for_the_entry_goes_with_it(user, client, scope):
    install(user, client, scope)
    file = file_of(user, client, scope)
    ran = user.run("mcp", "uninstall", "--client", client, "--scope", scope, "--json")
    assert (ran.status, ran.json, file.exists()) == (
        0,
        {"status": "ok", "file": str(file), "changed": True, "elsewhere": []},
        False,
    )
    again = user.run("mcp", "uninstall", "--client", client, "--scope", scope)
    assert (again.status, again.out) == (0, f"not installed in {file}\n")


@pytest.mark.parametrize(
    ("client", "content"),
    [
        ("claude", OTHERS),
        ("codex", CODEX.encode()),
        ("codex", CODEX.replace("\n", "\r\n").encode()),
    ],
    ids=["json", "toml", "toml with other line ends"],
)
def test_what_was_there_before_is_byte_for_byte_as_it_was(user, client, content):
    file = file_of(user, client, "project")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    os.chmod(file, 0o664)
    install(user, client)
    assert file.read_bytes() != content
    ran = user.run("mcp", "uninstall", "--client", client, "--scope", "project")
    assert (ran.status, ran.out, file.read_bytes()) == (0, f"removed from {file}\n", content)
    assert os.stat(file).st_mode & 0o777 == 0o664


def test_codex_loses_our_tables_alone_also_between_others(user):
    install(user, "codex")
    file = file_of(user, "codex", "project")
    ours = file.read_text()
    more = '[mcp_servers.paddock.tools.view]\napproval_mode = "approve"\n'
    file.write_text(f"{CODEX}\n{ours}\n{more}{BEHIND}")
    assert user.run("mcp", "uninstall", "--client", "codex", "--scope", "project").status == 0
    assert file.read_text() == CODEX + BEHIND


def test_an_emptied_table_stays_and_so_does_the_file(user):
    file = file_of(user, "claude", "project")
    file.write_text('{\n  "mcpServers": {},\n  "x": 1\n}\n')
    before = file.read_bytes()
    install(user, "claude")
    assert user.run("mcp", "uninstall", "--client", "claude").status == 0
    assert file.read_bytes() == before


@pytest.mark.parametrize(
    ("client", "content", "status"),
    [
        ("claude", b'{"mcpServers": {"paddock": {"command": "other", "args": ["mcp"]}}}', 2),
        ("claude", b'{"mcpServers": {"paddock": 1}}', 2),
        ("claude", b'{"mcpServers": {"paddock": {"command": "paddock", "args": []}}}', 2),
        ("claude", b"{", 3),
        ("claude", b'{"mcpServers": []}', 3),
        ("codex", b"= 1", 3),
        ("codex", b"[mcp_servers]\npaddock = {command = 'paddock', args = ['mcp']}\n", 2),
        ("codex", b"[mcp_servers.paddock]\ncommand = 'x'\n", 2),
        (
            "codex",
            b"[mcp_servers.paddock]\ncommand='paddock'\nargs=['mcp']\nx='''\n[y]\n'''\n",
            2,
        ),
    ],
)
def test_what_is_not_ours_or_cannot_be_taken_out_stays(user, client, content, status):
    file = file_of(user, client, "project")
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content)
    ran = user.run("mcp", "uninstall", "--client", client, "--scope", "project")
    assert (ran.status, file.read_bytes()) == (status, content)


def test_where_else_it_stands_is_said_and_it_is_not_gone_for_whoever_names_no_scope(user):
    install(user, "claude", "user")
    elsewhere = file_of(user, "claude", "user")
    ran = user.run("mcp", "uninstall", "--client", "claude")
    line = "paddock mcp uninstall --client claude --scope user"
    assert (ran.status, ran.err) == (
        1,
        f"note: the server is still in {elsewhere} (scope user): {line}\n",
    )
    install(user, "claude")
    taken = user.run("mcp", "uninstall", "--client", "claude", "--json")
    assert (taken.status, taken.json["changed"], taken.json["elsewhere"]) == (
        0,
        True,
        [{"scope": "user", "file": str(elsewhere), "why": ""}],
    )
    assert elsewhere.exists()
    elsewhere.write_bytes(b"{")
    unknown = user.run("mcp", "uninstall", "--client", "claude", "--scope", "project")
    assert (unknown.status, "cannot determine whether the server is in" in unknown.err) == (0, True)
