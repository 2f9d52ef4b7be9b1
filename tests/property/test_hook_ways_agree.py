"""The lean path of the hook decides as the policy does, or leaves the call to it."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from paddock.apps.hook.lean.request import DeclinedError, ShapeError
from paddock.errors import ConfigError
from paddock.policy.engine import PolicySource, load_policy
from tests.support.hooks import BothWays, Client
from tests.support.places import new_place

FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

rules = st.sampled_from(
    [
        "tool:file:* docs/**", "tool:file:create *.md", "tool:*:view", "tool:*", "tool:shell:*",
        "tool:shell:run *", "tool:shell:run git push *", "tool:shell:run npm test",
        "tool:shell:run ls *", "tool:shell:run g*t x", "tool:mcp:call mcp__toy__*", "tool:mcp:*",
        "tool:mcp:call MCP__*__Add", "tool:client:*", "tool:client:WebFetch", "tool:client:Agent",
    ]
)  # fmt: skip
heads = st.sampled_from(
    ["tool:*", "tool:file:*", "tool:file:create", "tool:shell:*", "tool:mcp:*", "tool:client:*",
     "tool:client:WebFetch", "tool:shell:run"]
)  # fmt: skip
words = st.sampled_from(["allow", "ask", "deny"])
otherwise = st.dictionaries(heads, words, max_size=3).flatmap(
    lambda entries: st.sampled_from([entries, {**entries, "tool:shell:*": "confine"}])
)
profiles = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(rules, max_size=3),
        "ask": st.lists(rules, max_size=2),
        "deny": st.lists(rules, max_size=2),
        "otherwise": otherwise,
        "rules": st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {"action": rules, "outcome": words}, optional={"reason": st.just("because")}
                ),
                st.fixed_dictionaries(
                    {
                        "action": st.sampled_from(["tool:mcp:call mcp__toy__*", "tool:mcp:*"]),
                        "outcome": words,
                        "when": st.sampled_from([{"a": {"max": 0}}, {"/a": {"in": [1, "x"]}}]),
                    }
                ),
            ),
            max_size=2,
        ),
    },
)
hooks = st.fixed_dictionaries(
    {},
    optional={
        "on_allow": st.sampled_from(["silent", "approve"]),
        "shell": st.sampled_from(["confine", "read"]),
        "outside": st.lists(
            st.sampled_from(["docker *", "npm test", "git push *", "g*t *", "cargo *"]), max_size=2
        ),
    },
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "paths": st.sampled_from(
            [{"secret": ["*.k?y", "docs/**", "!docs/a"]}, {"protected": []}, {"warned": ["src/"]}]
        ),
        "profiles": st.dictionaries(
            st.sampled_from(["standard", "locked", "own"]), profiles, max_size=2
        ),
        "agents": st.dictionaries(
            st.sampled_from(["main", "Explore"]),
            st.fixed_dictionaries({"profile": st.sampled_from(["open", "standard", "locked"])}),
            max_size=2,
        ),
        "hook": hooks,
    },
)
lines = st.one_of(
    st.sampled_from(
        ["npm test", "npm exec x", "git status", "git push -f", "git push origin main", "ls -la src",
         "ls; git push", "npm test 2>&1 | tail -5", "grep -rn 'a b' src && echo \"done now\"",
         "find . -name '*.py'", "find . -delete", "sed -n 1,5p a", "sed -i s/a/b/ a", "make -C x",
         "make test", "python -m pytest -q", "python x.py", "python - x", "echo hi > a", "cat $X",
         "git log --oneline", "git diff --output=x", "git commit -m 'a b'", "pytest -q tests || true",
         "cd src", "rm a", "A=1 ls", "./run.sh x", "/usr/bin/git push", "curl http://x", "uv run x",
         "go build ./...", "test -f a", "echo if", "echo then fi", "echo a#b", "ls >/dev/null",
         "docker ps | wc -l", "cargo test", "cargo watch x", "time ls", "xargs rm", "a; b ; c",
         "git checkout a", "true && false || true", "ls 2>/dev/null ; pwd", "echo 'x;y' | cat",
         "sed -n 'w .env' a", "sed 's/a/b/gw .env' a", "sed 's|a|b|w .env' a", "sed -n w.env a",
         "sed 's/a/b/e' a", "sed -e 'w .env' a", "sed 's/a/b/g' a", "sed -n '/a/,/b/p' a",
         "sed '/a/w .env' a", "git config -f .env a.b c", "git bundle create .env HEAD",
         "git format-patch -1 --output-directory .git", "git worktree add ../x", "git clean -fdx",
         "tar czf .env docs", "tar xf a", "chmod -w .env", "gzip -r a", "uniq -c a .env",
         "csplit -f .env a 1", "env -C .git rm a", "NODE_ENV=a npm test", "split a .env"]
    ),
    st.lists(
        st.sampled_from(
            ["ls", "git", "push", "echo", "a", "-x", "--long=1", "'q r'", '"d e"', "&&", "||", ";",
             "|", "2>&1", "=", "a=b", "1", "-", "--", "in", "x:y", "@f", "+x", "%1", ",", "./a",
             ">/dev/null", "x@y.z", "''", '""', "npm", "test", "s;", "time", "case"]
        ),
        min_size=1,
        max_size=7,
    ).map(" ".join),
)  # fmt: skip
calls = st.one_of(
    lines.map(lambda line: ("Bash", {"command": line})),
    st.sampled_from(
        [("Write", {"file_path": "docs/a.md"}), ("Read", {"file_path": "{root}/x.key"}),
         ("mcp__toy__add", {"a": 1}), ("mcp__toy__Add", {}), ("mcp__toy__add", {"a": "x"}), ("Agent", {"prompt": "x"}),
         ("WebFetch", {"url": "x"}), ("Grep", {"pattern": "x"})]
    ),
)  # fmt: skip
identities = st.sampled_from(
    [{}, {"agent_id": "a-1", "agent_type": "Explore"}, {"agent_id": "a-2", "agent_type": "other"},
     {"agent_type": "main"}]
)  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with new_place() as place:
        yield Client(place)


def decided_alike(ways: BothWays, data: bytes, name: str) -> bool:
    """Whether the lean path decided; then it did as the policy does."""
    try:
        lean = ways.lean(data, name)
    except (DeclinedError, ShapeError):
        return False
    assert lean == ways.full(data, name)
    return True


@FIXTURES
@given(documents, st.lists(st.tuples(calls, identities), min_size=4, max_size=8), st.booleans())
def test_both_ways_say_and_record_the_same(client: Client, document, asked, is_codex):
    try:
        load_policy(PolicySource("paddock.json", json.dumps(document).encode()))
    except ConfigError:
        assume(False)
    client.write_policy(document)
    name = "codex" if is_codex else "claude"
    ways = BothWays.of(client, name)
    assert ways.image is not None
    for (tool, given_input), identity in asked:
        decided_alike(ways, client.event(tool, tool_input=given_input, **identity), name)


def test_both_ways_name_the_parent_whose_profile_denies(client: Client):
    client.write_policy(
        {
            "profiles": {"locked": {"deny": ["tool:shell:*"]}},
            "agents": {"main": {"profile": "locked"}, "Explore": {"profile": "open"}},
        }
    )
    ways = BothWays.of(client)
    asked = {"tool_input": {"command": "npm test"}, "agent_id": "a-2", "agent_type": "other"}

    assert decided_alike(ways, client.event("Bash", **asked), "claude")
    assert 'the parent agent "main": ' in str(ways.lean(client.event("Bash", **asked), "claude"))


@FIXTURES
@given(st.lists(lines, min_size=10, max_size=20))
def test_both_ways_read_a_line_alike(client: Client, asked):
    client.write_policy({"profiles": {"standard": {"otherwise": {"tool:*": "ask"}}}})
    ways = BothWays.of(client)
    for line in asked:
        decided_alike(ways, client.event("Bash", tool_input={"command": line}), "claude")


def test_the_lean_path_decides_what_agents_mostly_do(client: Client):
    client.write_policy({})
    ways = BothWays.of(client)
    common = [
        ("Write", {"file_path": "{root}/src/a.py", "content": "x"}),
        ("Edit", {"file_path": "{root}/.git/config", "old_string": "a", "new_string": "b"}),
        ("Read", {"file_path": "/etc/hosts"}),
        ("Bash", {"command": "git status"}),
        ("Bash", {"command": "git commit -m 'a message'"}),
        ("Bash", {"command": "npm test 2>&1 | tail -20"}),
        ("Bash", {"command": "python -m pytest -q tests/unit"}),
        ("Bash", {"command": 'grep -rn "some text" src && ls'}),
        ("mcp__toy__add", {"a": 1}),
        ("Agent", {"prompt": "x"}),
    ]
    decided = [
        decided_alike(ways, client.event(tool, tool_input=given_input), "claude")
        for tool, given_input in common
    ]

    assert decided == [True] * len(common)
