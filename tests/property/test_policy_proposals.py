"""What `policy explain` proposes, done as it is told, gives the outcome that it says."""

import json
import re
from copy import deepcopy

from hypothesis import event, example, given
from hypothesis import strategies as st
from msgspec import Struct

from paddock.errors import ConfigError
from paddock.policy.decide import decide
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.presets import built_in_paths
from paddock.policy.questions.explain import explain
from paddock.values.decisions import Action, Agent, Outcome, Permissions

FILES = {"allow": ["tool:file:*"]}
PROJECT, USER = "paddock.json", "config.json"

names = st.sampled_from([".env", "a", "x.key", "docs", "sub", ".git", "yarn.lock"])
paths = st.one_of(
    st.sampled_from([".env.key", "sub/a", "docs/a", "a"]),
    st.lists(names, min_size=1, max_size=2).map("/".join),
)
globs = st.one_of(
    paths, st.sampled_from([".env*", "*.key", "docs/", "docs/**", "/docs/*", "**", "sub/", "a*"])
)
lines = st.sampled_from(
    [
        "ls", "ls *.key", "ls; git push", "git push", "git push > docs/a", "> .env.key", "> docs/a",
        "ls > ../a", "ls $x", "git push; ls a* > a", "sh -c 'git push'",
    ]
)  # fmt: skip
actions = st.one_of(
    st.builds(Action, st.just("file"), st.sampled_from(["create", "view", "delete"]), paths),
    st.builds(Action, st.just("search"), st.sampled_from(["grep", "ls"]), paths | st.just(".")),
    st.builds(Action, st.just("shell"), st.just("run"), lines),
    st.sampled_from([Action("mcp", "call", "mcp__a__b"), Action("client", "Agent")]),
)
rules = st.one_of(
    st.builds(
        lambda head, glob: f"tool:{head} {glob}",
        st.sampled_from(["file:*", "file:create", "file:view", "search:*"]),
        globs,
    ),
    st.sampled_from(
        [
            "tool:*", "tool:file:*", "tool:search:*", "tool:shell:*", "tool:shell:run ls *",
            "tool:shell:run git *", "tool:shell:run git push", "tool:mcp:*", "tool:client:Agent",
        ]
    ),
)  # fmt: skip
words = st.sampled_from(["allow", "ask", "deny"])
profiles = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("allow", "ask", "deny"), st.lists(rules, max_size=3)),
        "rules": st.lists(st.fixed_dictionaries({"action": rules, "outcome": words}), max_size=1),
        "otherwise": st.dictionaries(st.sampled_from(["tool:*", "tool:shell:*"]), words),
    },
)
lists = st.tuples(
    st.lists(globs, max_size=2), st.lists(globs.map(lambda glob: f"!{glob}"), max_size=1)
).map(lambda both: both[0] and [*both[0], *both[1]])
documents = st.fixed_dictionaries(
    {},
    optional={
        "paths": st.fixed_dictionaries(
            {}, optional=dict.fromkeys(("protected", "generated", "secret"), lists)
        ),
        "profiles": st.dictionaries(st.sampled_from(["standard", "open", "own"]), profiles),
        "agents": st.just({"main": {"profile": "locked"}}),
    },
)
agents = st.builds(
    Agent,
    st.sampled_from(["main", "child"]),
    st.sampled_from(["standard", "open", "own", "locked"]),
    permissions=st.sampled_from([Permissions()] * 4 + [Permissions(forbidden=("docs/",))]),
)


class Files(Struct, dict=True):
    """The files of a policy as values, and whether the project's is trusted."""

    project: dict | None
    user: dict | None
    is_trusted: bool

    def load(self) -> Policy:
        def source(name: str, document: dict | None, *, trusted: bool = True):
            text = None if document is None else json.dumps(document).encode()
            return None if text is None else PolicySource(name, text, trusted)

        project = source(PROJECT, self.project, trusted=self.is_trusted)
        return load_policy(project, source(USER, self.user), planes_below=("sub",))

    def named(self, name: str) -> dict:
        if name == USER:
            assert self.user is not None
            return self.user
        assert name in (PROJECT, "paddock.toml")
        self.project = self.project or {}
        return self.project

    def holding(self, profile: str) -> dict:
        """The file whose profile of that name holds once both are trusted."""
        return next(
            each
            for each in (self.project, self.user)
            if each is not None and profile in each.get("profiles", {})
        )


# --- doing what is told -------------------------------------------------------------

TRUST = re.compile(r"; then trust \S+: paddock trust$")
TEXTS = r'("[^"]*"(?:, "[^"]*")*)'
LIFT = r"no rule can lift it, since \w+ overrides every profile: "
TAKEN = re.compile(rf"{LIFT}remove {TEXTS} from \[paths\] (\w+), ([^:,]+).*")
GIVEN = re.compile(rf"{LIFT}give (\w+) under \[paths\] in (\S+), without {TEXTS}")
EXTENDED = re.compile(r", in (\S+), with `extends = \"(\w+)\"`: .*")
REMOVED = re.compile(r'remove ("[^"]*") from profiles\.(\w+)\.(\w+), [^,]+')
ADDED = re.compile(
    rf"add `?(?:(\w+) = \[)?{TEXTS}(?: to the list (\w+) of |\]` to )\[profiles\.(\w+)\]"
)


def do(files: Files, text: str) -> None:
    """Edit the files as one proposal says, word for word."""
    if text.startswith("review "):
        files.is_trusted = True
        return
    if TRUST.search(text):
        files.is_trusted = True
        text = TRUST.sub("", text)
    text = text.removeprefix("and besides: ")
    if taken := TAKEN.fullmatch(text):
        gone, name, file = taken.groups()
        table = files.named(file)["paths"]
        table[name] = [each for each in table[name] if each not in json.loads(f"[{gone}]")]
    elif given := GIVEN.fullmatch(text):
        name, file, gone = given.groups()
        texts = [each.text for each in getattr(built_in_paths(), name)]
        kept = [each for each in texts if each not in json.loads(f"[{gone}]")]
        files.named(file).setdefault("paths", {})[name] = kept
    else:
        for of_profile in text.split("; "):
            edit_profile(files, of_profile)


def edit_profile(files: Files, text: str) -> None:
    if out := EXTENDED.search(text):
        table = files.named(out[1]).setdefault("profiles", {})
        assert out[2] not in table
        table[out[2]] = {"extends": out[2]}
    for gone, name, word in REMOVED.findall(text):
        profile = files.holding(name)["profiles"][name]
        rule = json.loads(gone)
        # Of the rules that say the same, only those that allow stay.
        profile[word] = [
            each
            for each in profile[word]
            if (each if word != "rules" else (each["outcome"] != "allow" and each["action"]))
            != rule
        ]
    for new, texts, old, name in ADDED.findall(text):
        profile = files.holding(name)["profiles"][name]
        assert (old in profile) if old else (new not in profile)
        profile.setdefault(new or old, []).extend(json.loads(f"[{texts}]"))


# --- laws ---------------------------------------------------------------------------


@given(
    project=st.none() | documents,
    user=st.none() | st.none() | documents,
    is_trusted=st.booleans(),
    chain=st.lists(agents, min_size=1, max_size=2).map(tuple),
    action=actions,
)
@example(
    project=None,
    user=None,
    is_trusted=True,
    chain=(Agent("main", "standard"),),
    action=Action("file", "create", ".env.key"),
)
@example(
    project={"agents": {"main": {"profile": "locked"}}, "profiles": {"locked": FILES}},
    user={"profiles": {"standard": {**FILES, "deny": ["tool:file:delete docs/**"]}}},
    is_trusted=False,
    chain=(Agent("main", "standard"),),
    action=Action("file", "delete", "docs/a"),
)
@example(
    project={"profiles": {"standard": {"allow": ["tool:*"]}}},
    user=None,
    is_trusted=False,
    chain=(Agent("main", "standard"),),
    action=Action("file", "create", "sub/a"),
)
@example(
    project={"profiles": {"standard": FILES}, "paths": {"secret": ["a*", "!b"]}},
    user=None,
    is_trusted=False,
    chain=(Agent("main", "standard"),),
    action=Action("file", "view", "a"),
)
def test_a_proposal_done_as_it_is_told_gives_the_outcome_that_it_says(
    project: dict | None,
    user: dict | None,
    is_trusted: bool,
    chain: tuple[Agent, ...],
    action: Action,
) -> None:
    files = Files(deepcopy(project), deepcopy(user), is_trusted or project is None)
    try:
        policy = files.load()
    except ConfigError:
        return
    before = decide(policy, chain, (action,)).outcome
    changes = explain(policy, chain, action).changes
    assert all(not change.was_tried for change in changes[:-1])
    if before is Outcome.ASK:
        assert changes
    if not changes or not changes[-1].was_tried:
        event("nothing is claimed")
        return
    event("a flip is claimed")
    for change in changes:
        do(files, change.text)
    after = decide(files.load(), chain, (action,)).outcome
    assert after is changes[-1].outcome
    assert after is not before
    assert (after > before) == (before is Outcome.ALLOW)
