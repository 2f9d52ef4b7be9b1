"""What a server may, by its table and nothing else."""

from ipaddress import ip_network

import pytest

from paddock.gateway.confine import server_policy
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.network import NetworkJudge, Reach
from paddock.policy.settings import McpServer, PackageRule
from paddock.values.decisions import Action, Agent, Outcome

CHAIN = (Agent("main", "standard"),)
TEXT = b"""
[profiles.standard]
allow = ["tool:file:*", "tool:net:connect agents.example.org:443"]
deny = ["tool:file:* kept/**"]
[profiles.standard.shell]
write = ["/srv"]
network = "host"
"""
POLICY = load_policy(PolicySource("paddock.toml", TEXT))


def reaches(server: McpServer, host: str, port: int = 443) -> bool:
    judge = NetworkJudge(server_policy(POLICY, server), CHAIN, None)
    return judge.connect(host, port).outcome is Outcome.ALLOW


def test_a_server_reaches_what_its_table_names_and_not_what_its_agent_does():
    server = McpServer("issues", ("x",), network=("api.example.org:443",))

    assert reaches(server, "api.example.org")
    assert not reaches(server, "agents.example.org")
    assert not reaches(server, "api.example.org", 80)


def test_a_server_at_a_url_reaches_that_host_alone():
    server = McpServer("far", url="https://far.example.org:8443/mcp")

    assert reaches(server, "far.example.org", 8443)
    assert not reaches(server, "far.example.org", 443)
    assert not reaches(server, "agents.example.org")


@pytest.mark.parametrize("url", ["http://localhost:80/mcp", "http://127.0.0.1/mcp"])
def test_a_server_of_this_machine_is_not_reached_from_a_sandbox(url: str):
    assert not reaches(McpServer("near", url=url), "127.0.0.1", 80)


def test_a_server_has_the_agents_rules_about_files_and_none_of_its_shell():
    policy = server_policy(POLICY, McpServer("files", ("x",), files="write"))
    judge = judge_for(policy, CHAIN)

    assert judge.decide(Action("file", "create", "a")).outcome is Outcome.ALLOW
    assert judge.decide(Action("file", "create", "kept/a")).outcome is Outcome.DENY
    (profile,) = judge.profiles()
    shell = profile.profile.shell.over(policy.settings.shell)
    assert (shell.write, shell.network, shell.enforcement, shell.git) == (
        (),
        "policy",
        "required",
        "read-only",
    )


def test_a_servers_variable_stands_for_the_credential_that_it_names():
    text = b"""
[credentials.issues]
hosts = ["api.example.org:443"]
variable = "TOKEN"
from = { env = "REAL" }
[credentials.other]
hosts = ["other.example.org:443"]
variable = "OTHER"
from = { env = "OTHER" }
"""
    policy = load_policy(None, PolicySource("config.toml", text))
    server = McpServer("issues", ("x",), env=(("ISSUES_TOKEN", "credential:issues"),))

    found = server_policy(policy, server).settings.credentials

    assert [(each.name, each.variable) for each in found] == [("issues", "ISSUES_TOKEN")]


CREDENTIALS = load_policy(
    PolicySource("paddock.toml", TEXT),
    PolicySource(
        "config.toml",
        b"""
[credentials.issues]
hosts = ["api.example.org:443", "more.example.org:443"]
variable = "TOKEN"
from = { env = "REAL" }
""",
    ),
)


@pytest.mark.parametrize(
    ("network", "is_allowed"),
    [
        (("api.example.org:443",), True),
        (("*.example.org",), True),
        (("api.example.org:443", "GET api.example.org/issues/**"), False),
        (("other.example.org:443",), False),
    ],
)
def test_a_server_that_may_connect_to_its_credentials_host_may_ask_it_for_anything(
    network: tuple[str, ...], is_allowed: bool
):
    server = McpServer("issues", ("x",), env=(("A", "credential:issues"),), network=network)
    judge = NetworkJudge(server_policy(CREDENTIALS, server), CHAIN, None)
    asked = judge.request("DELETE", "api.example.org", 443, "/issues/1")

    assert (asked.outcome is Outcome.ALLOW and asked.is_judged) is is_allowed
    more = judge.connect("more.example.org", 443).outcome is Outcome.ALLOW
    assert more is ("*.example.org" in network)


def test_a_servers_hosts_may_be_where_its_table_says_and_nobody_elses():
    far = McpServer("far", url="https://far.example.org/mcp", addresses=("10.0.0.0/8",))
    near = McpServer("near", ("x",), network=("far.example.org",))
    found = [
        NetworkJudge(server_policy(POLICY, each), CHAIN, None).connect("far.example.org", 443)
        for each in (far, near)
    ]

    assert [each.addresses for each in found] == [(ip_network("10.0.0.0/8"),), ()]


def test_a_server_reaches_the_users_package_registries_by_its_own_table_alone():
    packages = (PackageRule("tool:net:connect packages.example.org:443", ("10.0.0.0/8",)),)
    text = TEXT + b"[network]\npackages = true\n"
    policy = load_policy(PolicySource("paddock.toml", text), packages=packages)
    runner = McpServer("runner", ("uvx", "x"), packages=True, network=("api.example.org:443",))

    def found(given: Policy, server: McpServer, host: str) -> Reach:
        return NetworkJudge(server_policy(given, server), CHAIN, None).connect(host, 443)

    reach = found(policy, runner, "packages.example.org")
    assert (reach.outcome, reach.addresses) == (Outcome.ALLOW, (ip_network("10.0.0.0/8"),))
    assert reach.rule is not None
    assert reach.rule.said == (
        "tool:net:connect packages.example.org:443 (mcp.servers.runner.packages, built-in)"
    )
    assert found(policy, runner, "api.example.org").outcome is Outcome.ALLOW
    assert found(policy, runner, "other.example.org").outcome is Outcome.DENY
    none = McpServer("none", ("x",))
    assert found(policy, none, "packages.example.org").outcome is Outcome.DENY
    # What the agent's commands may reach makes no difference.
    without = load_policy(PolicySource("paddock.toml", TEXT), packages=packages)
    assert found(without, runner, "packages.example.org").outcome is Outcome.ALLOW
    assert server_policy(without, runner).settings.network.packages
    assert not server_policy(policy, none).settings.network.packages


def test_a_server_at_a_literal_address_is_reached_at_it():
    assert reaches(McpServer("far", url="https://[2001:db8::1]/mcp"), "2001:db8::1")
