"""What decides first, what a client is told, and what it is not."""

import pytest

from tests.support.hooks import Client

SCRATCH = "agent_sandbox/"


def write(client: Client, path: str, tool: str = "Write", **more):
    return client.ask(tool, tool_input={"file_path": path, "content": "x"}, **more)


def test_an_ordinary_write_in_the_project_goes_its_usual_way(client: Client):
    assert write(client, "{root}/notes.txt").raw == b""


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "{root}-evil/a",
        "{root}/../outside/kept.txt",
        "{root}/out/kept.txt",
        "{root}/out.txt",
        "{root}/proc/etc/passwd",
        "{root}/src/../../outside/x",
        "{root}/inner/../../outside/x",
        "~/x",
        "/",
    ],
)
def test_writing_outside_the_project_is_denied_and_reading_there_is_not(path, client: Client):
    said = write(client, path)

    assert (said.word, said.reason.startswith("Path outside project boundary: /")) == ("deny", True)
    assert SCRATCH in said.context
    assert said.message == said.reason
    assert client.ask("Read", tool_input={"file_path": path}).raw == b""


def test_the_reason_names_where_the_links_lead(client: Client):
    said = write(client, "{root}/out/x")

    assert said.reason == f"Path outside project boundary: {client.place.outside}/x"


@pytest.mark.parametrize("path", ["{root}/.git/config", "{root}/.GIT/x", "{root}/src/../.git/x"])
def test_a_protected_path_is_denied_with_its_rule(path, client: Client):
    said = write(client, path, "Edit")

    assert said.word == "deny"
    assert said.reason.startswith("Protected path: .")
    assert "cannot be modified via Edit. " in said.reason
    assert '".git/" in paths.protected, built-in' in said.reason
    assert client.ask("Read", tool_input={"file_path": path}).raw == b""


def test_a_link_to_a_protected_path_is_that_path(client: Client):
    (client.place.project / "harmless").symlink_to(".git")

    assert write(client, "{root}/harmless/config").word == "deny"
    assert write(client, "{root}/src/fine").word == "none"


def test_what_is_generated_only_commands_write(client: Client):
    assert write(client, "{root}/package-lock.json").word == "deny"
    assert client.ask("Bash", tool_input={"command": "echo {} > package-lock.json"}).word == "none"


@pytest.mark.parametrize("path", ["{root}/.env", "/somewhere/else/.env.local", "/x/id.key"])
def test_what_is_secret_is_not_read_wherever_it_lies(path, client: Client):
    said = client.ask("Read", tool_input={"file_path": path})

    assert said.word == "deny"
    assert said.reason.startswith("Secret path: ")
    assert "cannot be read via Read" in said.reason


@pytest.mark.parametrize(
    "path",
    ["paddock.toml", "src/paddock.json", ".claude/settings.json", ".Claude/Settings.local.json",
     ".codex/config.toml", ".codex/hooks.json", "sub/.claude/settings.local.json", ".mcp.json"],
)  # fmt: skip
def test_nothing_that_holds_the_fence_is_written(path, client: Client):
    assert write(client, f"{{root}}/{path}").word == "deny"
    assert client.ask("Bash", tool_input={"command": f"echo x > {path}"}).word == "deny"
    assert client.ask("Read", tool_input={"file_path": f"{{root}}/{path}"}).word == "none"


def test_an_installation_in_the_project_is_not_written(client: Client, monkeypatch):
    held = client.place.project / ".venv"
    (held / "lib").mkdir(parents=True)
    assert write(client, "{root}/.venv/lib/x.pth").word == "none"
    monkeypatch.setattr("sys.prefix", str(held))
    for path in (".venv/lib/x.pth", ".venv/pyvenv.cfg"):
        assert write(client, f"{{root}}/{path}").word == "deny"
    for command in ("rm -rf .venv", "cp a .venv/lib/x.pth"):
        assert client.ask("Bash", tool_input={"command": command}).word == "deny"
    assert write(client, "{root}/.venv2/x").word == "none"


def test_paddocks_own_state_is_not_written_even_where_also_write_says_so(client: Client):
    client.write_policy('[hook]\nalso_write = ["~/**"]\n')

    assert write(client, "~/notes").word == "none"
    assert write(client, "~/.local/state/paddock/hook/x.image").word == "deny"
    assert write(client, "~/.config/paddock/config.toml").word == "deny"


TURNS_OFF = (
    "(Shown once a session. To turn these warnings off: warned = [] in [paths] of paddock.toml; "
    "to turn off the advice on scratch work: scratch = false in [hook].)"
)


def test_a_warned_path_warns_model_and_person_and_decides_nothing(client: Client):
    said = write(client, "{root}/src/a.py")
    warning = (
        "Writing to production path: src/a.py. Ensure this is intentional implementation work."
    )

    assert said.word == "none"
    assert said.context.startswith(warning)
    assert SCRATCH in said.context
    assert said.message == f"{warning}\n{TURNS_OFF}"
    again = write(client, "{root}/plugins/a/skills/b")
    assert (TURNS_OFF in again.message, "Writing to production path" in again.message) == (
        *(False, True),
    )
    assert TURNS_OFF in write(client, "{root}/src/a.py", session_id="SES-2").message


def test_a_warning_is_given_once_a_session_and_pattern(client: Client):
    first = write(client, "{root}/src/a.py")
    again = write(client, "{root}/src/b.py")
    other = write(client, "{root}/src/b.py", session_id="SES-2")

    assert [bool(said.context) for said in (first, again, other)] == [True, False, True]


@pytest.mark.parametrize(
    ("setting", "wanted"), [("all", [1, 1]), ("once", [1, 0]), ("off", [0, 0])]
)
def test_warnings_are_given_as_often_as_is_set(setting, wanted, client: Client):
    client.write_policy(f'[hook]\nwarnings = "{setting}"\n')

    given = [write(client, "{root}/src/a.py").context for _ in range(2)]

    assert [int(bool(each)) for each in given] == wanted


@pytest.mark.parametrize(
    ("policy", "warns", "advises"),
    [
        ("", True, True),
        ("[paths]\nwarned = []\n", False, True),
        ("[hook]\nscratch = false\n", True, False),
        ("[paths]\nwarned = []\n[hook]\nscratch = false\n", False, False),
    ],
)
@pytest.mark.parametrize("image", [False, True])
def test_warnings_and_advice_are_turned_off_each_by_itself(
    policy, warns, advises, image, client: Client
):
    client.write_policy(policy)
    if image:
        write(client, "{root}/docs/a.md")

    start = client.say(client.event(hook_event_name="SessionStart"))
    warned = write(client, "{root}/src/a.py")
    denied = write(client, "{root}/.git/config")

    assert (SCRATCH in start.context) == (start.raw != b"") == advises
    assert ("Writing to production path" in warned.context) == (warned.raw != b"") == warns
    assert (SCRATCH in warned.context) == (warns and advises)
    # A denial is no advice: it stands, with or without it.
    assert (denied.word, SCRATCH in denied.context) == ("deny", advises)


def test_without_advice_no_scratch_folder_is_made(client: Client):
    client.write_policy("[hook]\nscratch = false\n")
    assert client.place.run("hook", "install", "--client", "claude", "--yes").status == 0
    assert not (client.place.project / "agent_sandbox").exists()


def test_safe_suppresses_the_warning_and_nothing_else(client: Client):
    client.write_policy(
        '[paths]\nwarned = ["**"]\nsafe = ["/docs/**", "/.git/**"]\nprotected = [".git/"]\n'
    )

    assert write(client, "{root}/docs/a").raw == b""
    assert write(client, "{root}/a").context != ""
    assert write(client, "{root}/.git/x").word == "deny"


def test_a_rule_that_asks_asks_with_the_warning_in_it(client: Client):
    client.write_policy(
        '[[profiles.standard.rules]]\naction = "tool:file:create src/**"\noutcome = "ask"\n'
        'reason = "by hand"\n[[profiles.standard.rules]]\naction = "tool:file:*"\n'
        'outcome = "allow"\n'
    )

    said = write(client, "{root}/src/a.py")

    assert (said.word, said.reason.split("\n")[0]) == ("ask", "by hand")
    assert "Writing to production path: src/a.py" in said.reason


def test_where_only_otherwise_would_ask_the_client_goes_its_own_way(client: Client):
    assert client.ask("Bash", tool_input={"command": "npm test"}).raw == b""
    assert client.ask("WebFetch", tool_input={"url": "x"}).raw == b""
    assert client.ask("mcp__toy__add", tool_input={}).raw == b""


def test_a_deny_of_the_profile_is_a_deny(client: Client):
    client.write_policy(
        '[profiles.standard]\nallow = ["tool:*"]\n'
        'deny = ["tool:shell:run git push *", "tool:client:WebFetch", "tool:mcp:call mcp__toy__*"]\n'
    )

    assert client.ask("Bash", tool_input={"command": "cd src && git -C . push"}).word == "deny"
    assert client.ask("WebFetch", tool_input={"url": "x"}).word == "deny"
    assert client.ask("mcp__toy__add", tool_input={}).word == "deny"
    assert client.ask("Bash", tool_input={"command": "git pull"}).word == "none"


def test_only_on_allow_approve_skips_the_clients_prompt_and_never_for_a_warning(client: Client):
    client.write_policy('[hook]\non_allow = "approve"\n')

    assert write(client, "{root}/docs/a").word == "allow"
    assert write(client, "{root}/src/a").word == "none"
    assert client.ask("Read", tool_input={"file_path": "/etc/hosts"}).word == "none"
    assert client.ask("Bash", tool_input={"command": "npm test"}).word == "none"
    assert write(client, "{root}/.git/x").word == "deny"


def test_paranoid_denies_what_is_not_safe(client: Client):
    client.write_policy("[hook]\nparanoid = true\n")

    assert write(client, "{root}/other").word == "deny"
    assert write(client, "{root}/docs/a").word == "none"
    assert client.ask("Read", tool_input={"file_path": "{root}/other"}).word == "none"


def test_the_clients_own_plans_lie_outside_and_may_be_written(client: Client):
    assert write(client, "~/.claude/plans/a.md").word == "none"
    assert write(client, "~/.claude/settings.json").word == "deny"
    client.write_policy('[hook]\nalso_write = ["/opt/notes/**"]\n')
    assert write(client, "/opt/notes/a").word == "none"
    assert write(client, "~/.claude/plans/a.md").word == "deny"


def test_for_codex_a_question_is_a_refusal_that_says_so(client: Client):
    client.write_policy(
        '[profiles.standard]\nask = ["tool:shell:run make"]\notherwise = { "tool:shell:*" = "ask" }\n'
    )
    said = client.ask("Bash", tool_input={"command": "$X"}, turn_id="t")

    assert said.word == "deny"
    assert "approval" in said.reason
    assert client.ask("Bash", tool_input={"command": "$X"}).word == "ask"
    assert client.ask("Bash", client="codex", tool_input={"command": "npm test"}).raw == b""


REMEDY = "write the whole command literally in the line"


def test_a_refusal_to_codex_ends_with_what_to_do_where_the_line_is_unreadable(client: Client):
    client.write_policy(
        '[profiles.standard]\nask = ["tool:shell:run make"]\notherwise = { "tool:shell:*" = "ask" }\n'
    )
    cannot = "(this needs the user's approval, which this client cannot request)"
    said = [
        client.ask("Bash", client="codex", tool_input={"command": line}) for line in ("$X", "make")
    ]

    assert [each.word for each in said] == ["deny", "deny"]
    assert said[0].reason.endswith(f" {cannot}; {REMEDY}")
    assert said[1].reason.endswith(f" {cannot}")
    assert REMEDY not in client.ask("Bash", tool_input={"command": "$X"}).reason


def test_a_question_that_the_client_cannot_ask_is_shown_as_the_denial_that_it_was(client: Client):
    client.write_policy(
        '[profiles.standard]\nask = ["tool:shell:run make"]\notherwise = { "tool:shell:*" = "ask" }\n'
    )
    client.ask("Bash", tool_input={"command": "$X"}, tool_use_id="asked")
    client.ask("Bash", client="codex", tool_input={"command": "$X"}, tool_use_id="denied")
    write(client, "{root}/.env")
    asked, denied, protected = client.entries()
    cannot = "denied to the client, which cannot ask a person"
    rows = client.place.run("hook", "status", "--json").json["denials"]
    shown = client.place.run("hook", "status").out.splitlines()
    told = {name: client.place.run("policy", "explain", name).out for name in ("asked", "denied")}

    assert [(row["outcome"], row["answer"], row["call_id"], row["reason"]) for row in rows] == [
        ("ask", "deny", "denied", denied.reason),
        ("deny", "deny", "", protected.reason),
    ]
    assert shown[-2].endswith(f" Bash: {denied.reason} (ask: {cannot})")
    assert shown[-1].endswith(f" Write: {protected.reason}")
    assert (asked.decision, denied.decision) == ("ask", "ask")
    assert told["asked"].startswith("ask: Bash (call asked)\n")
    assert f"{REMEDY}, or have it approved when it is asked about" in told["asked"]
    assert told["denied"].startswith("ask, answered with a denial: Bash (call denied)\n")
    assert f"  answer: {cannot}\n" in told["denied"]
    assert f"{REMEDY}\n" in told["denied"]
    assert "have it approved" not in told["denied"]
    assert client.place.run("policy", "explain", "denied", "--json").json["answer"] == cannot
    assert client.place.run("policy", "explain", "asked", "--json").json["answer"] == ""


def test_an_object_with_a_tool_and_its_input_alone_is_a_call(client: Client):
    said = client.say(b'{"tool_name": "Write", "tool_input": {"file_path": "/etc/x"}}')

    assert said.word == "deny"


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Write", {"file_path": "{root}/.git/x"}),
        ("Edit", {"file_path": "{root}/.git/x"}),
        ("MultiEdit", {"file_path": "{root}/.git/x"}),
        ("NotebookEdit", {"notebook_path": "{root}/.git/x.ipynb"}),
        ("apply_patch", {"command": "*** Begin Patch\n*** Delete File: .git/x\n*** End Patch"}),
        ("Bash", {"command": "tee .git/x"}),
    ],
)
def test_every_tool_that_writes_is_judged(tool, given, client: Client):
    assert client.ask(tool, tool_input=given).word == "deny"
    assert f"via {tool}" in client.ask(tool, tool_input=given).reason


def test_names_cannot_forge_what_is_shown(client: Client):
    said = write(client, "/etc/a\u202e\nPath allowed")

    assert "\n" not in said.reason
    assert "\u202e" not in said.reason
