"""Our entries in a client's settings: put in after a yes, taken out without a trace."""

import json
import sys
import tomllib
from pathlib import Path

import pytest

from paddock.apps.hook.settings import claude, codex
from paddock.apps.hook.settings.claude import EVENTS, JUDGED, LAUNCHER, Program
from paddock.errors import ConfigError
from tests.support.hooks import Client

PROGRAM = Program("/opt/python", f"/opt/lib{LAUNCHER}")
OLDER = Program("/old/python", f"/old{LAUNCHER}")

SETTINGS = [
    "{}",
    "{ }\n",
    "{\n}\n",
    '{"model": "x"}',
    '{\n  "model": "x"\n}\n',
    '{\r\n\t"model": "x", // why\r\n\t"env": {}\r\n}\r\n',
    '\ufeff{"a": [1, 2,], /* b */ "c": {"d": null,},}',
    '{"hooks": {}}',
    '{"hooks": {"PreToolUse": []}, "z": 1}',
    '{"hooks": {"PreToolUse": [ /* none */ ]}}',
    '{\n    "hooks": {\n        "Stop": [\n            {"hooks": []}\n        ]\n    }\n}',
    '{"hooks":{"PreToolUse":[{"matcher":"Bash","hooks":[{"type":"command","command":"x"}]}]}}',
]


@pytest.mark.parametrize("text", SETTINGS)
def test_what_was_put_in_once_comes_out_byte_for_byte_and_replaces_an_older_one(text):
    once = claude.installed(text, "settings.json", PROGRAM)
    older = claude.installed(text, "settings.json", OLDER)

    assert once != text
    assert claude.is_installed(once, "settings.json", PROGRAM)
    assert claude.uninstalled(once, "settings.json") == text
    assert claude.installed(once, "settings.json", PROGRAM) == once
    assert not claude.is_installed(older, "settings.json", PROGRAM)
    assert claude.installed(older, "settings.json", PROGRAM) == once


SPOILS = {
    "a matcher that matches little": lambda group: group.update(matcher="Read"),
    "no matcher": lambda group: group.pop("matcher"),
    "a failure that lets calls run": lambda group: group["hooks"][0].update(onFailure="allow"),
    "no word of a failure": lambda group: group["hooks"][0].pop("onFailure"),
    "no time": lambda group: group["hooks"][0].update(timeout=0),
    "an answer that nobody waits for": lambda group: group["hooks"][0].update({"async": True}),
    "another type": lambda group: group["hooks"][0].update(type="prompt"),
    "a condition": lambda group: group["hooks"][0].update({"if": "false"}),
    "another program before": lambda group: group["hooks"][0].update(command="/bin/true"),
    "arguments the other way round": lambda group: group["hooks"][0]["args"].reverse(),
    "one argument more": lambda group: group["hooks"][0]["args"].append("--python"),
    "another command beside": lambda group: group["hooks"].append({"command": "x"}),
}


@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_an_entry_that_differs_in_anything_is_not_ours_as_it_should_be(spoil):
    installed = claude.installed("{}", "f", PROGRAM)
    value = json.loads(installed)
    spoil(value["hooks"]["PreToolUse"][0])
    spoiled = json.dumps(value)

    assert claude.is_installed(installed, "f", PROGRAM)
    assert not claude.is_installed(spoiled, "f", PROGRAM)
    assert claude.is_installed(claude.installed(spoiled, "f", PROGRAM), "f", PROGRAM)


def test_two_entries_for_one_event_are_one_too_many():
    value = json.loads(claude.installed("{}", "f", PROGRAM))
    value["hooks"]["PreToolUse"] *= 2
    assert not claude.is_installed(json.dumps(value), "f", PROGRAM)


FILES = {
    "local": lambda place: place.project / ".claude" / "settings.local.json",
    "project": lambda place: place.project / ".claude" / "settings.json",
    "user": lambda place: place.home / ".claude" / "settings.json",
}
"""Nearest first."""


def states(place):
    """State and reason of each scope of Claude Code in which the hook stands."""
    rows = place.run("hook", "status", "--client", "claude", "--json").json["installed"]
    return {row["scope"]: (row["state"], row["why"]) for row in rows if row["state"] != "absent"}


def switch(path, value):
    """Say in one settings file whether hooks run, keeping what else it says."""
    path.parent.mkdir(exist_ok=True)
    said = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**said, "disableAllHooks": value}))


@pytest.mark.parametrize("installed", FILES)
@pytest.mark.parametrize("off", FILES)
def test_hooks_that_another_scope_switches_off_are_not_called_installed(
    installed, off, client: Client
):
    place = client.place
    assert place.run("hook", "install", "--scope", installed, "--yes").status == 0
    assert states(place) == {installed: ("installed", "")}
    switch(FILES[off](place), True)

    why = f"disableAllHooks is true in {FILES[off](place)}: this client runs no hooks"
    assert states(place) == {installed: ("broken", why)}
    again = place.run("hook", "install", "--scope", installed, "--yes")
    assert (again.status, f"note: the client will not run the hook: {why}\n" in again.err) == (
        0,
        True,
    )
    switch(FILES[off](place), False)
    assert states(place) == {installed: ("installed", "")}


@pytest.mark.parametrize("nearer", ["local", "project"])
def test_of_several_scopes_that_switch_hooks_the_nearest_decides(nearer, client: Client):
    place = client.place
    assert place.run("hook", "install", "--yes").status == 0
    switch(FILES["user"](place), True)
    switch(FILES[nearer](place), False)
    assert states(place) == {"project": ("installed", "")}
    switch(FILES["user"](place), False)
    switch(FILES[nearer](place), True)
    why = f"disableAllHooks is true in {FILES[nearer](place)}: this client runs no hooks"
    assert states(place) == {"project": ("broken", why)}


@pytest.mark.parametrize("value", ["true", 1, None, {}])
def test_a_switch_that_is_neither_true_nor_false_says_nothing(value, client: Client):
    place = client.place
    assert place.run("hook", "install", "--yes").status == 0
    switch(FILES["local"](place), value)
    assert states(place) == {"project": ("installed", "")}
    switch(FILES["user"](place), True)
    assert states(place)["project"][0] == "broken"


def test_where_settings_cannot_be_read_nobody_can_tell_whether_hooks_run(client: Client):
    place = client.place
    assert place.run("hook", "install", "--yes").status == 0
    local = FILES["local"](place)
    local.write_text("{")
    found = states(place)
    said = f"cannot determine whether {local} disables hooks: the settings are not valid JSON"
    assert (found["project"][0], found["project"][1].startswith(said)) == ("broken", True)


def test_a_hook_that_is_switched_off_is_still_found_elsewhere(client: Client):
    place = client.place
    assert place.run("hook", "install", "--scope", "local", "--yes").status == 0
    switch(FILES["user"](place), True)
    ran = place.run("hook", "uninstall", "--yes")
    line = "paddock hook uninstall --scope local"
    note = f"note: the hook is still in {FILES['local'](place)} (scope local): {line}\n"
    assert (ran.status, ran.err) == (1, note)


def test_the_switch_of_one_client_is_none_of_the_other(client: Client):
    place = client.place
    switch(FILES["user"](place), True)
    options = ("--client", "codex")
    assert place.run("hook", "install", *options, "--yes").status == 0
    row, _ = place.run("hook", "status", *options, "--json").json["installed"]
    assert (row["state"], row["why"]) == ("installed", "")


def test_the_entries_name_interpreter_and_file_and_fail_closed():
    hooks = json.loads(claude.installed("{}", "f", PROGRAM))["hooks"]

    assert set(hooks) == set(EVENTS)
    for event, ((group,)) in hooks.items():
        (command,) = group["hooks"]
        assert (command["command"], command["args"][:3]) == (
            "/opt/python",
            ["-I", "-S", f"/opt/lib{LAUNCHER}"],
        )
        assert command["timeout"] == (3 if event == "SessionEnd" else 60)
        assert (command.get("onFailure") == "block") is (event in JUDGED)
        assert command.get("async", False) is event.startswith("PostToolUse")


def test_a_command_of_somebody_else_in_our_place_stays():
    text = claude.installed("{}", "f", PROGRAM)
    found = json.loads(text)
    found["hooks"]["PreToolUse"][0]["hooks"].append({"type": "command", "command": "mine"})
    left = json.loads(claude.uninstalled(json.dumps(found, indent=1), "f"))

    assert left == {
        "hooks": {
            "PreToolUse": [{"matcher": "*", "hooks": [{"type": "command", "command": "mine"}]}]
        }
    }


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"a" 1}', '{"a": 1 "b": 2}', '{"a": tru}', '{"hooks": []}', '{"hooks": 7}',
     '{"hooks": {"PreToolUse": {}}}', '{"hooks": {}, "hooks": {}}', '{"a": 1} x', "{'a': 1}",
     '{"a": "\n"}', '{"a": ' + "[" * 300 + "]" * 300 + "}", '{"\\q": 1}', '{"a": 01}'],
)  # fmt: skip
def test_broken_settings_are_refused(text):
    with pytest.raises(ConfigError):
        claude.installed(text, "settings.json", PROGRAM)


@pytest.mark.parametrize(
    "text", ["", 'model = "x"', 'model = "x"\n', "[hooks]\n", "[a]\nb = 1\n# end", "# ä\n\n\n"]
)
def test_codex_gets_a_block_that_comes_out_byte_for_byte(text):
    installed = codex.installed(text, "config.toml", PROGRAM)
    hooks = tomllib.loads(installed)["hooks"]

    assert codex.uninstalled(installed, "config.toml") == text
    assert codex.installed(installed, "config.toml", PROGRAM) == installed
    assert codex.is_installed(installed, "f", PROGRAM)
    assert not codex.is_installed(codex.installed(text, "f", OLDER), "f", PROGRAM)
    (command,) = hooks["PreToolUse"][0]["hooks"]
    assert command["command"].startswith(
        f"'/opt/python' -I -S '/opt/lib{LAUNCHER}' --client codex ||"
    )
    assert "exit 2" in command["command"]


@pytest.mark.parametrize(
    "text", ["hooks = 7\n", "a = \n", "[[hooks]]\n", "hooks = {PreToolUse = []}\n"]
)
def test_a_configuration_that_cannot_take_the_block_is_refused(text):
    with pytest.raises(ConfigError):
        codex.installed(text, "config.toml", PROGRAM)


BEHIND = [
    '[mcp_servers.x]\ncommand = "y"\n',
    "[[hooks.PreToolUse]]\n[[hooks.PreToolUse.hooks]]\ncommand = 'z'\n",
    "# only a comment",
    "\n",
    "[x]\na = nan\n",
]


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("text", ["", 'model = "x"', 'model = "x"\n', "[a]\nb = true\n# end"])
def test_what_was_written_behind_the_block_stays_and_says_the_same(text, behind):
    for program in (PROGRAM, OLDER):
        added = codex.installed(text, "f", program) + behind
        left = codex.uninstalled(added, "f")

        assert left == (text if not text or text.endswith("\n") else f"{text}\n") + behind
        tomllib.loads(left)
        again = codex.installed(added, "f", PROGRAM)
        assert codex.is_installed(again, "f", PROGRAM)
        assert codex.uninstalled(again, "f") == left


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("", "matcher = 'Read'\n"),  # a key of our last table
        ("", "[[hooks.PreToolUse.hooks]]\ncommand = 'z'\n"),  # a command in our group
        ("", "[hooks.PreToolUse.more]\na = 1\n"),
        ('a = """\n', '"""\n'),  # no block, but a text
        ("a = \n", ""),
        ("", "b = [\n"),
        ("[[hooks]]\n", ""),
    ],
)
def test_a_block_that_cannot_come_out_without_changing_more_is_refused(before, behind):
    text = before + codex.block(PROGRAM) + behind
    for act in (lambda: codex.uninstalled(text, "f"), lambda: codex.installed(text, "f", OLDER)):
        with pytest.raises(ConfigError) as caught:
            act()
        assert "nothing was changed" in str(caught.value.hint)


def test_what_somebody_wrote_into_the_block_is_not_taken_out_with_it():
    text = codex.installed(None, "f", PROGRAM)
    mine = text.replace("# <<<", "[mcp_servers.x]\ncommand = 'y'\n# <<<")
    with pytest.raises(ConfigError, match="extends its tables"):
        codex.uninstalled(mine, "f")
    assert codex.uninstalled(text, "f") == ""


# --- the command --------------------------------------------------------------------


def test_install_and_uninstall_leave_no_trace(client: Client):
    place = client.place
    before = sorted(str(path) for path in place.project.rglob("*"))

    installed = place.run("hook", "install", "--yes")
    settings = place.project / ".claude" / "settings.json"
    assert (installed.status, settings.exists()) == (0, True)
    assert (place.project / "agent_sandbox" / ".gitignore").read_text() == "*\n"
    assert place.run("hook", "uninstall", "--yes").status == 0
    assert sorted(str(path) for path in place.project.rglob("*")) == before


@pytest.mark.parametrize(
    ("name", "scope"),
    [
        ("claude", "project"),
        ("claude", "local"),
        ("claude", "user"),
        ("codex", "project"),
        ("codex", "user"),
    ],
)
def test_status_tells_where_it_is_and_what_it_denied(name, scope, client: Client):
    place = client.place
    options = ("--client", name, "--scope", scope)
    assert place.run("hook", "status", *options, "--json").json["installed"][0]["state"] == "absent"
    installed = place.run("hook", "install", *options, "--yes", "--json")
    client.ask("Write", tool_input={"file_path": "{root}/.git/x"}, tool_use_id="T-1")
    status = place.run("hook", "status", *options, "--json").json

    assert status["installed"] == [
        {
            "client": name,
            "scope": scope,
            "file": installed.json["file"],
            "state": "installed",
            "why": "",
        }
    ]
    (denial,) = status["denials"]
    assert (denial["tool"], denial["call_id"]) == ("Write", "T-1")
    assert "Protected path: .git/x" in place.run("hook", "status").out
    file = Path(installed.json["file"])
    file.write_text(file.read_text().replace(sys.executable, "/gone/python"))
    assert place.run("hook", "status", *options, "--json").json["installed"][0]["state"] == "stale"


def test_a_ledger_that_was_removed_is_not_taken_for_nothing_denied(client: Client):
    place = client.place
    client.ask("Write", tool_input={"file_path": "{root}/.git/x"}, tool_use_id="T-1")
    Path(place.run("where", "--json").json["ledgers"]["ho1m"]).unlink()

    ran = place.run("hook", "status", "--json")
    assert (ran.status, ran.out) == (4, "")
    assert "the ledger ho1m is gone" in ran.err


BEGIN = "# >>> paddock hook (paddock hook uninstall --client codex takes it out)"
OWN = {
    "claude": (".claude/settings.json", ("{}\n", "{}", "{ }\n", '{"hooks": {}}\n')),
    "codex": (".codex/config.toml", ("", "\n", f'{BEGIN}\nmodel = "x"\n', "a = 1")),
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, (_, texts) in OWN.items() for text in texts]
)
def test_a_file_that_was_there_is_what_it_was_afterwards(name, text, client: Client):
    path = client.place.project / OWN[name][0]
    path.parent.mkdir()
    path.write_text(text)
    options = ("--client", name, "--yes")

    assert client.place.run("hook", "install", *options).status == 0
    assert "launch.py" in path.read_text()
    assert client.place.run("hook", "uninstall", *options).status == 0
    assert path.read_text() == text


@pytest.mark.parametrize("name", OWN)
def test_a_file_that_was_made_for_us_goes_with_us(name, client: Client):
    path = client.place.project / OWN[name][0]
    options = ("--client", name, "--yes")

    for _ in range(2):
        assert client.place.run("hook", "install", *options).status == 0
    assert client.place.run("hook", "uninstall", *options).status == 0
    assert not path.exists()


def test_a_configuration_that_somebody_wrote_on_is_sound_afterwards(client: Client):
    path = client.place.project / ".codex" / "config.toml"
    path.parent.mkdir()
    path.write_text('model = "o"')
    options = ("--client", "codex", "--yes")
    assert client.place.run("hook", "install", *options).status == 0
    with path.open("a") as file:
        file.write('[mcp_servers.x]\ncommand = "y"\n')
    path.write_text(path.read_text().replace("timeout = 60", "timeout = 59"))
    assert client.place.run("hook", "install", *options).status == 0
    assert "timeout = 59" not in path.read_text()
    assert client.place.run("hook", "uninstall", *options).status == 0
    assert path.read_text() == 'model = "o"\n[mcp_servers.x]\ncommand = "y"\n'


def test_an_uninstall_that_would_change_more_writes_nothing_and_says_what_to_do(client: Client):
    path = client.place.project / ".codex" / "config.toml"
    options = ("--client", "codex", "--yes")
    assert client.place.run("hook", "install", *options).status == 0
    with path.open("a") as file:
        file.write("matcher = 'Read'\n")
    before = path.read_text()
    ran = client.place.run("hook", "uninstall", *options)
    assert (ran.status, path.read_text()) == (3, before)
    assert "text outside Paddock's block extends its tables" in ran.err
    assert "remove the lines from '# >>> paddock hook' to '# <<< paddock hook' by hand" in ran.err


def test_without_a_yes_nothing_is_written_and_the_change_is_shown(client: Client):
    asked = client.place.run("hook", "install")

    assert (asked.status, "onFailure" in asked.err) == (2, True)
    assert not (client.place.project / ".claude").exists()


def test_what_codex_cannot_honour_is_said(client: Client):
    said = client.place.run("hook", "install", "--client", "codex", "--yes").err

    assert "does not support `ask`" in said
    assert "skips hooks that the user has not trusted" in said


def test_what_names_this_machine_is_kept_out_of_the_committed_file_by_the_scope_local(
    client: Client,
):
    place = client.place
    local = place.run("hook", "install", "--scope", "local", "--yes")
    folder = place.project / ".claude"
    assert [path.name for path in folder.iterdir()] == ["settings.local.json"]
    note = (
        "note: keep .claude/settings.local.json out of version control: it names this machine's "
        'Python\nnote: commands of claude are judged as text, not confined (shell = "read" in [hook])\n'
    )
    assert local.err == note
    shared = place.run("hook", "install", "--yes").err
    assert ("of this machine" in shared, note in shared) == (True, False)
    user = place.run("hook", "install", "--scope", "user", "--yes").err
    assert user == note.partition("\n")[2]


def test_the_note_of_an_install_names_scopes_that_the_client_has(client: Client):
    notes = {
        name: client.place.run("hook", "install", "--client", name, "--yes").err
        for name in ("claude", "codex")
    }
    assert "(for one user: --scope local or user)\n" in notes["claude"]
    assert "(for one user: --scope user)\n" in notes["codex"]


def test_status_says_how_commands_run_only_where_a_hook_stands(client: Client):
    def told():
        shown = client.place.run("hook", "status", "--client", "claude").out.splitlines()
        return [row.split(maxsplit=1)[1] for row in shown if row.startswith("claude ")][3:]

    none = "no hook in its settings: its built-in tools are not judged, unless a plugin installs a hook"
    stands = 'commands are judged as text, not confined (shell = "read" in [hook])'
    assert told() == [none]
    assert client.place.run("hook", "install", "--scope", "local", "--yes").status == 0
    assert told() == [stands]
    # Looked at alone, another scope is no reason to say that none stands.
    shown = client.place.run("hook", "status", "--client", "claude", "--scope", "user").out
    assert (stands in shown, none in shown) == (True, False)
    switch(FILES["local"](client.place), True)
    assert told() == []
    switch(FILES["local"](client.place), False)
    assert client.place.run("hook", "uninstall", "--scope", "local", "--yes").status == 0
    assert told() == [none]


def test_codex_has_no_scope_local(client: Client):
    ran = client.place.run("hook", "install", "--client", "codex", "--scope", "local", "--yes")
    assert (ran.status, "one of: project, user" in ran.err) == (2, True)


def test_status_of_a_scope_passes_clients_without_it_unless_they_are_named(client: Client):
    place = client.place
    found = place.run("hook", "status", "--scope", "local", "--json")
    rows = [(row["client"], row["scope"]) for row in found.json["installed"]]
    assert (found.status, rows) == (0, [("claude", "local")])
    both = place.run("hook", "status", "--scope", "user", "--json").json["installed"]
    assert [row["client"] for row in both] == ["claude", "codex"]
    ran = place.run("hook", "status", "--scope", "local", "--client", "codex")
    assert (ran.status, "codex has no settings of the scope local" in ran.err) == (2, True)


def settings_of(client: Client, *parts: str) -> Path:
    return client.place.project.joinpath(*parts)


def test_uninstall_without_a_scope_says_where_the_hook_stands_all_the_same(client: Client):
    place = client.place
    assert place.run("hook", "install", "--scope", "local", "--yes").status == 0
    shared = settings_of(client, ".claude", "settings.json")
    local = settings_of(client, ".claude", "settings.local.json")

    ran = place.run("hook", "uninstall", "--yes")

    assert (ran.status, ran.out) == (1, f"not installed in {shared}\n")
    line = "paddock hook uninstall --scope local"
    assert ran.err == f"note: the hook is still in {local} (scope local): {line}\n"
    # What it needs stays with it.
    assert (local.exists(), (place.project / "agent_sandbox").exists()) == (True, True)
    told = place.run("hook", "uninstall", "--yes", "--json")
    [row] = told.json.pop("elsewhere")
    assert (told.status, row["scope"], row["file"]) == (1, "local", str(local))
    assert place.run("hook", "uninstall", "--scope", "local", "--yes").status == 0
    assert (local.exists(), (place.project / "agent_sandbox").exists()) == (False, False)


def test_uninstall_where_nothing_is_installed_is_done(client: Client):
    place = client.place
    # Another client's is none of this one's.
    assert place.run("hook", "install", "--client", "codex", "--yes").status == 0
    ran = place.run("hook", "uninstall")
    shared = settings_of(client, ".claude", "settings.json")
    assert (ran.status, ran.out, ran.err) == (0, f"not installed in {shared}\n", "")
    told = place.run("hook", "uninstall", "--json").json
    assert told == {"status": "ok", "file": str(shared), "changed": False, "elsewhere": []}


def test_uninstall_of_one_scope_is_done_and_says_where_the_others_are(client: Client):
    place = client.place
    for scope in ("project", "user"):
        options = ("--client", "codex", "--scope", scope, "--yes")
        assert place.run("hook", "install", *options).status == 0
    own = place.home / ".codex" / "config.toml"
    line = "paddock hook uninstall --client codex --scope user"
    note = f"note: the hook is still in {own} (scope user): {line}\n"

    taken = place.run("hook", "uninstall", "--client", "codex", "--yes")
    again = place.run("hook", "uninstall", "--client", "codex", "--scope", "project")
    without = place.run("hook", "uninstall", "--client", "codex")

    assert [(ran.status, ran.err) for ran in (taken, again, without)] == [
        (0, note),
        (0, note),
        (1, note),
    ]


def test_uninstall_says_of_which_file_nobody_can_tell(client: Client):
    local = settings_of(client, ".claude", "settings.local.json")
    local.parent.mkdir()
    local.write_text("{")
    ran = client.place.run("hook", "uninstall")
    said = f"note: cannot determine whether the hook is in {local}: "
    assert (ran.status, ran.err.startswith(said)) == (1, True)


def test_broken_settings_stop_the_command_and_stay(client: Client):
    settings = client.place.project / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"hooks": [}')

    ran = client.place.run("hook", "install", "--yes")

    assert (ran.status, settings.read_text()) == (3, '{"hooks": [}')


@pytest.mark.parametrize("link", [".claude", ".claude/settings.json"])
def test_a_link_in_a_project_is_not_followed(link, client: Client):
    outside = client.place.outside / "settings.json"
    outside.write_text("{}")
    path = client.place.project / link
    path.parent.mkdir(exist_ok=True)
    path.symlink_to(outside.parent if link == ".claude" else outside)

    ran = client.place.run("hook", "install", "--yes")

    assert (ran.status, outside.read_text()) == (3, "{}")


def test_the_users_own_link_is_followed_and_stays_a_link(client: Client):
    kept = client.place.base / "dotfiles.json"
    kept.write_text('{"model": "x"}\n')
    settings = client.place.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.symlink_to(kept)

    assert client.place.run("hook", "install", "--scope", "user", "--yes").status == 0
    assert settings.is_symlink()
    assert "launch.py" in kept.read_text()
    assert client.place.run("hook", "uninstall", "--scope", "user", "--yes").status == 0
    assert kept.read_text() == '{"model": "x"}\n'
