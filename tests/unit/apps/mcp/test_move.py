"""`paddock mcp import` and `export`, as a person uses them."""

import json
import tomllib

import pytest

ISSUES = {"command": "npx", "args": ["-y", "issues"], "env": {"TOKEN": "t"}}
TABLE = """[mcp.servers.issues]
command = ["npx", "-y", "issues"]
env = { TOKEN = "t" }
packages = true
# network = ["HOST:443"]  # hosts it may reach
# files = "read"  # or "write"
"""


def configure(user, **servers):
    file = user.project / ".mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}, indent=1))
    return file


def servers_in(file):
    return json.loads(file.read_text())["mcpServers"]


def test_a_server_stands_in_the_policy_and_the_client_starts_ours(user):
    file = configure(user, issues=ISSUES)
    ran = user.run("mcp", "import", "--client", "claude")

    policy = user.project / "paddock.toml"
    assert (policy.read_text(), servers_in(file)) == (
        TABLE,
        {"paddock": {"command": "paddock", "args": ["mcp"]}},
    )
    assert ran.out == (
        f"moved issues into {policy}; check what they may reach, then: paddock trust, and "
        "paddock mcp review\n"
    )


def test_nothing_that_was_moved_counts_before_it_is_trusted(user):
    configure(user, issues=ISSUES)
    user.run("mcp", "import", "--client", "claude")

    ran = user.run("policy", "check", "tool:mcp:call issues/list")
    assert "paddock.toml is not trusted (it was never trusted)" in ran.err
    ran = user.run("trust")
    assert (
        "the MCP server issues runs npx -y issues; reaches the hosts of your package clients; has TOKEN=t"
        in ran.out
    )
    assert user.run("trust", "--yes").status == 0
    changed = (user.project / "paddock.toml").read_text().replace("npx", "other")
    (user.project / "paddock.toml").write_text(changed)
    ran = user.run("policy", "check", "tool:mcp:call issues/list")
    assert "paddock.toml is not trusted (it has changed since it was trusted)" in ran.err


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (
            {"url": "https://a.example", "headers": {"X-Region": "eu", "X-Api-Key": "${KEY}"}},
            (
                "its header 'X-Api-Key' may be a secret: give the value a name and its host under "
                "[credentials.odd] in your own configuration, and then: paddock mcp add odd --url URL "
                '--header "X-Api-Key=credential:odd"'
            ),
        ),
        (
            {"url": "https://a.example", "bearer_token_env_var": "TOKEN"},
            (
                "its header 'Authorization' may be a secret: give the value a name and its host "
                "under [credentials.odd] in your own configuration, and then: paddock mcp add odd "
                '--url URL --header "Authorization=Bearer credential:odd"'
            ),
        ),
        (
            {"url": "https://a.example", "env_http_headers": [{"a": "b"}]},
            "the policy has no counterpart of env_http_headers",
        ),
        (
            {"url": "https://a.example", "headers": "X-Api-Key: s3cret"},
            "headers in [mcp.servers.odd] is a text, not a table",
        ),
        (
            {"url": "https://a.example", "headers": {"Host": "b.example"}},
            'headers in [mcp.servers.odd] has "Host", which may not be set',
        ),
        ({"command": "x", "args": ["${KEY}"]}, "it contains ${…}, which only the client expands"),
        ({"type": "sse", "url": "https://a.example"}, "it uses SSE, or is disabled"),
        ({}, "it has neither a command nor a url"),
        ({"command": "x", "args": 5}, "args: expected a list"),
    ],
)
def test_what_policy_cannot_say_stays_with_the_client(user, entry, why):
    file = configure(user, odd=entry, issues=ISSUES)
    ran = user.run("mcp", "import", "--client", "claude")

    assert ran.err == f"note: odd stays with the client: {why}\n"
    assert servers_in(file).keys() == {"odd", "paddock"}


@pytest.mark.parametrize("key", ["headers", "http_headers"])
def test_headers_that_are_no_secret_move_with_their_server(user, key):
    far = {"type": "http", "url": "https://a.example/mcp", key: {"X-MCP-Toolsets": "repos,issues"}}
    file = configure(user, far=far)
    before = file.read_bytes()
    ran = user.run("mcp", "import", "--client", "claude")

    assert (ran.status, ran.err) == (0, "")
    assert (user.project / "paddock.toml").read_text() == (
        '[mcp.servers.far]\nurl = "https://a.example/mcp"\n'
        'headers = { X-MCP-Toolsets = "repos,issues" }\n'
    )
    user.run("mcp", "export", "--client", "claude")
    assert file.read_bytes() == before


def test_what_was_changed_since_stays_and_each_server_comes_back(user):
    file = configure(user, issues=ISSUES)
    policy = user.project / "paddock.toml"
    policy.write_text('[paths]\nsafe = ["/x/**"]\n')
    user.run("mcp", "import", "--client", "claude")
    later = servers_in(file) | {"later": {"command": "later"}}
    configure(user, **later)
    given = policy.read_text().replace('# network = ["HOST:443"]', 'network = ["a.example"]')
    policy.write_text(given + "[mcp.servers.mine]\ncommand = ['mine']\n")

    user.run("mcp", "export", "--client", "claude")
    assert servers_in(file) == {**later, "issues": ISSUES}
    found = tomllib.loads(policy.read_text())
    assert found == {
        "paths": {"safe": ["/x/**"]},
        "mcp": {"servers": {"mine": {"command": ["mine"]}}},
    }


def test_several_imports_go_back_one_after_the_other(user):
    file = configure(user, issues=ISSUES)
    before = file.read_bytes()
    user.run("mcp", "import", "--client", "claude")
    user.run("mcp", "export", "--client", "claude")
    user.run("mcp", "import", "--client", "claude")
    configure(user, **servers_in(file), more={"command": "more"})
    ran = user.run("mcp", "import", "--client", "claude", "--json")
    assert ran.json == {"status": "ok", "moved": {"more": "more"}, "left": {}}

    ran = user.run("mcp", "export", "--client", "claude", "--json")
    assert ran.json == {"status": "ok", "moved": ["issues", "more"]}
    assert servers_in(file).keys() == {"issues", "more", "paddock"}
    assert not (user.project / "paddock.toml").exists()
    assert before != file.read_bytes()


def test_the_users_own_servers_move_into_the_users_own_configuration(user):
    config = user.home / ".codex" / "config.toml"
    config.parent.mkdir()
    config.write_text('[mcp_servers.issues]\ncommand = "npx"\nargs = ["-y", "issues"]\n')
    before = config.read_bytes()
    ran = user.run("mcp", "import", "--client", "codex")

    own = user.home / ".config" / "paddock" / "config.toml"
    assert (ran.status, "[mcp.servers.issues]" in own.read_text()) == (0, True)
    assert tomllib.loads(config.read_text())["mcp_servers"].keys() == {"paddock"}
    assert user.run("mcp", "export", "--client", "codex").status == 0
    assert (config.read_bytes(), own.exists()) == (before, False)


def test_a_foreign_server_by_our_name_is_moved_too(user):
    file = configure(user, paddock={"command": "other", "args": []})
    ran = user.run("mcp", "import", "--client", "claude", "--json")

    assert ran.json["moved"] == {"paddock": "paddock"}
    assert servers_in(file)["paddock"]["command"] == "paddock"


def test_a_policy_in_json_is_refused(user):
    configure(user, issues=ISSUES)
    (user.project / "paddock.json").write_text("{}")
    ran = user.run("mcp", "import", "--client", "claude")

    assert (ran.status, "servers can be moved only into TOML" in ran.err) == (3, True)
