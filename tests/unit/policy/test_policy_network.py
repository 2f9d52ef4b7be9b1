"""What rules for the network mean, and what a command may reach by them."""

from ipaddress import ip_address, ip_network

import pytest

from paddock.errors import ConfigError, UsageError
from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.network import NetworkJudge, Reach, canonical_host
from paddock.policy.rules import parse_action
from paddock.values.decisions import Action, Agent, AgentChain, Outcome, RuleMatch

MAIN: AgentChain = (Agent("main", "p"),)
CHILD: AgentChain = (Agent("child", "c", parent="main"), *MAIN)
ALLOW, ASK, DENY = Outcome.ALLOW, Outcome.ASK, Outcome.DENY
NOTHING = Reach(DENY, None)


def policy(text: str, trusted: bool = True) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted))


def profile(name: str = "p", /, **lists: str | tuple[str, ...]) -> str:
    rows = [f"[profiles.{name}]"]
    for key, given in lists.items():
        texts = (given,) if isinstance(given, str) else given
        rows.append(f"{key} = {[f'tool:net:{text}' for text in texts]!r}")
    return "\n".join((*rows, ""))


def long_rule(action: str, outcome: str, more: str, name: str = "p") -> str:
    head = f'action = "tool:net:{action}"\noutcome = "{outcome}"'
    return f"[[profiles.{name}.rules]]\n{head}\n{more}\n"


def judge(text: str, chain: AgentChain = MAIN, line: str | None = None) -> NetworkJudge:
    return NetworkJudge(policy(text), chain, line)


def said(reach: Reach) -> tuple[Outcome, str]:
    return reach.outcome, "" if reach.rule is None else reach.rule.text


def decided(text: str, action: str) -> Outcome:
    return decide(policy(text), MAIN, (parse_action(action),)).outcome


@pytest.mark.parametrize(
    ("pattern", "host", "port", "is_reached"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "example.org", 22, False),
        ("example.org", "a.example.org", 443, False),
        ("example.org:22", "example.org", 22, True),
        ("example.org:22", "example.org", 443, False),
        ("example.org:80,8000-8002", "example.org", 8002, True),
        ("example.org:80,8000-8002", "example.org", 8003, False),
        ("EXAMPLE.org.", "example.org", 443, True),
        ("*.example.org", "a.b.example.org", 443, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "notexample.org", 443, False),
        ("*", "example.org", 443, True),
        ("*", "10.0.0.1", 443, False),
        ("*", "2001:db8::1", 443, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("*.bücher.example", "a.xn--bcher-kva.example", 443, True),
        ("10.0.0.0/8:5432", "10.1.2.3", 5432, True),
        ("10.0.0.0/8:5432", "11.1.2.3", 5432, False),
        ("[2001:db8::/32]:443", "2001:db8::7", 443, True),
        ("[2001:db8::1]:443", "2001:DB8:0::1", 443, True),
        ("10.0.0.1", "::ffff:10.0.0.1", 443, False),
        ("*", "app.localhost", 443, False),
        ("*", "not a name", 443, False),
        ("*", "127.1", 443, False),
        ("*", "0x7f.0x1", 443, False),
        ("*", "fe80::1%eth0", 443, False),
        ("*", "", 443, False),
        ("*", "example.org", 0, False),
        ("*", "example.org", 65_536, False),
    ],
)
def test_an_allow_reaches_what_its_pattern_says_and_nothing_else(pattern, host, port, is_reached):
    found = judge(profile(allow=f"connect {pattern}")).connect(host, port)

    assert said(found) == ((ALLOW, f"tool:net:connect {pattern}") if is_reached else (DENY, ""))


@pytest.mark.parametrize(
    ("pattern", "host", "port", "is_denied"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 8001, True),
        ("example.org:*", "example.org", 8001, True),
        ("example.org:443", "example.org", 8001, False),
        ("example.org:1-65535", "example.org", 8001, True),
        ("Example.ORG.", "EXAMPLE.org.", 8001, True),
        ("*.org", "example.org", 8001, True),
        ("*", "example.org", 8001, True),
        ("*", "192.0.2.1", 8001, False),
        ("192.0.2.0/24", "192.0.2.1", 8001, True),
        ("192.0.2.0/24", "::ffff:192.0.2.1", 8001, True),
        ("192.0.2.0/24", "64:ff9b::192.0.2.1", 8001, True),
        ("192.0.2.0/24", "64:ff9b:1::192.0.2.1", 8001, True),
        ("192.0.2.0/24", "2002:c000:0201::1", 8001, True),
        ("192.0.2.0/24", "::192.0.2.1", 8001, True),
        ("192.0.2.0/24", "::ffff:192.0.3.1", 8001, False),
    ],
)
def test_a_deny_holds_for_every_spelling_and_without_a_port_for_every_port(
    pattern, host, port, is_denied
):
    opened = ("connect *:443,8001", "connect 0.0.0.0/0:8001", "connect [::/0]:8001")

    found = judge(profile(allow=opened, deny=f"connect {pattern}")).connect(host, port)

    assert said(found)[0] is (DENY if is_denied else ALLOW)
    assert (said(found)[1] == f"tool:net:connect {pattern}") is is_denied


@pytest.mark.parametrize("wide", ["tool:*", "tool:net:*", "tool:net:connect"])
def test_a_deny_without_a_target_denies_the_whole_network(wide):
    text = f'[profiles.p]\nallow = ["tool:net:connect *"]\ndeny = ["{wide}"]\n'

    assert said(judge(text).connect("example.org", 443)) == (DENY, wide)
    assert not judge(text).can_reach


@pytest.mark.parametrize("name", ["allow", "ask"])
def test_what_allows_everything_else_opens_no_network(name):
    found = judge(f'[profiles.p]\n{name} = ["tool:*"]\n')

    assert (found.can_reach, found.connect("example.org", 443)) == (False, NOTHING)
    assert (
        decide(policy(""), (Agent("main", "open"),), (Action("net", "connect", "a.b:443"),)).outcome
        is DENY
    )


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        ({"allow": "connect example.org"}, ALLOW),
        ({"allow": "connect *", "ask": "connect example.org"}, ASK),
        ({"ask": "connect *", "deny": "connect *.org"}, DENY),
        ({}, DENY),
    ],
)
def test_the_strictest_rule_that_matches_decides(rules, outcome):
    assert judge(profile(**rules)).connect("example.org", 443).outcome is outcome


def test_a_rule_that_decides_is_named_with_its_place():
    found = judge(profile(allow="connect example.org")).connect("example.org", 443)

    shown = RuleMatch(ALLOW, "tool:net:connect example.org", "profiles.p.allow", "paddock.toml", 2)
    assert found == Reach(ALLOW, shown)


@pytest.mark.parametrize(("host", "port", "outcome"), [
    ("example.org", 443, ASK), ("example.org", 80, ASK), ("example.org", 22, DENY),
    ("192.0.2.1", 443, DENY),
])  # fmt: skip
def test_otherwise_stands_for_names_at_the_ports_of_the_web(host, port, outcome):
    found = judge('[profiles.p]\notherwise = { "tool:net:*" = "ask" }\n')

    assert found.connect(host, port) == Reach(outcome, None)
    assert (found.can_reach, found.ports("example.org"), found.ports(host) != ()) == (
        True, (80, 443), host == "example.org",
    )  # fmt: skip


def test_otherwise_of_everything_is_none_of_the_network():
    found = judge('[profiles.p]\notherwise = { "tool:*" = "ask" }\n')

    assert (found.can_reach, found.connect("example.org", 443)) == (False, NOTHING)


def test_the_ports_of_a_name_are_those_that_are_allowed_or_asked_about():
    text = profile(
        allow=("connect *.example.org:443,5432", "connect *"),
        ask="connect git.example.org:22",
        deny="connect git.example.org:5432",
    )

    found = judge(text)

    assert found.ports("git.example.org") == (22, 80, 443)
    assert found.ports("a.example.org") == (80, 443, 5432)
    assert found.ports("other.test") == (80, 443)
    assert found.ports("10.0.0.1") == ()
    assert judge(profile(deny="connect *")).ports("example.org") == ()


# --- what a name may lead to ---------------------------------------------------------

DATABASE = long_rule("connect db.example.org:5432", "allow", 'addresses = ["10.0.0.0/8"]')


def test_a_name_leads_to_public_addresses_and_those_that_its_rules_name():
    text = profile(allow="connect *:5432") + DATABASE

    assert judge(text).connect("db.example.org", 5432).addresses == (ip_network("10.0.0.0/8"),)
    assert judge(text).connect("a.example.org", 5432).addresses == ()


def test_a_literal_leads_to_what_its_rule_names():
    found = judge(profile(allow="connect 10.0.0.0/8:5432")).connect("10.1.2.3", 5432)

    assert found.addresses == (ip_network("10.0.0.0/8"),)


def test_several_members_share_what_all_of_them_name():
    narrow = long_rule(
        "connect db.example.org:5432", "allow", 'addresses = ["10.1.0.0/16", "192.168.0.0/16"]', "c"
    )

    found = judge(DATABASE + narrow, CHILD).connect("db.example.org", 5432)

    assert (found.outcome, found.addresses) == (ALLOW, (ip_network("10.1.0.0/16"),))


def test_a_deny_by_address_holds_for_what_a_name_leads_to():
    found = judge(profile(allow="connect *", deny="connect 192.0.2.0/24:443"))

    denial = found.find_denial(ip_address("192.0.2.7"), 443)
    assert denial is not None
    assert (denial.outcome, denial.text) == (DENY, "tool:net:connect 192.0.2.0/24:443")
    assert found.find_denial(ip_address("::ffff:192.0.2.7"), 443) == denial
    assert found.find_denial(ip_address("192.0.2.7"), 80) is None
    assert found.find_denial(ip_address("192.0.3.7"), 443) is None


def test_literals_are_the_networks_that_every_member_names_with_the_ports_that_they_share():
    text = profile(allow=("connect 10.0.0.0/8:5432,443", "connect [2001:db8::1]", "connect *"))
    child = profile("c", ask=("connect 10.1.0.0/16:5432", "connect 192.0.2.1:443"))

    assert judge(text).literals() == ((ip_network("10.0.0.0/8"), (443, 5432)),)
    assert judge(text + child, CHILD).literals() == ((ip_network("10.1.0.0/16"), (5432,)),)
    assert judge(profile(deny="connect 10.0.0.0/8")).literals() == ()


# --- for which commands, and for whom ------------------------------------------------


@pytest.mark.parametrize(
    ("line", "is_reached"),
    [
        ("psql -h db.example.org", True),
        ("psql -h a && psql -h b", True),
        ("cd sub && psql -h a", True),
        ("psql", False),
        ("psql; curl db.example.org:5432", False),
        ("env PGUSER=x psql", False),
        ("PATH=/tmp psql", False),
        ("psql $(cat query)", False),
        ("./psql", False),
        ("psql '", False),
        ("pytest", False),
        ("", False),
        (None, False),
    ],
)
def test_a_rule_with_commands_counts_for_a_line_of_such_commands_alone(line, is_reached):
    found = judge(
        long_rule("connect db.example.org:5432", "allow", 'commands = ["psql *"]'), line=line
    )

    assert (found.connect("db.example.org", 5432).outcome is ALLOW) is is_reached
    assert found.can_reach is is_reached
    assert found.ports("db.example.org") == ((5432,) if is_reached else ())


def test_a_child_never_reaches_more_than_its_parent():
    text = profile(allow="connect *.example.org", ask="connect git.example.org")
    child = profile("c", allow=("connect *", "connect *:22"))

    found = judge(text + child, CHILD)

    assert said(found.connect("a.example.org", 443))[0] is ALLOW
    assert said(found.connect("git.example.org", 443))[0] is ASK
    assert found.connect("a.example.org", 22) == NOTHING
    assert found.connect("other.test", 443) == NOTHING
    assert found.ports("a.example.org") == (80, 443)
    assert judge(child + profile(), CHILD).can_reach is False
    assert judge(text, ()).can_reach is False


def test_an_untrusted_file_opens_nothing_and_closes_what_it_says():
    users = PolicySource("config.toml", profile(allow="connect example.org").encode())

    def found(project: str) -> NetworkJudge:
        source = PolicySource("paddock.toml", project.encode(), trusted=False)
        return NetworkJudge(load_policy(source, users), MAIN, None)

    assert found("").ports("example.org") == (80, 443)
    assert found(profile(allow="connect *")).ports("other.test") == ()
    denying = profile(allow="connect *", deny="connect example.org:443")
    assert found(denying).ports("example.org") == (80,)


# --- requests ------------------------------------------------------------------------

API = profile(
    allow=("request GET api.example.org/v1/**", "request * api.example.org:8443/hooks/*"),
    ask="request POST api.example.org/v1/issues",
    deny="request * api.example.org/v1/admin/**",
)


@pytest.mark.parametrize(
    ("method", "target", "outcome"),
    [
        ("GET", "/v1/a", ALLOW),
        ("GET", "/v1/", ALLOW),
        ("GET", "/v1/a/b?c=/../../", ALLOW),
        ("GET", "/v1", DENY),
        ("GET", "/", DENY),
        ("GET", "", DENY),
        ("GET", "v1/a", DENY),
        ("GET", "https://api.example.org/v1/a", DENY),
        ("GET", "*", DENY),
        ("HEAD", "/v1/a", DENY),
        ("get", "/v1/a", DENY),
        ("", "/v1/a", DENY),
        ("GET", "/v1/../secret", DENY),
        ("GET", "/v1/%2e%2e/secret", DENY),
        ("GET", "/v1/%252e%252e/secret", DENY),
        ("GET", "/v1/..;a=b/secret", DENY),
        ("GET", "/v1/..%5csecret", DENY),
        ("GET", "/v1/..\\secret", DENY),
        ("GET", "/v1/a%00b", DENY),
        ("GET", "/v1/a#b", DENY),
        ("GET", "/v1/\N{LATIN SMALL LETTER E WITH ACUTE}", DENY),
        ("GET", "/secret/../v1/a", DENY),
        ("GET", "//v1/a", DENY),
        ("GET", "/v1/b%20c", ALLOW),
        ("GET", "/v1//a", ALLOW),
        ("POST", "/v1/issues", ASK),
        ("POST", "/v1/Issues/", ASK),
        ("post", "/v1/%69ssues", ASK),
        ("POST", "/v1/issues/1", DENY),
        ("GET", "/v1/admin/users", DENY),
        ("GET", "/v1/ADMIN/users", DENY),
        ("GET", "/v1/x/../admin/users", DENY),
        ("GET", "/v1/%61dmin/users", DENY),
    ],
)
def test_a_request_is_allowed_by_every_reading_of_its_path_and_denied_by_any(
    method, target, outcome
):
    found = judge(API)

    assert found.connect("api.example.org", 443).is_judged
    assert found.request(method, "api.example.org", 443, target).outcome is outcome


def test_a_star_in_a_path_is_one_component_that_is_not_empty():
    found = judge(API)

    def hook(path: str) -> Outcome:
        return found.request("PUT", "api.example.org", 8443, path).outcome

    assert [hook(f"/hooks/{each}") for each in ("a", "", "a/b")] == [ALLOW, DENY, DENY]


def test_a_host_whose_requests_are_judged_is_connected_to_and_has_no_other_way():
    text = API + long_rule("connect api.example.org", "allow", "")

    found = judge(text)

    assert said(judge(API).connect("api.example.org", 443))[0] is ALLOW
    assert judge(API).ports("api.example.org") == (443, 8443)
    assert found.connect("api.example.org", 443).is_judged
    assert not found.connect("api.example.org", 80).is_judged
    assert found.request("DELETE", "api.example.org", 443, "/v1/a") == NOTHING
    assert said(found.connect("api.example.org", 80)) == (
        DENY,
        "tool:net:request * api.example.org/v1/admin/**",
    )


def test_a_connection_whose_requests_nobody_sees_is_denied_where_one_of_them_is():
    text = profile(allow="connect *", deny="request DELETE api.example.org/**")

    assert said(judge(text).connect("api.example.org", 443)) == (
        DENY, "tool:net:request DELETE api.example.org/**",
    )  # fmt: skip
    assert said(judge(text).connect("example.org", 443))[0] is ALLOW


def test_a_member_that_names_no_requests_says_only_what_it_says_of_the_connection():
    asking = profile(ask="connect api.example.org")
    child = profile("c", allow="request GET api.example.org/v1/**")

    found = judge(asking + child, CHILD)

    assert found.connect("api.example.org", 443).outcome is ASK
    assert found.request("GET", "api.example.org", 443, "/v1/a").outcome is ALLOW
    assert found.request("PUT", "api.example.org", 443, "/v1/a").outcome is DENY
    closed = profile(deny="connect api.example.org", allow="connect *")
    assert (
        judge(closed + child, CHILD).request("GET", "api.example.org", 443, "/v1/a").outcome is DENY
    )


def test_a_connection_that_is_denied_has_no_requests():
    text = profile(allow="request GET api.example.org/**", deny="connect *.example.org")

    assert said(judge(text).request("GET", "api.example.org", 443, "/")) == (
        DENY, "tool:net:connect *.example.org",
    )  # fmt: skip


# --- what does not load --------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("allow", "connect example.org:*"),
        ("allow", "connect example.org:8000-8032"),
        ("ask", "connect example.org:1-30,80,443,8000"),
        ("allow", "connect"),
        ("allow", "*"),
        ("allow", "* example.org"),
        ("allow", "connect 127.0.0.1:5432"),
        ("allow", "connect localhost:80"),
        ("deny", "connect localhost"),
        ("deny", "connect *.localhost"),
        ("allow", "connect example.org:"),
        ("allow", "connect example.org:https"),
        ("allow", "connect example.org:443,"),
        ("allow", "connect example.org:0"),
        ("allow", "connect example.org:65536"),
        ("allow", "connect example.org:10-9"),
        ("allow", "connect https://example.org"),
        ("allow", "connect api-*.example.org"),
        ("allow", "connect *.*.example.org"),
        ("allow", "connect *example.org"),
        ("allow", "connect a..example.org"),
        ("allow", "connect exam ple.org"),
        ("allow", "connect faß.example"),
        ("allow", "connect 10.0.0.1/8"),
        ("allow", "connect 300.0.0.1"),
        ("allow", "connect 10.1"),
        ("allow", "connect example.0x7f"),
        ("allow", "connect 2001:db8::1"),
        ("allow", "connect [2001:db8::1]443"),
        ("allow", "connect [fe80::1%eth0]:443"),
        ("allow", "connect *.10.0.0.1"),
        ("allow", "request GET example.org"),
        ("allow", "request example.org/"),
        ("allow", "request get example.org/"),
        ("allow", "request GET example.org/a/../b"),
        ("allow", "request GET example.org/a//b"),
        ("allow", "request GET example.org/a?b=c"),
        ("allow", "request GET example.org/a%20b"),
        ("allow", "request GET example.org/a**"),
        ("deny", "request GET 10.0.0.0/8"),
        ("deny", "request GET 10.0.0.0/8:443/x"),
        ("deny", "upload example.org"),
    ],
)
def test_a_pattern_that_means_nothing_or_too_much_does_not_load(key, text):
    with pytest.raises(ConfigError) as error:
        policy(profile(**{key: text}))

    assert error.value.where == "paddock.toml:2"
    assert error.value.hint


@pytest.mark.parametrize(
    ("action", "outcome", "more"),
    [
        ("connect example.org", "allow", 'addresses = ["10.0.0.1/8"]'),
        ("connect example.org", "allow", 'addresses = ["intern"]'),
        ("connect example.org", "allow", 'addresses = "10.0.0.0/8"'),
        ("connect example.org", "allow", 'commands = ["*"]'),
        ("connect example.org", "allow", "commands = []"),
        ("connect example.org", "deny", 'commands = ["psql *"]'),
        ("connect example.org", "deny", 'addresses = ["10.0.0.0/8"]'),
        ("connect example.org", "allow", 'network = "policy"'),
        ("connect example.org", "confine", ""),
        ("connect example.org", "allow", 'match = ["tool:net:connect a.example.org:443"]'),
        ("connect *.example.org", "allow", 'not_match = ["tool:net:connect a.example.org:443"]'),
        ("connect example.org", "allow", 'match = ["tool:net:connect example.org"]'),
    ],
)
def test_a_long_rule_that_does_not_fit_does_not_load(action, outcome, more):
    with pytest.raises(ConfigError) as error:
        policy(long_rule(action, outcome, more))

    assert error.value.where.startswith("paddock.toml:")


def test_addresses_and_commands_stand_in_no_rule_of_files_or_commands():
    for action in ("tool:shell:run psql *", "tool:file:view *"):
        text = f'[[profiles.p.rules]]\naction = "{action}"\noutcome = "allow"\ncommands = ["a"]\n'
        with pytest.raises(ConfigError, match="opens no network"):
            policy(text)


# --- actions as people type them -----------------------------------------------------


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("tool:net:connect Example.ORG.:443", "example.org:443"),
        ("tool:net:connect bücher.example:443", "xn--bcher-kva.example:443"),
        ("tool:net:connect [2001:DB8::0:1]:80", "[2001:db8::1]:80"),
        ("tool:net:connect 10.0.0.1:080", "10.0.0.1:80"),
        ("tool:net:request GET Example.org/a/b?c=d", "GET example.org:443/a/b"),
        ("tool:net:request GET [2001:db8::1]:8443/a", "GET [2001:db8::1]:8443/a"),
    ],
)
def test_an_action_has_one_form(typed, meant):
    action = parse_action(typed)

    assert action.target == meant
    assert parse_action(str(action)) == action


@pytest.mark.parametrize(
    "text",
    [
        "connect", "connect example.org", "connect *:443", "connect *.example.org:443",
        "connect example.org:80,443", "connect 10.0.0.0/8:443", "connect localhost:80",
        "request GET example.org", "request * example.org/", "request GET /a", "request example.org/",
    ],
)  # fmt: skip
def test_an_action_is_one_host_one_port_and_one_request(text):
    with pytest.raises(UsageError):
        parse_action(f"tool:net:{text}")


def test_a_decision_is_what_the_judge_of_a_command_says():
    assert decided(API, "tool:net:request GET api.example.org/v1/a") is ALLOW
    assert decided(API, "tool:net:request POST api.example.org/v1/issues") is ASK
    assert decided(API, "tool:net:connect api.example.org:443") is ALLOW
    assert decided(API, "tool:net:connect api.example.org:80") is DENY
    assert decided(DATABASE, "tool:net:connect db.example.org:5432") is ALLOW
    only_psql = long_rule("connect db.example.org:5432", "allow", 'commands = ["psql *"]')
    assert decided(only_psql, "tool:net:connect db.example.org:5432") is DENY
    unread = decide(policy(API), MAIN, (Action("net", "connect", "no host"),))
    assert unread.outcome is DENY


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "''|\"\""),
        ("a" * 64 + ".org", "invalid label"),
        (".".join(["a" * 60] * 5), "253"),
        ("10.0.0.1", "number"),
        ("exa mple", "invalid label"),
        ("\N{LATIN SMALL LETTER SHARP S}.example", "two ways"),
        ("a\N{IDEOGRAPHIC FULL STOP}example", "two ways"),
        ("\N{FULLWIDTH LATIN SMALL LETTER A}.example", "two ways"),
    ],
)
def test_what_is_no_name_is_refused_with_the_reason(text, reason):
    with pytest.raises(ValueError, match=reason):
        canonical_host(text)
