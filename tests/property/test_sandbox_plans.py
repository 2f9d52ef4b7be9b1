"""A child's plan is within its parent's, whatever both are given; judging is total."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.settings import COMMITS, ENFORCEMENTS, NETWORKS, Git
from paddock.sandbox.changes.differences import ChangeKind, CommandChange
from paddock.sandbox.changes.judgement import JudgeContext, judge_changes
from paddock.sandbox.git.rules import SPECIAL_KINDS, GitChange, GitDirectory, NodeKind, judge_git
from paddock.sandbox.host.host_facts import (
    Closed,
    HostFacts,
    HostListing,
    ResolvedPath,
    Toolchain,
    is_covered,
    shared,
    topmost,
)
from paddock.sandbox.plan import Closing, ReadJudge, WriteJudge, compile_plan
from paddock.values.decisions import Agent, Outcome, Permissions

PLACES = (
    "/usr",
    "/usr/bin",
    "/usr/local",
    "/usr/local/plane",
    "/usr/local/plane/x",
    "/etc",
    "/etc/ssl",
    "/home",
    "/home/u",
    "/home/u/.ssh",
    "/home/u/data",
    "/work",
    "/work/ws",
    "/work/ws/out",
    "/var/cache",
    "/",
)
places = st.lists(st.sampled_from(PLACES), max_size=5)


@st.composite
def shells(draw, name):
    lists = {key: draw(places) for key in ("read", "write") if draw(st.booleans())}
    words = {
        "network": draw(st.sampled_from(NETWORKS)),
        "git": draw(st.sampled_from(get_args(Git))),
        "commit": draw(st.sampled_from(COMMITS)),
        "enforcement": draw(st.sampled_from(ENFORCEMENTS)),
    }
    numbers = [draw(st.integers(1, 9)) for _ in range(4)]
    lines = [f"[profiles.{name}]", 'allow = ["tool:*"]', f"[profiles.{name}.shell]"]
    lines += [f'{key} = "{value}"' for key, value in words.items() if draw(st.booleans())]
    lines += [f"{key} = {value}" for key, value in lists.items()]
    if draw(st.booleans()):
        keys = ("processes", "memory_mb", "file_mb", "cpu_s")
        limits = ", ".join(f"{key} = {value}" for key, value in zip(keys, numbers, strict=True))
        lines.append(f"limits = {{ {limits} }}")
    return "\n".join(lines)


FACTS = HostFacts(
    workspace="/work/ws",
    home="/home/u",
    existing=tuple(ResolvedPath(path, path) for path in PLACES),
    search_path=tuple(ResolvedPath(path, path) for path in PLACES),
    toolchains=(Toolchain("python", ("/home/u/data/python",)), Toolchain("x", ("/home/u/.ssh/x",))),
    closed=(Closed("/usr/local/plane", "the plane"),),
    listings=(HostListing("/usr", ("bin", "local")), HostListing("/usr/local", ("plane", "lib"))),
)


def names(files) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(files), min_size=1, max_size=4).map("/".join)


@given(shells("one"), shells("two"), st.booleans())
def test_a_childs_plan_is_within_its_parents(one, two, is_bound):
    bound = '[agents.child]\nprofile = "two"\n' if is_bound else ""
    policy = load_policy(PolicySource("paddock.toml", f"{one}\n{two}\n{bound}".encode()))
    parent = Agent("parent", "two")
    child = Agent("child", "one", parent="parent")
    above = compile_plan(policy, (parent,), FACTS).plan
    below = compile_plan(policy, (child, parent), FACTS).plan
    assert all(is_covered(path, (*above.readable, *above.writable)) for path in below.readable)
    assert all(is_covered(path, above.writable) for path in below.writable)
    assert NETWORKS.index(below.network) <= NETWORKS.index(above.network)
    assert below.git in {"read-only", above.git}
    assert COMMITS.index(below.commit) >= COMMITS.index(above.commit)
    assert ENFORCEMENTS.index(below.enforcement) <= ENFORCEMENTS.index(above.enforcement)
    # Of processor time 0 is no limit.
    assert below.limits == below.limits.stricter(above.limits)
    assert set(dict(below.environment)) <= set(dict(above.environment))


@given(shells("one"))
def test_no_plan_shows_the_home_the_plane_the_workspace_or_a_secret_place(one):
    policy = load_policy(PolicySource("paddock.toml", one.encode()))
    plan = compile_plan(policy, (Agent("main", "one"),), FACTS).plan
    for closed in ("/home/u", "/usr/local/plane", "/work/ws"):
        for place in (*plan.readable, *plan.writable):
            assert not is_covered(closed, (place,)), (closed, place)
            assert closed == "/home/u" or not is_covered(place, (closed,)), (closed, place)
    assert list(plan.readable) == sorted(plan.readable)
    assert plan.readable == topmost(plan.readable)
    assert plan.writable == topmost(plan.writable)


@given(places, places, st.sampled_from(PLACES))
def test_what_two_sets_share_is_in_both(first, second, path):
    both = shared(first, second)
    assert is_covered(path, both) == (is_covered(path, first) and is_covered(path, second))


FILES = ("src", "a.py", ".env", "x.key", "b", ".git", "hooks", "HEAD", "refs", "docs")
texts = st.lists(st.sampled_from(("src/**", "/docs/", "*.py", "**", "a.py")), max_size=2).map(tuple)


@given(names(FILES), texts, texts, texts)
def test_what_a_child_reads_and_writes_its_parent_may_too(path, read, write, forbidden):
    policy = load_policy(None)
    parent = Agent("parent", "standard", permissions=Permissions(read, write, forbidden))
    child = Agent("child", "open", parent="parent")
    for judge in (ReadJudge, WriteJudge):
        above = judge(policy, (parent,)).judge(path, is_directory=False)
        below = judge(policy, (child, parent)).judge(path, is_directory=False)
        assert above is Closing.OPEN or below is not Closing.OPEN


any_names = st.one_of(names(FILES), st.text(min_size=1, max_size=12))
changes = st.builds(
    CommandChange,
    any_names,
    st.sampled_from(ChangeKind),
    st.sampled_from(NodeKind),
    mode=st.integers(0, 0o7777),
    link_text=st.text(max_size=8),
    content=st.one_of(st.none(), st.binary(max_size=60)),
)


@given(st.lists(changes, max_size=6), st.sampled_from(get_args(Git)))
def test_every_change_has_an_answer_in_its_place(given_changes, git):
    bench = JudgeContext(load_policy(None), (Agent("main", "standard"),), git, "/work/ws")
    said = judge_changes(bench, given_changes)
    assert [each.change.path for each in said] == [each.path for each in given_changes]
    for each in said:
        assert each.lands or each.outcome is Outcome.ASK or each.reason
        if each.lands and each.change.kind is not ChangeKind.DELETED:
            assert each.change.node not in SPECIAL_KINDS
            assert each.change.node is not NodeKind.FILE or not each.change.mode & 0o6000


@given(names((*FILES, "config", "objects", "info", "modules", "logs", "..", "pre-commit")))
def test_no_spelling_of_a_name_commits_configuration_or_a_hook(name):
    if not {"config", "hooks", "info"} & set(name.split("/")[-1:] + name.split("/")[:1]):
        return
    known = GitDirectory(".git", frozenset({"modules/src"}))
    said = judge_git(GitChange(name, NodeKind.FILE, content=b"[core]\n"), known, "safe")
    assert not said.is_allowed
