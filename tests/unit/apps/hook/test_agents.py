"""Who acts: the client's own thread, its sub-agents, an agent of the plane."""

import pytest

from tests.support.hooks import Client

BOUND = '[agents."Explore"]\nprofile = "locked"\n'


def write(client: Client, **who):
    return client.ask("Write", tool_input={"file_path": "{root}/a", "content": "x"}, **who).word


def test_an_agent_type_has_the_profile_that_agents_gives_it(client: Client):
    client.write_policy(BOUND)

    assert write(client, agent_id="a", agent_type="Explore") == "deny"
    assert write(client, agent_id="a", agent_type="general-purpose") == "none"
    assert write(client, agent_type="Explore") == "deny"
    assert write(client) == "none"


@pytest.mark.parametrize("name", ["general-purpose", "writer"])
def test_an_agent_type_never_exceeds_the_main_one_whether_agents_names_it_or_not(
    name: str, client: Client
):
    writer = '[agents.writer]\nprofile = "open"\n'
    client.write_policy(writer)
    assert write(client) == "none"
    assert write(client, agent_id="a", agent_type=name) == "none"

    client.write_policy(f'[agents.main]\nprofile = "locked"\n{writer}')
    assert write(client) == "deny"
    assert write(client, agent_id="a", agent_type=name) == "deny"


def test_what_the_main_one_is_asked_about_no_profile_of_agents_gives_a_kind_of_agent(
    client: Client,
):
    client.write_policy('[agents."Explore"]\nprofile = "open"\n')
    for name in ("Explore", "main"):
        client.ask("Bash", tool_input={"command": "make"}, agent_type=name)

    assert [(entry.agent, entry.decision) for entry in client.entries()] == [
        ("Explore", "confine"),
        ("main", "confine"),
    ]


def test_a_kind_of_agent_is_held_to_the_main_ones_lists_too(client: Client):
    client.write_policy(
        '[profiles.docs-only]\nallow = ["tool:file:view docs/**", "tool:file:create docs/**"]\n'
        '[agents.main]\nprofile = "docs-only"\n' + BOUND
    )

    def read(path: str, name: str) -> str:
        return client.ask(
            "Read", tool_input={"file_path": f"{{root}}/{path}"}, agent_type=name
        ).word

    assert (read("docs/a", "main"), read("docs/a", "Explore")) == ("none", "none")
    assert (read("a", "main"), read("a", "Explore")) == ("deny", "deny")
    assert write(client, agent_type="Explore") == "deny"


def test_an_agent_that_the_plane_declares_stands_for_itself_and_is_no_child(client: Client):
    client.place.run("agent", "create", "writer")
    client.write_policy('[agents.main]\nprofile = "locked"\n')

    assert write(client) == "deny"
    assert write(client, agent_id="a", agent_type="writer") == "none"


def test_a_sub_agent_that_does_not_say_what_it_is_is_locked(client: Client):
    assert write(client, agent_id="a") == "deny"
    assert client.ask("Read", agent_id="a", tool_input={"file_path": "{root}/a"}).word == "none"
    assert client.entries()[-1].metadata["agents"] == [
        {"name": "a", "profile": "locked"},
        {"name": "main", "profile": "standard"},
    ]


def test_who_may_not_write_scratch_work_is_not_told_that_it_may(client: Client):
    def advice(**fields: str) -> str:
        return client.ask("Write", tool_input={"file_path": "{root}/.env"}, **fields).context

    assert "agent_sandbox/" in advice()
    assert "agent_sandbox/" not in advice(agent_id="a")


def test_a_sub_agent_that_does_not_say_what_it_is_never_exceeds_the_main_one(client: Client):
    client.write_policy(
        '[profiles.docs-only]\nallow = ["tool:file:view docs/**"]\n'
        '[agents.main]\nprofile = "docs-only"\n'
    )

    def read(path: str) -> str:
        return client.ask("Read", agent_id="a", tool_input={"file_path": f"{{root}}/{path}"}).word

    assert (read("docs/a"), read("a")) == ("none", "deny")


def test_an_agent_of_the_plane_brings_its_own_lists(client: Client):
    client.place.run("agent", "create", "reviewer", "--profile", "locked")

    assert write(client, agent_type="reviewer") == "deny"


@pytest.mark.parametrize("policy", [BOUND, ""])
def test_the_entry_says_who_it_was_and_whose_child_whatever_agents_gives_it(
    policy: str, client: Client
):
    client.write_policy(policy)
    write(client, agent_id="a-1", agent_type="Explore")
    (entry,) = client.entries()

    assert (entry.agent, entry.metadata["agent_id"]) == ("Explore", "a-1")
    assert entry.metadata["agents"] == [
        {"name": "Explore", "profile": "standard"},
        {"name": "main", "profile": "standard"},
    ]


def test_an_untrusted_policy_gives_nobody_more_and_holds_whom_it_names(client: Client):
    client.write_policy('[agents."Explore"]\nprofile = "open"\n[hook]\non_allow = "approve"\n',
                        trusted=False)  # fmt: skip

    assert (
        client.ask("Write", tool_input={"file_path": "{root}/docs/a", "content": ""}).word == "none"
    )
    assert write(client, agent_type="Explore") == "none"


@pytest.mark.parametrize(
    ("profile", "trusted", "told"),
    [
        ("locked", True, ("deny", 1)),
        ("locked", False, ("deny", 1)),
        ("open", True, ("none", 0)),
        ("open", False, ("none", 0)),
    ],
)
def test_policy_explain_knows_a_clients_agent_as_the_hook_judges_it(
    client: Client, profile: str, trusted: bool, told: tuple[str, int]
):
    client.write_policy(f'[agents."Explore"]\nprofile = "{profile}"\n', trusted=trusted)
    action = ("tool:file:create a", "--agent", "Explore", "--json")
    before = client.place.run("policy", "explain", *action).json
    answer = write(client, agent_type="Explore")
    (entry,) = client.entries()
    after = client.place.run("policy", "explain", *action).json

    assert before == after
    assert after["agents"] == [each["name"] for each in entry.metadata["agents"]]
    assert (after["outcome"], after["reason"]) == (entry.decision, entry.reason)
    assert (answer, client.place.run("policy", "check", *action).status) == told


def test_policy_check_answers_for_no_agent_that_is_named_nowhere(client: Client):
    client.write_policy(BOUND)
    ran = client.place.run("policy", "check", "tool:file:create a", "--agent", "explore")

    assert (ran.status, ran.out) == (2, "")
    assert "no agent is named 'explore'" in ran.err


def test_an_agent_of_the_plane_is_asked_about_as_declared_whatever_agents_says(client: Client):
    client.write_policy('[agents.reviewer]\nprofile = "open"\n')
    client.place.run("agent", "create", "reviewer", "--profile", "locked")
    shown = client.place.run(
        "policy", "explain", "tool:file:create a", "--agent", "reviewer", "--json"
    ).json

    assert (shown["agents"], shown["profiles"]) == (["reviewer"], ["locked", "open"])
    assert (shown["outcome"], write(client, agent_type="reviewer")) == ("deny", "deny")
