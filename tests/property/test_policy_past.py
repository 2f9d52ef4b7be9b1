"""Laws of `policy replay` and `policy diff`, over generated policies, records and calls."""

import json
from functools import partial
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.policy.decide import decide, writer_of
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.questions.compare import decide_again, diff, replay
from paddock.policy.questions.record import PastDecision, read_recorded
from paddock.runtime.prepared import FREE, Caller, Judged, Prepared
from paddock.runtime.records import Recorder
from paddock.tools.view import VIEW
from paddock.values.calls import ToolCall
from paddock.values.decisions import Action, Agent, Outcome, Permissions
from paddock.values.entries import Entry
from tests.support.policies import OnePolicy, chain_below

# --- what there is to choose from: few names, so that things meet -------------------

paths = st.sampled_from(
    ["a", "docs/a.md", "docs/x/b.md", "src/a.py", ".env", "docs/.git/config", "x.key", "yarn.lock"]
)
patterns = st.sampled_from(
    ["docs/**", "/docs/*", "*.md", "src/", "/src/**", "**", "*.key", "!docs/a.md", "a", "[ds]*/**"]
)
targets = patterns.filter(lambda text: not text.startswith("!"))
lines = st.sampled_from(
    ["git status", "git push -f", "ls && git push", "ls > docs/a.md", "eval $x", "env ls", "ls 'x"]
)
actions = st.one_of(
    st.builds(
        lambda head, path: Action(*head, path),
        st.sampled_from([("file", "create"), ("file", "view"), ("search", "ls")]),
        paths,
    ),
    lines.map(lambda line: Action("shell", "run", line)),
    st.sampled_from(
        [Action("mcp", "call", "mcp__a__b"), Action("client", "Agent"), Action("client", "My Tool")]
    ),
)
calls = st.one_of(
    st.lists(actions, min_size=1, max_size=1),
    st.lists(actions.filter(lambda action: action.is_path), min_size=2, max_size=3),
    st.builds(
        lambda line, path: [Action("shell", "run", line), Action("file", "create", path)],
        lines,
        paths,
    ),
)
rules = st.one_of(
    st.builds(
        lambda head, target: f"tool:{head} {target}".strip(),
        st.sampled_from(["file:*", "file:create", "file:view", "search:*"]),
        st.one_of(st.just(""), targets),
    ),
    st.sampled_from(
        [
            "tool:*", "tool:shell:*", "tool:shell:run git *", "tool:shell:run git push *",
            "tool:shell:run ls *", "tool:shell:run *", "tool:mcp:call mcp__a__*", "tool:client:*",
            "tool:client:Agent",
        ]
    ),
)  # fmt: skip
profiles = st.fixed_dictionaries(
    {},
    optional={
        "allow": st.lists(rules, max_size=3),
        "ask": st.lists(rules, max_size=2),
        "deny": st.lists(rules, max_size=2),
        "otherwise": st.dictionaries(
            st.sampled_from(["tool:*", "tool:shell:*", "tool:file:*"]),
            st.sampled_from(["allow", "ask", "deny"]),
            max_size=2,
        ),
    },
)
LISTS = ("protected", "generated", "secret", "warned", "safe")
path_lists = st.lists(patterns, max_size=3).filter(
    lambda texts: not texts or not all(text.startswith("!") for text in texts)
)
documents = st.fixed_dictionaries(
    {"profiles": st.fixed_dictionaries({"p": profiles})},
    optional={
        "paths": st.fixed_dictionaries(
            {},
            optional=dict.fromkeys(LISTS, path_lists),
        ),
        "agents": st.just({"child": {"profile": "locked"}}),
    },
)
agents = st.builds(
    Agent,
    st.sampled_from(["main", "child"]),
    st.sampled_from(["p", "standard", "gone"]),
    permissions=st.sampled_from(
        [Permissions(), Permissions(write=("docs/**",)), Permissions(forbidden=("*.md",))]
    ),
)
chains = st.lists(agents, min_size=1, max_size=2).map(tuple)


def loaded(document: object) -> Policy:
    return load_policy(PolicySource("policy.json", json.dumps(document).encode()))


def entry_of(policy: Policy, chain: tuple[Agent, ...], asked: list[Action]) -> Entry:
    """What the dispatcher records of such a call."""
    decision = decide(policy, chain, asked, writer_of(asked))
    recorder = Recorder(Caller(chain, "SES-1"))
    call, tool = ToolCall("CALL-1", "view", {}), VIEW
    plan = SimpleNamespace(actions=tuple(asked))
    said = [str(action) for action in asked]
    entry = recorder.intent(Prepared(call, tool, plan, {}, {}, said, Judged(decision), FREE))
    # As it comes back from a line: only what JSON has.
    return entry._replace(metadata=json.loads(json.dumps(dict(entry.metadata))))


@given(documents, chains, calls)
def test_a_recorded_call_is_decided_by_the_same_policy_as_it_was(document, chain, asked):
    policy = loaded(document)
    past = read_recorded(1, "2026-01-31T00:00:00.000000Z", entry_of(policy, chain, asked))
    assert isinstance(past, PastDecision)
    # The arguments of a call are on record beside its actions.
    assert past.actions == tuple(
        each._replace(arguments="{}") if each.category == "mcp" else each for each in asked
    )
    report = replay([past], OnePolicy(policy))
    assert (report.decided, report.unchanged, report.lost_calls) == (1, 1, 0)


@given(documents, documents, chains, calls)
def test_a_recorded_call_is_decided_by_another_policy_as_that_one_decides(
    before, after, chain, asked
):
    old, new = loaded(before), loaded(after)
    past = read_recorded(1, "2026-01-31T00:00:00.000000Z", entry_of(old, chain, asked))
    assert isinstance(past, PastDecision)
    wanted = decide(new, chain, asked, writer_of(asked)).outcome
    assert decide_again(new, past).outcome is wanted
    report = replay([past], OnePolicy(new))
    changed = wanted is not past.outcome
    counts = (report.decided, len(report.groups), report.decided - report.unchanged)
    assert counts == (1, int(changed), int(changed))


@settings(max_examples=12)
@given(documents, documents, calls)
def test_each_witness_is_really_decided_differently_and_alike_is_really_alike(first, second, asked):
    old, new = loaded(first), loaded(second)
    below = partial(chain_below, "p")
    report = diff(old, new, below)
    for witness in report.witnesses:
        kind, _, name = witness.agents[0].partition(" ")
        chain = below(name) if kind == "agent" else (Agent("example-agent", name),)
        before, after = (decide(each, chain, [witness.action]) for each in (old, new))
        assert (before.outcome, bool(before.warnings)) != (after.outcome, bool(after.warnings))
        assert (before, after) == (witness.old, witness.new)
    if not report.differences.can_decide:
        chain = (Agent("main", "p"),)
        writer = writer_of(asked)
        assert (
            decide(old, chain, asked, writer).outcome is decide(new, chain, asked, writer).outcome
        )


@given(targets, st.sampled_from(["create", "view"]), st.sampled_from(["deny", "ask"]))
def test_one_stricter_rule_is_found_where_it_changes_an_answer(target, operation, word):
    own = {"allow": ["tool:file:*"]}
    stricter = {**own, word: [f"tool:file:{operation} {target}"]}
    paths = dict.fromkeys(LISTS, ())
    old, new = (loaded({"paths": paths, "profiles": {"p": each}}) for each in (own, stricter))
    found = {
        (each.old.outcome, each.new.outcome)
        for each in diff(old, new, partial(chain_below, "p")).witnesses
    }
    assert (Outcome.ALLOW, Outcome.parse(word)) in found
