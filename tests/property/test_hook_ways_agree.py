"""The lean path of the hook decides as the policy does, or leaves the call to it."""

import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from paddock.apps.hook.lean.asked import DeclinedError, ShapeError
from paddock.errors import ConfigError
from paddock.policy.engine import PolicySource, load_policy
from tests.support.hooks import BothWays, Client
from tests.support.places import new_place

FIXTURES = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])

names = st.sampled_from(
    ["a", "b", "A", "docs", ".git", ".ENV", "x.key", "src", "yarn.lock", "a.md", "xy.Key", "it's"]
)
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
segments = st.one_of(
    names,
    st.sampled_from(["*", "?", "a*", "*.md", "*.k?y", "[ab]", "[!a]*", "x*y*", "**", "d*s", "*a*"]),
)
patterns = st.one_of(
    st.lists(segments, min_size=1, max_size=4).map("/".join),
    st.lists(segments, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts)),
    st.lists(segments, min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "/"),
)
lists = st.lists(st.one_of(patterns, patterns.map(lambda text: f"!{text}")), max_size=5).filter(
    lambda texts: not texts or not all(text.startswith("!") for text in texts)
)
rules = st.one_of(
    st.builds(
        lambda head, target: f"tool:{head} {target}".strip(),
        st.sampled_from(["file:*", "file:create", "file:view", "file:str_replace", "*:view"]),
        st.one_of(st.just(""), patterns),
    ),
    st.sampled_from(
        [
            "tool:*", "tool:shell:*", "tool:shell:run *", "tool:shell:run git push *",
            "tool:shell:run npm test", "tool:shell:run ls *", "tool:shell:run g*t x",
            "tool:mcp:call mcp__toy__*", "tool:mcp:*", "tool:mcp:call MCP__*__Add",
            "tool:client:*", "tool:client:WebFetch", "tool:client:Agent",
        ]
    ),
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
            st.fixed_dictionaries(
                {"action": rules, "outcome": words}, optional={"reason": st.just("because")}
            ),
            max_size=2,
        ),
    },
)
hooks = st.fixed_dictionaries(
    {},
    optional={
        "on_allow": st.sampled_from(["silent", "approve"]),
        "warnings": st.sampled_from(["all", "once", "off"]),
        "paranoid": st.booleans(),
        "shell": st.sampled_from(["confine", "read"]),
        "outside": st.lists(
            st.sampled_from(["docker *", "npm test", "git push *", "g*t *", "cargo *"]), max_size=2
        ),
        "also_write": st.lists(
            st.sampled_from(["~/plans/**", "/opt/*/x", "/opt/**", "!/opt/b/**"]), max_size=2
        ),
    },
)
documents = st.fixed_dictionaries(
    {},
    optional={
        "paths": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(("protected", "generated", "warned", "safe", "secret"), lists),
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
places = st.one_of(
    paths.map(lambda path: f"{{root}}/{path}"),
    st.sampled_from(
        ["/opt/a/x", "/opt/b/y", "/etc/a.key", "{root}/../x.key", "{root}/inner/a", "{root}/out/a",
         "src/../a", "~/plans/p", "{root}/link/../.git/x", "{root}-evil/a"]
    ),
)  # fmt: skip
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
    st.builds(
        lambda tool, path: (tool[0], {tool[1]: path}),
        st.sampled_from(
            [("Write", "file_path"), ("Edit", "file_path"), ("Read", "file_path"),
             ("NotebookEdit", "notebook_path"), ("MultiEdit", "file_path")]
        ),
        places,
    ),
    lines.map(lambda line: ("Bash", {"command": line})),
    st.sampled_from(
        [("mcp__toy__add", {"a": 1}), ("mcp__toy__Add", {}), ("Agent", {"prompt": "x"}),
         ("WebFetch", {"url": "x"}), ("Grep", {"pattern": "x"})]
    ),
    st.lists(places, min_size=1, max_size=3).map(
        lambda found: (
            "apply_patch",
            {"command": "".join(f"*** Update File: {place}\n@@\n" for place in found)},
        )
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


def test_what_a_star_names_below_a_directory_that_was_taken_out_is_closed_either_way(
    client: Client,
):
    client.write_policy({"paths": {"protected": ["docs/**", "!docs/a"]}})
    ways = BothWays.of(client)
    said = []
    for path in ("docs/a", "docs/a/b", "docs/b", "src/ä"):
        data = client.event("Write", tool_input={"file_path": f"{{root}}/{path}", "content": "x"})
        assert decided_alike(ways, data, "claude")
        said.append(b'"deny"' in ways.lean(data)[0])

    assert said == [False, True, True, False]


def test_the_lean_path_leaves_a_script_of_sed_that_may_write_to_the_policy(client: Client):
    client.write_policy({})
    ways = BothWays.of(client)

    def decided(script: str) -> bool:
        line = f"sed -n '{script}' README.md"
        return decided_alike(ways, client.event("Bash", tool_input={"command": line}), "claude")

    plain = ["5p", "1,$d", "/x y/p", "/x/,/y/d", "s/x;w .env/y/g", "s|x|y|", "$="]
    assert [decided(script) for script in plain] == [True] * len(plain)
    other = [
        *(
            "w .env",
            "w.env",
            "1w .env",
            "/x/w .env",
            "s/x/y/w .env",
            "s/x/y/gw .env",
            "s|x|y|w .env",
        ),
        *("s/x/y/e", "/x/p;w .env/p", "/x/w a/,/y/p", "s/[/]/w .env/p", "p;w .env", "5"),
    ]
    assert [decided(script) for script in other] == [False] * len(other)
