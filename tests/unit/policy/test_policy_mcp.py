"""`[mcp.servers.NAME]` and `when`: read strictly, and refused with what to do."""

import json

import pytest

from paddock.errors import ConfigError, UsageError
from paddock.policy.decide import decide, may_ever
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.rules import parse_action
from paddock.policy.settings import McpServer, McpSettings, McpTools, describe_server, offers
from paddock.values.decisions import Action, Agent, Outcome

SERVERS = """[mcp]
calls_max = 3

[mcp.servers.issues]
command = ["npx", "-y", "some-issues-server"]
env     = { ISSUES_TOKEN = "credential:issues", LEVEL = "debug" }
network = ["api.example.org:443", "GET docs.example.org/**"]
files   = "read"
tools   = { allow = ["search_*", "get_issue"], deny = ["*_secret"] }
record  = "digest"
redact  = ["/token", "/auth/key"]

[mcp.servers.far-2]
url = "https://example.org:8443/mcp"
headers = { Authorization = "Bearer credential:issues", X-Api-Key = "credential:other", X-MCP-Toolsets = "repos,issues" }
addresses = ["10.0.0.0/8"]
"""
ISSUES = McpServer(
    "issues",
    command=("npx", "-y", "some-issues-server"),
    env=(("ISSUES_TOKEN", "credential:issues"), ("LEVEL", "debug")),
    network=("api.example.org:443", "GET docs.example.org/**"),
    files="read",
    tools=McpTools(("search_*", "get_issue"), ("*_secret",)),
    record="digest",
    redact=("/token", "/auth/key"),
)
FAR = McpServer(
    "far-2",
    url="https://example.org:8443/mcp",
    headers=(
        ("Authorization", "Bearer credential:issues"),
        ("X-Api-Key", "credential:other"),
        ("X-MCP-Toolsets", "repos,issues"),
    ),
    addresses=("10.0.0.0/8",),
)
RULE = '[[profiles.p.rules]]\naction = "tool:mcp:call s/t"\noutcome = "allow"\n'


def refused(text: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_policy(PolicySource("paddock.toml", text.encode()))
    return caught.value


def answer(text: str, action: str, agent: str = "p") -> Outcome:
    policy = load_policy(PolicySource("paddock.toml", text.encode()))
    return decide(policy, (Agent("main", agent),), [parse_action(action)]).outcome


def test_servers_are_read_with_all_that_they_are_given():
    policy = load_policy(PolicySource("paddock.toml", SERVERS.encode()))

    assert policy.settings.mcp == McpSettings(3, (ISSUES, FAR))


def test_a_projects_server_stands_beside_the_users_and_replaces_one_of_its_name_whole():
    user = PolicySource("config.toml", SERVERS.encode())
    own = '[mcp.servers.issues]\ncommand = ["./own"]\n[mcp.servers.more]\ncommand = ["more"]\n'
    project = PolicySource("paddock.toml", own.encode())

    found = load_policy(project, user).settings.mcp
    assert found == McpSettings(
        3, (McpServer("issues", ("./own",)), FAR, McpServer("more", ("more",)))
    )


def test_an_untrusted_projects_servers_are_none_and_the_users_stay():
    user = PolicySource("config.toml", SERVERS.encode())
    own = '[mcp.servers.issues]\ncommand = ["./own"]\n'
    policy = load_policy(PolicySource("paddock.toml", own.encode(), trusted=False), user)

    assert policy.settings.mcp == McpSettings(3, (ISSUES, FAR))
    assert policy.ignored == ("paddock.toml:1: [mcp] is not in force",)


@pytest.mark.parametrize(
    ("rows", "line", "words"),
    [
        ("", 1, "needs exactly one of command and url"),
        ('command = ["a"]\nurl = "https://a.example/x"', 2, "needs exactly one of command"),
        ('command = "a b"', 2, 'is "a b", not an array of strings'),
        ('command = ["a", ""]', 2, 'command in [mcp.servers.s] holds ""'),
        ('url = "http://a.example/x"', 2, "is not an https address"),
        ('url = "https://me:secret@a.example/x"', 2, "is not an https address"),
        ('url = "https://a.example:99999/x"', 2, "is not an https address"),
        ('url = "https://a.example/x"\nfiles = "read"', 3, "[mcp.servers.s] has both files and url"),
        ('url = "https://a.example/x"\npackages = true', 3, "[mcp.servers.s] has both packages and url"),
        ('command = ["a"]\npackages = "npm"', 3, 'packages in [mcp.servers.s] is "npm"'),
        ('url = "https://a.example/x"\nenv = { A = "b" }', 3, "send a token in headers, as"),
        ('command = ["a"]\nheaders = { A = "credential:b" }', 3, "[mcp.servers.s] has both headers and command"),
        ('url = "http://localhost/x"\nheaders = { A = "credential:b" }', 3, "no credential is sent in clear text"),
        ('url = "https://a.example/x"\nheaders = { Host = "credential:b" }', 3, '"Host", which may not be set'),
        ('url = "https://a.example/x"\nheaders = { "A b" = "credential:b" }', 3, '"A b", which may not be set'),
        ('url = "https://a.example/x"\nheaders = { A = "credential:" }', 3, 'gives "A" a value, not a credential'),
        ('url = "https://a.example/x"\nheaders = { A = "s3cret credential:b" }', 3, 'a value, not a credential'),
        ('url = "https://a.example/x"\nheaders = { A = "$HOME" }', 3, 'gives "A" a value that is not sent'),
        ('url = "https://a.example/x"\nheaders = { A = " b" }', 3, 'gives "A" a value that is not sent'),
        ('url = "https://a.example/x"\nheaders = { A = "b\\r\\nHost: c" }', 3, 'gives "A" a value that is not sent'),
        ('command = ["a"]\naddresses = ["10.0.0.1/8"]', 3, "invalid network in addresses"),
        ('command = ["a"]\nfiles = "all"', 3, 'files in [mcp.servers.s] is "all"'),
        ('command = ["a"]\nenv = { "A B" = "x" }', 3, 'invalid name or value for "A B"'),
        ('command = ["a"]\nenv = { A = "credential:" }', 3, 'env in [mcp.servers.s] has an invalid name or value for "A"'),
        ('command = ["a"]\nnetwork = ["*.a:x"]', 3, '"*.a:x" can match nothing'),
        ('command = ["a"]\nnetwork = ["localhost:80"]', 3, "localhost is the sandbox's loopback"),
        ('command = ["a"]\ntools = { alow = [] }', 3, 'unknown key "alow" in [mcp.servers.s.tools]'),
        ('command = ["a"]\nallow = ["x"]', 3, 'unknown key "allow" in [mcp.servers.s]'),
        ('command = ["a"]\nredact = ["/a~2"]', 3, '"/a~2" is not a JSON pointer'),
    ],
)  # fmt: skip
def test_a_server_that_is_not_understood_stops_the_load(rows: str, line: int, words: str):
    error = refused(f"[mcp.servers.s]\n{rows}\n")

    assert words in f"{error.message}; {error.hint}"
    assert error.where == f"paddock.toml:{line}"


def test_a_token_that_stands_in_a_header_itself_is_refused_and_repeated_nowhere():
    url = '[mcp.servers.s]\nurl = "https://a.example/x"\n'
    error = refused(url + 'headers = { Authorization = "Bearer ghp_0123456789" }')

    assert error.message == (
        'headers in [mcp.servers.s] gives "Authorization" a value, not a credential'
    )
    assert error.hint == (
        'write "credential:issues" or "Bearer credential:issues", and the value\'s source under '
        "[credentials.issues] in the user's own configuration"
    )
    assert error.where == "paddock.toml:3"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Authorization", "Basic YTpi"),
        ("Cookie", "a=b"),
        ("x-apikey", "abc"),
        ("X-Auth", "abc"),
        ("X-Access-Token-2", "abc"),
        ("X-Region", "ghp_0123456789abcdefghij"),
        ("X-Region", "v1 eyJhbGciOiJIUzI1NiJ9.e30"),
        ("X-Region", "x" * 100),
        ("X-Region", "a " * 100_000),
        ("X-Region", "a" * 200_000),
    ],
)
def test_what_may_be_a_secret_is_no_literal_header(header: str, value: str):
    url = '[mcp.servers.s]\nurl = "https://a.example/x"\n'
    error = refused(f'{url}headers = {{ {header} = "{value}" }}')

    assert error.message == f'headers in [mcp.servers.s] gives "{header}" a value, not a credential'
    assert value not in f"{error.message}{error.hint}"


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("X-MCP-Readonly", "true"),
        ("X-Author", "me"),
        ("X-Tenant", "123e4567-e89b-12d3-a456-426614174000"),
        ("anthropic-beta", "interleaved-thinking-2025-05-14"),
        ("X-Token-Kind", "Token token=credential:a.b"),
    ],
)
def test_a_literal_header_that_is_no_secret_is_sent(header: str, value: str):
    text = f'[mcp.servers.s]\nurl = "https://a.example/x"\nheaders = {{ {header} = "{value}" }}'
    (server,) = load_policy(PolicySource("p.toml", text.encode())).settings.mcp.servers

    assert server.headers == ((header, value),)


def test_a_server_of_this_machine_gets_literal_headers():
    text = b'[mcp.servers.s]\nurl = "http://localhost/x"\nheaders = { X-Region = "eu" }'
    (server,) = load_policy(PolicySource("p.toml", text)).settings.mcp.servers

    assert server.headers == (("X-Region", "eu"),)


@pytest.mark.parametrize("name", ["S", "1a", "a_b", "a" * 21, "-a"])
def test_a_name_that_no_tool_can_begin_with_is_refused(name: str):
    error = refused(f'[mcp.servers."{name}"]\ncommand = ["a"]\n')

    assert error.message == f'"{name}" is not a server name'
    assert load_policy(
        PolicySource("p.toml", f'[mcp.servers.{"a" * 20}]\ncommand = ["a"]'.encode())
    )


@pytest.mark.parametrize(
    ("tool", "is_offered"),
    [("search_x", True), ("get_issue", True), ("get_issues", False), ("Search_x", False),
     ("search_SECRET", False)],
)  # fmt: skip
def test_a_tool_is_offered_where_allow_names_it_and_deny_does_not(tool: str, is_offered: bool):
    assert offers(ISSUES, tool) is is_offered
    assert offers(FAR, tool)


def test_a_person_is_shown_all_that_a_server_is_given():
    assert describe_server(ISSUES) == (
        "runs npx -y some-issues-server; reaches api.example.org:443, GET docs.example.org/**; "
        "has ISSUES_TOKEN=credential:issues; has LEVEL=debug; reads the workspace; "
        "of arguments a digest is recorded"
    )
    assert describe_server(FAR) == (
        "is reached at https://example.org:8443/mcp in 10.0.0.0/8; "
        "is sent Authorization: Bearer credential:issues; is sent X-Api-Key: credential:other; "
        "is sent X-MCP-Toolsets: repos,issues"
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ('when = { "/a" = 5 }', "is 5, not a table"),
        ('when = { "/a" = {} }', "needs exactly one kind of condition"),
        ('when = { "/a" = { glob = "x", max = 5 } }', "needs exactly one kind of condition"),
        ('when = { "/a" = { mx = 5 } }', 'unknown key "mx"'),
        ('when = { "/a" = { max = "5" } }', "must be finite numbers"),
        ('when = { "/a" = { max = true } }', "must be finite numbers"),
        ('when = { "/a" = { max = inf } }', "must be finite numbers"),
        ('when = { "/a" = { min = 5, max = 4 } }', "can match nothing: min is more than max"),
        ('when = { "/a" = { in = [] } }', "is not a list of values"),
        ('when = { "/a" = { in = [[1]] } }', "is not a list of values"),
        ('when = { "/a" = { in = [2026-01-31] } }', "is not a list of values"),
        ('when = { "/a" = { path = "!x" } }', "begins with !"),
        ('when = { "/a" = { path = "../x" } }', "../x"),
        ('when = { "/a~" = { max = 5 } }', '"/a~" is not a JSON pointer'),
        ('when = { a = { max = 5 }, "/a" = { min = 1 } }', "is empty or names an argument twice"),
        ('when = { "" = { max = 5 } }', "is empty or names an argument twice"),
        ("only = 1", "is 1, not true or false"),
    ],
)
def test_a_condition_that_is_not_understood_stops_the_load(row: str, words: str):
    error = refused(RULE + row)

    assert words in f"{error.message}; {error.hint}"
    assert error.where == "paddock.toml:4"


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ('action = "tool:file:view a"\noutcome = "deny"\nwhen = { a = { max = 1 } }', "without arguments"),
        ('action = "tool:*"\noutcome = "deny"\nwhen = { a = { max = 1 } }', "without arguments"),
        ('action = "tool:mcp:*"\noutcome = "deny"\nonly = true', "that does not allow"),
    ],
)  # fmt: skip
def test_when_stands_only_in_a_rule_for_calls_with_arguments(head: str, words: str):
    assert words in refused(f"[[profiles.p.rules]]\n{head}\n").message


def test_examples_of_a_rule_say_their_arguments():
    given = (
        RULE + "when = { limit = { max = 100 } }\nmatch = ['tool:mcp:call s/t {\"limit\": 5}']\n"
    )
    assert load_policy(PolicySource("p.toml", given.encode()))

    error = refused(given + "not_match = ['tool:mcp:call s/t {\"limit\": 100.0}']\n")
    assert "is matched by" in error.message


@pytest.mark.parametrize("given", ['{"a": 1, "a": 2}', "{", '{"a": NaN}', "{a}"])
def test_an_action_whose_arguments_are_no_object_is_refused(given: str):
    with pytest.raises(UsageError, match="is not a JSON object, or repeats a name"):
        parse_action(f"tool:mcp:call s/t {given}")


def test_an_action_is_typed_with_its_arguments_and_shown_without_them():
    action = parse_action('tool:mcp:read s/file:///a b {"a": {"b": 1}}')

    assert action == Action("mcp", "read", "s/file:///a b", '{"a": {"b": 1}}')
    assert str(action) == "tool:mcp:read s/file:///a b"
    assert action.told == 'tool:mcp:read s/file:///a b {"a": {"b": 1}}'


def test_every_key_has_to_hold_and_a_bare_name_is_a_member_of_the_arguments():
    text = RULE + 'when = { "a/b" = { in = ["x"] }, "/c/0/d~1e" = { min = 2 } }\n'

    assert answer(text, 'tool:mcp:call s/t {"a/b": "x", "c": [{"d/e": 2}]}') is Outcome.ALLOW
    assert answer(text, 'tool:mcp:call s/t {"a/b": "x", "c": [{"d/e": 1}]}') is Outcome.DENY
    assert answer(text, 'tool:mcp:call s/t {"a": {"b": "x"}, "c": [{"d/e": 2}]}') is Outcome.DENY
    assert answer(text, "tool:mcp:call s/t") is Outcome.DENY


def test_a_deny_with_a_condition_hides_no_tool_and_a_deny_of_all_does():
    text = (
        '[profiles.p]\notherwise = { "tool:*" = "ask" }\n[[profiles.p.rules]]\noutcome = "deny"\n'
    )
    whole = text + 'action = "tool:mcp:*"\n'
    chain = (Agent("main", "p"),)

    for rule, may in ((whole, False), (f"{whole}when = {{ a = {{ max = 1 }} }}\n", True)):
        policy = load_policy(PolicySource("p.toml", rule.encode()))
        assert may_ever(policy, chain, "mcp", "call") is may


@pytest.mark.parametrize(
    ("uri", "wanted"),
    [
        ("file:///docs/a.md", "allow"),
        ("file:///docs/a%20b.md", "allow"),
        ("file:///docs/../.env", "deny"),
        ("file:///docs/%2e%2E/.env", "deny"),
        ("file:///docs/..?x", "deny"),
        ("file:///docs/..%2f.env", "deny"),
        ("file:///docs/%252e%252e/.env", "deny"),
        ("file:///docs/..\\.env", "deny"),
        ("file:///docs/.\t./.env", "deny"),
        ("file:///other", "deny"),
    ],
)
def test_an_allow_of_resources_is_for_no_uri_that_leads_elsewhere(uri: str, wanted: str):
    text = '[profiles.p]\nallow = ["tool:mcp:read s/file:///docs/*"]\n'

    assert answer(text, f"tool:mcp:read s/{uri}") is Outcome.parse(wanted)


def test_letter_case_of_a_tool_opens_nothing():
    text = '[profiles.p]\nallow = ["tool:mcp:call s/*"]\ndeny = ["tool:mcp:call s/delete_*"]\n'

    assert answer(text, "tool:mcp:call s/get") is Outcome.ALLOW
    assert answer(text, "tool:mcp:call s/Delete_all") is Outcome.DENY
    assert answer(text.replace('["tool:mcp:call s/*"]', '["tool:mcp:call s/get"]'),
                  "tool:mcp:call s/GET") is Outcome.DENY  # fmt: skip


def test_a_call_is_decided_by_its_arguments_each_time():
    text = RULE + "when = { limit = { max = 100 } }\n"
    policy = load_policy(PolicySource("p.toml", text.encode()))
    chain = (Agent("main", "p"),)

    def said(limit: int) -> Outcome:
        action = Action("mcp", "call", "s/t", json.dumps({"limit": limit}))
        return decide(policy, chain, [action]).outcome

    assert [said(5), said(500), said(5)] == [Outcome.ALLOW, Outcome.DENY, Outcome.ALLOW]


def test_an_array_without_end_is_nothing_that_an_allow_matches_or_that_a_deny_lets_go():
    many = json.dumps({"limit": [1] * 10_001})
    text = RULE + "when = { limit = { max = 100 } }\n"
    assert answer(text, f"tool:mcp:call s/t {many}") is Outcome.DENY
    assert answer(text, f"tool:mcp:call s/t {json.dumps({'limit': [1] * 10_000})}") is Outcome.ALLOW

    denied = text.replace('"allow"', '"deny"').replace("max = 100", "min = 2")
    denied += '[profiles.p.otherwise]\n"tool:*" = "allow"\n'
    assert answer(denied, f"tool:mcp:call s/t {many}") is Outcome.DENY
    assert answer(denied, 'tool:mcp:call s/t {"limit": [1]}') is Outcome.ALLOW
