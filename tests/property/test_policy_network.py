"""Laws of rules for the network: what an allow says, what a deny holds, one form of a host."""

import posixpath
from itertools import product
from urllib.parse import unquote

from hypothesis import assume, example, given
from hypothesis import strategies as st

from paddock.errors import UsageError
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.network import NetworkJudge, canonical_host
from paddock.policy.positions import PatternError
from paddock.policy.rules import compile_rule, parse_action
from paddock.values.decisions import Agent, AgentChain, Outcome

MAIN: AgentChain = (Agent("main", "p"),)
CHILD: AgentChain = (Agent("child", "c", parent="main"), *MAIN)

labels = st.sampled_from(["a", "b", "example", "org", "xn--bcher-kva", "x-1", "_dmarc"])
hosts = st.lists(labels, min_size=1, max_size=4).map(".".join)
ports = st.sampled_from([22, 80, 443, 8000, 8001])
patterns = st.one_of(hosts, hosts.map(lambda host: f"*.{host}"), st.just("*"))
port_lists = st.sampled_from(["", ":443", ":22,8000-8001", ":80", ":8000"])
heads = st.sampled_from(["allow", "ask", "deny"])
rules = st.builds(lambda *parts: parts, heads, patterns, port_lists)


def judge(*given: tuple[str, str], name: str = "p", chain: AgentChain = MAIN, more: str = ""):
    lists: dict[str, list[str]] = {}
    for key, text in given:
        lists.setdefault(key, []).append(f"tool:net:{text}")
    text = f"[profiles.{name}]\n" + "".join(f"{key} = {each!r}\n" for key, each in lists.items())
    return NetworkJudge(load_policy(PolicySource("p.toml", (text + more).encode())), chain, None)


@given(st.one_of(st.text(max_size=80), hosts))
@example("K.example")
@example("ẞ.example")
@example("xn--a.example.")
def test_the_form_of_a_name_is_one(text):
    try:
        name = canonical_host(text)
    except ValueError:
        return

    assert (
        name == canonical_host(name) == canonical_host(f"{name}.") == canonical_host(name.upper())
    )
    assert name.isascii()
    assert 0 < len(name) <= 253


@given(patterns, port_lists, hosts, ports)
def test_an_allow_is_for_the_names_and_ports_that_it_says(pattern, listed, host, port):
    found = judge(("allow", f"connect {pattern}{listed}"))

    labels, named = host.split("."), pattern.split(".")
    is_named = labels == named
    if named[0] == "*":
        is_named = len(labels) >= len(named) and labels[len(labels) - len(named) + 1 :] == named[1:]
    means = {"": {80, 443}, ":443": {443}, ":22,8000-8001": {22, 8000, 8001}, ":80": {80}}
    is_port = port in means.get(listed, {8000})
    assert (found.connect(host, port).outcome is Outcome.ALLOW) is (is_named and is_port)
    assert (port in found.ports(host)) is (is_named and is_port)


@given(st.data(), hosts, ports)
def test_a_deny_holds_whatever_the_spelling_of_its_host_and_of_the_one_that_is_asked_for(
    data, host, port
):
    def spelled() -> str:
        parts = [
            part.encode("ascii").decode("idna") if data.draw(st.booleans()) else part
            for part in host.split(".")
        ]
        cased = "".join(
            char.upper() if data.draw(st.booleans()) else char for char in ".".join(parts)
        )
        return cased + data.draw(st.sampled_from(["", "."]))

    found = judge(("allow", "connect *:22,80,443,8000,8001"), ("deny", f"connect {spelled()}"))

    assert found.connect(spelled(), port).outcome is Outcome.DENY
    assert found.ports(host) == ()
    assert found.connect(f"z.{host}", port).outcome is Outcome.ALLOW


pieces = st.sampled_from(
    ["v1", "admin", "x", "..", ".", "", "%2e%2e", "%2E.", "%252e%252e", "..;a", "%2f", "\\", "%5c"]
)
targets = st.lists(pieces, max_size=6).map(lambda parts: "/" + "/".join(parts))


@given(targets, st.sampled_from(["", "?a=/../", "?"]))
def test_what_is_allowed_below_a_path_lies_there_in_every_reading(target, query):
    found = judge(("allow", "request GET example.org/v1/**"))

    if found.request("GET", "example.org", 443, target + query).outcome is not Outcome.ALLOW:
        return
    for reading in (target, unquote(target), unquote(unquote(target))):
        plain = posixpath.normpath(reading.replace("\\", "/").replace(";a", ""))
        assert f"{plain.replace('//', '/')}/".startswith("/v1/")


@given(st.data(), targets)
def test_a_denied_path_is_denied_however_it_is_written(data, detour):
    def written(char: str) -> str:
        way = data.draw(st.sampled_from(["as it is", "upper", "encoded", "twice"]))
        code = f"%{ord(char):02x}"
        return {"upper": char.upper(), "encoded": code, "twice": f"%25{code[1:]}"}.get(way, char)

    path = "".join(written(char) if char != "/" else char for char in "/admin/users")
    found = judge(("allow", "request * example.org/**"), ("deny", "request * example.org/admin/**"))

    assert found.request("GET", "example.org", 443, path).outcome is Outcome.DENY
    away = f"/{detour.count('/') * '../'}.."
    assert found.request("GET", "example.org", 443, f"{detour}{away}{path}").outcome is Outcome.DENY
    assert found.request("GET", "example.org", 443, "/users").outcome is Outcome.ALLOW


@given(st.lists(rules, max_size=5), st.lists(rules, max_size=5), hosts, ports)
def test_a_child_is_answered_as_strictly_as_its_parent_or_stricter(own, parents, host, port):
    def lists(given: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
        return [(head, f"connect {pattern}{listed}") for head, pattern, listed in given]

    text = "".join(
        f'[[profiles.p.rules]]\naction = "tool:net:{action}"\noutcome = "{head}"\n'
        for head, action in lists(parents)
    )
    parent = judge(more=text, name="other")
    child = judge(*lists(own), name="c", chain=CHILD, more=text or "[profiles.p]\n")

    said = child.connect(host, port).outcome
    assert said >= parent.connect(host, port).outcome
    assert set(child.ports(host)) <= set(parent.ports(host))
    assert said is Outcome.DENY or child.can_reach


@given(st.sampled_from(["connect ", "request GET ", "request "]), st.text(max_size=40))
@example("connect ", "[::ffff:1.2.3.4]:1-2,")
@example("request GET ", "a/%")
def test_any_text_is_a_rule_and_an_action_or_is_refused(lead, text):
    for outcome in Outcome.ALLOW, Outcome.DENY:
        try:
            compile_rule(f"tool:net:{lead}{text}", outcome, "test")
        except PatternError as problem:
            assert problem.message
    try:
        action = parse_action(f"tool:net:{lead}{text}")
    except UsageError:
        return
    assert parse_action(str(action)) == action


@given(patterns, hosts, ports)
def test_what_is_looked_at_by_request_is_reached_by_its_requests_alone(pattern, host, port):
    assume(not pattern.startswith("*"))
    found = judge(
        ("allow", f"request GET {pattern}:22,80,443,8000-8001/v1/**"), ("allow", f"connect {host}")
    )

    is_looked_at = pattern == host
    assert found.connect(host, port).is_judged is is_looked_at
    for method, path in product(("GET", "PUT"), ("/v1/x", "/")):
        is_allowed = found.request(method, host, port, path).outcome is Outcome.ALLOW
        is_meant = (method, path) == ("GET", "/v1/x") if is_looked_at else port in (80, 443)
        assert is_allowed is is_meant
