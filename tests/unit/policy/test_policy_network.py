"""What rules for the network mean, and what a command may reach by them."""

import pytest

from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.network import NetworkJudge, Reach
from paddock.values.decisions import Agent, AgentChain, Outcome

MAIN: AgentChain = (Agent("main", "p"),)
CHILD: AgentChain = (Agent("child", "c", parent="main"), *MAIN)


def policy(text: str, trusted: bool = True) -> Policy:
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted))


def profile(name: str = "p", **lists: tuple[str, ...]) -> str:
    keys = (f"{key} = {list(values)!r}\n" for key, values in lists.items())
    return f"[profiles.{name}]\n{''.join(keys)}"


def rule(action: str, outcome: str, more: str, name: str = "p") -> str:
    return f'[[profiles.{name}.rules]]\naction = "{action}"\noutcome = "{outcome}"\n{more}\n'


def judge(text: str, chain: AgentChain = MAIN, line: str | None = None) -> NetworkJudge:
    return NetworkJudge(policy(text), chain, line)


def said(reach: Reach) -> tuple[Outcome, str]:
    return reach.outcome, "" if reach.rule is None else reach.rule.text


ALLOWED = "tool:net:connect {}"


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
        ("10.0.0.0/8:5432", "10.1.2.3", 5432, True),
        ("10.0.0.0/8:5432", "11.1.2.3", 5432, False),
        ("[2001:db8::/32]:443", "2001:db8::7", 443, True),
        ("[2001:db8::1]:443", "2001:DB8:0::1", 443, True),
        ("10.0.0.1", "::ffff:10.0.0.1", 443, False),
        ("example.org", "localhost", 443, False),
        ("*", "app.localhost", 443, False),
        ("*", "not a name", 443, False),
        ("*", "127.1", 443, False),
        ("*", "0x7f.0x1", 443, False),
        ("*", "example.org", 0, False),
    ],
)
def test_an_allow_reaches_what_its_pattern_says_and_nothing_else(pattern, host, port, is_reached):
    found = judge(profile(allow=(f"tool:net:connect {pattern}",))).connect(host, port)

    assert found.outcome is (Outcome.ALLOW if is_reached else Outcome.DENY)
    assert (found.rule is not None) is is_reached
