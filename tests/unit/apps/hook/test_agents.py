"""Who acts: the client's own thread, its sub-agents, an agent of the plane."""

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


def test_an_agent_type_that_is_named_nowhere_never_exceeds_the_main_one(client: Client):
    client.write_policy(
        '[agents.main]\nprofile = "locked"\n[agents.writer]\nprofile = "standard"\n'
    )

    assert write(client) == "deny"
    assert write(client, agent_id="a", agent_type="general-purpose") == "deny"
    assert write(client, agent_id="a", agent_type="writer") == "none"


def test_a_sub_agent_that_does_not_say_what_it_is_is_locked(client: Client):
    assert write(client, agent_id="a") == "deny"
    assert client.ask("Read", agent_id="a", tool_input={"file_path": "{root}/a"}).word == "none"


def test_an_agent_of_the_plane_brings_its_own_lists(client: Client):
    client.place.run("agent", "create", "reviewer", "--profile", "locked")

    assert write(client, agent_type="reviewer") == "deny"


def test_the_entry_says_who_it_was(client: Client):
    client.write_policy(BOUND)
    write(client, agent_id="a-1", agent_type="Explore")
    (entry,) = client.entries()

    assert (entry.agent, entry.metadata["agent_id"]) == ("Explore", "a-1")
    assert entry.metadata["agents"] == [{"name": "Explore", "profile": "locked"}]


def test_an_untrusted_policy_gives_nobody_more_and_holds_whom_it_names(client: Client):
    client.write_policy('[agents."Explore"]\nprofile = "open"\n[hook]\non_allow = "approve"\n',
                        trusted=False)  # fmt: skip

    assert (
        client.ask("Write", tool_input={"file_path": "{root}/docs/a", "content": ""}).word == "none"
    )
    assert write(client, agent_type="Explore") == "none"
