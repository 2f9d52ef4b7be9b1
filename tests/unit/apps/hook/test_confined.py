"""What the hook answers to a command where the sandbox works: an allow and a changed line."""

import json
import shlex
from hashlib import sha256
from typing import Any

import pytest

from paddock.apps.hook.confinement import cache_files, save_trial, why_host_cannot
from paddock.apps.hook.lean.flow import CONFINED, STILL_CONFINED, WANTS_OUT
from paddock.apps.hook.lean.request import DeclinedError
from tests.support.hooks import Client, Said

pytestmark = pytest.mark.needs("stage")

RULES = """
[profiles.standard]
allow = ["tool:file:*", "tool:shell:run make *", "tool:client:*"]
ask = ["tool:shell:run git push *", "tool:file:create asked/**"]
deny = ["tool:shell:run sudo *"]
otherwise = { "tool:shell:*" = "confine" }
"""
UNHELD = {"answer": "none", "outcome": "confine", "enforcement": "none"}
OUTSIDE = '[hook]\noutside = ["docker *", "gh pr *"]\n'


@pytest.fixture(autouse=True)
def confining(client: Client) -> None:
    """The user's own configuration, which has the readers of words read, says nothing here."""
    client.place.environment.user_config.unlink()


def ask(client: Client, command: str, name: str = "", /, **more: Any) -> Said:
    fields = {key: more.pop(key) for key in list(more) if key in ("cwd", "agent_type", "agent_id")}
    given = {"command": command, **more}
    return client.ask("Bash", client=name, tool_input=given, tool_use_id="toolu_1", **fields)


def run_by(said: Said) -> dict[str, str] | None:
    """The options of the wrapper's line, with the command as `command`; None for no change."""
    updated = said.fields.get("updatedInput")
    if updated is None:
        return None
    words = shlex.split(updated["command"].partition("$(")[2].rpartition(" 3>&1")[0])
    assert words[1] == "-I"
    assert words[2].endswith("/apps/hook/exec.py")
    behind = words.index("--")
    found = {"command": words[behind + 1]}
    options = words[3:behind]
    while options:
        name, _, value = options.pop(0).partition("=")
        is_flag = name == "--background"
        found[name.removeprefix("--")] = "" if is_flag else value or options.pop(0)
    return found


def session(client: Client, name: str = "SES-1") -> str:
    """The directory in which the commands of a client's session meet."""
    (ho2,) = (client.place.home / ".local/state/paddock/planes").glob("*/HO2")
    return f"{ho2}/scratch/hook-sessions/{sha256(name.encode()).hexdigest()[:32]}"


def metadata(client: Client) -> dict[str, Any]:
    entry = client.entries()[-1]
    names = ("answer", "outcome", "sandboxed", "outside", "wants_out", "enforcement")
    return {name: entry.metadata[name] for name in names if name in entry.metadata}


@pytest.mark.parametrize(
    "command",
    [
        "npm test",
        "make x",
        "rm -rf build && cp a b; mv b c",
        "cat <<'EOF' > notes\nsudo is described\nEOF",
        "touch .git/x",
        'for f in *.py; do sed -i s/a/b/ "$f"; done',
        'git commit -qam "it\'s"',
        "echo $HOME",
        "find . -name '*.pyc' -delete",
        "curl -sO https://example.org/x",
    ],
)
def test_a_command_is_allowed_and_wrapped_and_not_guessed_about(command: str, client: Client):
    client.write_policy(RULES)
    said = ask(client, command, timeout=5000, description="d")

    assert said.word == "allow"
    assert run_by(said) == {
        "command": command,
        "plane": client.root,
        "agent": "main",
        "directory": ".",
        "limit-ms": "5000",
        "call": "toolu_1",
        "session": session(client),
        "shell": "$$",
    }
    updated = said.fields["updatedInput"]
    assert (updated["timeout"], updated["description"]) == (5000, "d")
    assert (metadata(client)["answer"], metadata(client)["sandboxed"]) == ("allow", True)


def test_the_built_in_profile_confines(client: Client):
    for command in ("npm test", "python3 - <<'EOF'\nopen('.git/config', 'w')\nEOF", "$X"):
        assert ask(client, command).word == "allow"
        assert metadata(client) == {
            "answer": "allow",
            "outcome": "confine",
            "sandboxed": True,
            "enforcement": "full",
        }


def test_it_is_said_once_in_a_project_and_how_to_go_back(client: Client):
    first, second = ask(client, "true"), ask(client, "true")

    assert (first.context, first.message) == (CONFINED, CONFINED)
    assert (second.context, second.message) == ("", "")
    assert 'shell = "read"' in CONFINED


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("sudo rm x", "sudo"),
        ("true; sudo rm x", "sudo"),
        ("echo x > .git/config", ".git/"),
        ("echo x >> .env", ".env"),
        ("echo x > /etc/passwd", "leaves the workspace"),
        ("echo x > ~/../p", "leaves the workspace"),
        ("echo x > ~root/p", "leaves the workspace"),
        ("echo x > /dev/sda", "leaves the workspace"),
    ],
)
def test_what_is_denied_or_certainly_refused_is_denied_at_once(
    command: str, reason: str, client: Client
):
    client.write_policy(RULES)
    said = ask(client, command)

    assert (said.word, run_by(said)) == ("deny", None)
    assert reason in said.reason


@pytest.mark.parametrize(
    "command",
    [
        "echo x > docs/a", "echo x > /tmp/a", "make 2>&1 > /dev/null", "npm test > /tmp/out.log 2>&1",
        "echo x > ~/p", "echo x >> ~/.cache/p", "echo x > /dev/shm/p", "echo x > /var/tmp/p",
        # What is closed is not there for it, and no word is guessed about.
        "cat .env", "cp .env x", "grep -r KEY .env",
    ],
)  # fmt: skip
def test_an_honest_redirection_is_no_reason_to_refuse(command: str, client: Client):
    client.write_policy(RULES)
    assert ask(client, command).word == "allow"


@pytest.mark.parametrize("command", ["git push origin main", "true && git push", "echo > asked/x"])
def test_what_a_rule_asks_about_is_asked_and_stays_in_the_sandbox(command: str, client: Client):
    client.write_policy(RULES)
    said = ask(client, command)
    line = run_by(said)

    assert said.word == "ask"
    assert STILL_CONFINED in said.reason
    assert line is not None
    assert (line["command"], len(line["ticket"])) == (command, 32)
    assert metadata(client) == {"answer": "ask", "outcome": "ask", "sandboxed": True}
    # Codex runs what is asked about.
    assert ask(client, command, "codex").word == "deny"


OTHERWISE_ASKS = RULES.replace('"confine"', '"ask"')


@pytest.mark.parametrize("command", ["npm test", "cat .env", "cp .env x", "rm -rf src", "echo $X"])
def test_where_only_otherwise_asks_it_is_asked_and_stays_in_the_sandbox(
    command: str, client: Client
):
    client.write_policy(OTHERWISE_ASKS)
    said = ask(client, command)
    line = run_by(said)

    assert (said.word, line is not None and line["command"]) == ("ask", command)
    assert metadata(client) == {"answer": "ask", "outcome": "ask", "sandboxed": True}
    assert ask(client, "make x").word == "allow"


def test_an_untrusted_file_takes_no_command_out_of_the_sandbox(client: Client):
    """Threat: a clone's file asks about every command, which is stricter, and none is confined."""
    client.place.project.joinpath("paddock.toml").write_text(OTHERWISE_ASKS)
    said = ask(client, "cat .env")

    assert (said.word, run_by(said) is not None) == ("ask", True)


def test_where_only_otherwise_asks_codex_decides_and_so_does_a_client_that_is_not_confined(
    client: Client,
):
    client.write_policy(OTHERWISE_ASKS)
    assert ask(client, "npm test", "codex").raw == b""
    client.write_policy(f'[hook]\nshell = "read"\n{OTHERWISE_ASKS}')
    assert ask(client, "npm test").raw == b""
    assert metadata(client) == {"answer": "none", "outcome": "ask"}


@pytest.mark.parametrize(
    "command", ["docker run x", "gh pr list && docker ps", "docker ps | wc -l"]
)
def test_a_line_is_outside_where_every_command_is_named(command: str, client: Client):
    client.write_policy(OUTSIDE + RULES)
    is_whole = "wc" not in command
    said = ask(client, command)

    assert said.word == ("none" if is_whole else "allow")
    assert metadata(client).get("outside") == (True if is_whole else None)


@pytest.mark.parametrize(
    "command",
    ["gh issue list", "docker ps; npm test", "docker $(cat x)", "X=1 docker ps", "env docker ps",
     "docker ps `x`", "bash -c 'docker ps'", "./docker ps", "dockerx ps", "docker run x & npm test"],
)  # fmt: skip
def test_what_is_not_named_exactly_is_not_outside(command: str, client: Client):
    client.write_policy(OUTSIDE + RULES)
    said = ask(client, command)

    assert (said.word, metadata(client).get("outside")) == ("allow", None)
    assert run_by(said) is not None


def test_denies_and_asks_stand_above_outside(client: Client):
    client.write_policy('[hook]\noutside = ["git push *", "sudo *", "tee *"]\n' + RULES)
    asked = ask(client, "git push x")
    assert (asked.word, run_by(asked)) == ("ask", None)
    assert ask(client, "sudo x").word == "deny"
    # It is not held, so its words are read.
    assert ask(client, "tee .git/config").word == "deny"
    assert ask(client, "tee notes").word == "none"


@pytest.mark.parametrize("value", [True, "true", 1])
def test_who_wants_out_of_the_sandbox_is_asked_about(value: Any, client: Client):
    client.write_policy(OUTSIDE + RULES)
    for command in ("make x", "docker ps", "npm test"):
        said = ask(client, command, dangerouslyDisableSandbox=value)
        assert (said.word, said.reason, run_by(said)) == ("ask", WANTS_OUT, None)
        assert metadata(client)["wants_out"] is True
    assert ask(client, "sudo x", dangerouslyDisableSandbox=value).word == "deny"
    refused = ask(client, "make x", "codex", dangerouslyDisableSandbox=value)
    assert refused.word == "deny"
    assert WANTS_OUT in refused.reason
    assert ask(client, "make x", dangerouslyDisableSandbox=False).word == "allow"


def test_what_runs_in_the_background_is_confined_as_any_other(client: Client):
    client.write_policy(RULES)
    said = ask(client, "npm start", run_in_background=True, timeout=5000)
    assert said.word == "allow"
    assert run_by(said) == {
        "command": "npm start",
        "plane": client.root,
        "agent": "main",
        "directory": ".",
        "background": "",
        "limit-ms": "5000",
        "call": "toolu_1",
        "session": session(client),
        "shell": "$$",
        "client": "$PPID",
    }
    assert said.fields["updatedInput"]["run_in_background"] is True
    assert metadata(client)["enforcement"] == "full"
    assert ask(client, "sudo x", run_in_background=True).word == "deny"
    asked = ask(client, "git push", run_in_background=True)
    assert asked.word == "ask"
    assert "background" in (run_by(asked) or {})
    out = ask(client, "make x", run_in_background=True, dangerouslyDisableSandbox=True)
    assert (out.word, run_by(out)) == ("ask", None)


def test_the_name_of_a_session_is_no_path_and_one_without_a_name_is_nobodys(client: Client):
    client.write_policy(RULES)
    tool = {"command": "make x"}
    for session_id in ("../../x/\n", "x" * 10_000):
        line = run_by(client.ask("Bash", session_id=session_id, tool_input=tool))
        assert line is not None
        assert line["session"] == session(client, session_id)
    nobodys = {
        (run_by(client.ask("Bash", session_id="", tool_input=tool)) or {})["session"]
        for _ in range(2)
    }
    assert len(nobodys) == 2


def test_what_starts_elsewhere_is_left_to_the_client(client: Client):
    client.write_policy(RULES)
    assert ask(client, "npm test", cwd=str(client.place.outside)).raw == b""
    assert metadata(client) == UNHELD
    # Its words are read, since nothing holds it.
    assert ask(client, "sudo x", cwd=str(client.place.outside)).word == "deny"
    line = run_by(ask(client, "npm test", cwd=f"{client.root}/inner"))
    assert line is not None
    assert line["directory"] == "src"


def test_a_kind_of_agent_is_confined_under_its_own_profile(client: Client):
    client.write_policy(RULES + '[agents."Locked"]\nprofile = "locked"\n')
    said = ask(client, "npm test", agent_type="Explore", agent_id="a-1")
    line = run_by(said)
    assert said.word == "allow"
    assert line is not None
    assert (line["agent"], line["kind"]) == ("main", "Explore")
    assert client.entries()[-1].agent == "Explore"
    assert ask(client, "npm test", agent_type="Locked", agent_id="a-2").word == "deny"
    # One that does not say what it is has no profile that lets commands run.
    assert ask(client, "npm test", agent_id="a-3").word == "deny"


def test_a_line_that_begins_with_the_wrapper_is_judged_as_any_other(client: Client):
    client.write_policy(RULES)
    wrapped = ask(client, "true").fields["updatedInput"]["command"]
    line = run_by(ask(client, wrapped))
    assert line is not None
    assert line["command"] == wrapped
    sudo = wrapped.replace("true", "sudo x")
    assert ask(client, sudo).word == "allow"


@pytest.mark.parametrize("setting", ['shell = "read"', "sandbox_shell = false"])
def test_the_way_back(setting: str, client: Client):
    client.write_policy(f"[hook]\n{setting}\n{RULES}")
    assert ask(client, "npm test").raw == b""
    assert ask(client, "touch .git/x").word == "deny"
    assert ask(client, "make x").raw == b""


def test_a_network_of_the_host_is_no_fence(client: Client):
    client.write_policy(RULES + '[shell]\nnetwork = "host"\n')
    assert ask(client, "npm test").raw == b""
    assert metadata(client) == UNHELD


def test_on_allow_is_about_the_other_tools_unless_commands_are_only_read(client: Client):
    client.write_policy('[hook]\non_allow = "approve"\n' + RULES)
    assert ask(client, "make x", cwd=str(client.place.outside)).raw == b""
    assert client.ask("Agent", tool_input={}).word == "allow"
    client.write_policy('[hook]\non_allow = "approve"\nshell = "read"\n' + RULES)
    assert (ask(client, "make x").word, ask(client, "npm test").word) == ("allow", "none")


def test_a_host_that_cannot_confine_is_silent_and_reads(client: Client):
    client.write_policy('[hook]\non_allow = "approve"\n' + RULES)
    assert ask(client, "true").word == "allow"
    path, _ = cache_files(client.place.environment)
    path.write_text(json.dumps({**json.loads(path.read_text()), "why": "no namespaces"}))

    assert ask(client, "npm test").raw == b""
    assert metadata(client) == UNHELD
    assert ask(client, "make x").raw == b""
    assert ask(client, "touch .git/x").word == "deny"


def test_what_was_found_out_in_another_boot_does_not_count(client: Client):
    path, _ = cache_files(client.place.environment)
    assert why_host_cannot(client.place.environment) == ""
    for change in ({"boot": "x"}, {"since": 0}, {"user": 12345}, {"why": 3}):
        path.write_text(json.dumps({**json.loads(path.read_text()), "why": "no", **change}))
        assert why_host_cannot(client.place.environment) == ""
    path.write_text("nonsense")
    assert why_host_cannot(client.place.environment) == ""


def test_codex_is_only_read_until_a_trial_has_shown_that_the_wrapper_works(client: Client):
    client.write_policy(RULES)
    assert ask(client, "npm test", "codex").raw == b""
    save_trial(client.place.environment, "status 126")
    assert ask(client, "npm test", "codex").raw == b""
    save_trial(client.place.environment, "")
    assert ask(client, "npm test", "codex").word == "allow"


@pytest.mark.parametrize("name", [".claude/settings.json", ".claude/settings.local.json"])
def test_a_client_with_a_sandbox_of_its_own_is_only_read(name: str, client: Client):
    client.write_policy(RULES)
    path = client.place.project / name
    path.parent.mkdir()
    path.write_text('{"sandbox": {"enabled": true}}')
    assert ask(client, "npm test").raw == b""
    path.write_text('{"sandbox": {"enabled": false}}')
    assert ask(client, "npm test").word == "allow"
    path.write_text("{")
    assert ask(client, "npm test").raw == b""


@pytest.mark.parametrize(
    ("command", "is_refused"),
    [
        ("npm test > /tmp/out.log 2>&1", False), ("npm test > ~/p", False),
        ("npm test > /dev/shm/p", False), ("npm test > out.log", False),
        ("npm test > ~/../p", True), ("npm test > /tmp/../p", True), ("npm test > .env", True),
    ],
)  # fmt: skip
def test_policy_check_and_the_hook_give_one_answer(command: str, is_refused: bool, client: Client):
    checked = client.place.run("policy", "check", f"tool:shell:run {command}", "--json").json
    assert checked["outcome"] == ("deny" if is_refused else "confine")
    assert ask(client, command).word == ("deny" if is_refused else "allow")


# --- the lean path ----------------------------------------------------------------


def lean(client: Client, command: str, **more: Any) -> Said:
    """What the image says, made by the call before. Raises: DeclinedError."""
    data = client.event("Bash", tool_input={"command": command}, tool_use_id="toolu_1", **more)
    return client.lean(data)


@pytest.mark.parametrize(
    "command", ["npm test", "rm -rf build", "git commit -m 'a b'", "sed -i s/a/b/ x; cp a b | cat"]
)
def test_the_lean_path_wraps_what_it_can_decide(command: str, client: Client):
    client.say(client.event("Bash", tool_input={"command": "true"}), keeps_image=True)
    said = lean(client, command)

    assert said.word == "allow"
    line = run_by(said)
    assert line is not None
    assert (line["command"], line["plane"], line["agent"]) == (command, client.root, "main")
    assert metadata(client)["sandboxed"] is True


def test_the_lean_path_leaves_questions_and_old_knowledge_to_the_full_one(
    client: Client, monkeypatch: pytest.MonkeyPatch
):
    client.write_policy(OUTSIDE + RULES)
    client.say(client.event("Bash", tool_input={"command": "true"}), keeps_image=True)
    for command in ("git push", "docker ps", "sudo x", "bash -c true"):
        with pytest.raises(DeclinedError):
            lean(client, command)
    assert lean(client, "npm test").word == "allow"
    monkeypatch.setattr("paddock.apps.hook.lean.handler.HELD_S", 0)
    with pytest.raises(DeclinedError):
        lean(client, "npm test")


def test_an_image_ends_with_what_its_confinement_was_found_by(client: Client):
    client.say(client.event("Bash", tool_input={"command": "true"}), keeps_image=True)
    assert lean(client, "true").word == "allow"
    settings = client.place.project / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text('{"sandbox": {"enabled": true}}')
    with pytest.raises(DeclinedError):
        lean(client, "true")
    settings.unlink()
    assert lean(client, "true").word == "allow"
    cache_files(client.place.environment)[0].unlink()
    with pytest.raises(DeclinedError):
        lean(client, "true")
