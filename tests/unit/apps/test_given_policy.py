"""A policy, an agent and questions of the program itself, beside the project's."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import paddock
from paddock.errors import ApprovalUnavailableError, PermissionDeniedError, ProtectedPathError
from paddock.ledger.query import Filter, query
from paddock.policy.decide import combine_policies, decide, shell_for
from paddock.policy.rules import parse_action
from paddock.values.calls import Json
from paddock.values.decisions import Agent
from tests.support.places import Place, program_place, tree

READER = """
[profiles.reader]
allow = ["tool:file:view", "tool:search:*", "tool:own:*"]
"""
STANDARD = '[profiles.standard]\nextends = "standard"\n'


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with program_place(monkeypatch) as made:
        yield made


def govern(place: Place, text: str, *, trusted: bool = True) -> None:
    (place.project / "paddock.toml").write_text(text)
    assert not trusted or place.run("trust", "--yes").status == 0


def governance(place: Place, event: str) -> list[dict[str, Json]]:
    path = place.run("where", "--json").json["ledgers"]["governance"]
    return [dict(row.entry.metadata) for row in query(path, Filter(event)).entries]


# Both at once

MAKE = 'allow = ["tool:shell:run make *", "tool:own:a"]\ndeny = ["tool:own:b"]\n'
TEXTS = [
    f"{STANDARD}{MAKE}",
    f'{STANDARD}deny = ["tool:own:a", "tool:file:create docs/**"]',
    '[paths]\nprotected = ["/a"]\nsafe = ["docs/**"]\n[shell]\nnetwork = "none"',
    '[paths]\nprotected = []\nsecret = []\n[shell]\nnetwork = "host"\ngit = "none"',
    f"{READER}[agents]\nmain = {{ profile = 'reader' }}",
    f"{STANDARD}shell = {{ network = 'host', commit = 'none' }}",
    "[limits]\nview_bytes_max = 100",
]
ACTIONS = [
    *("tool:file:view a", "tool:file:create a", "tool:file:create docs/x", "tool:file:view .env"),
    *("tool:file:create .git/config", "tool:shell:run make x", "tool:shell:run make x > a"),
    *("tool:own:a", "tool:own:b", "tool:own:c", "tool:search:grep", "tool:net:connect a.b:443"),
]


@pytest.mark.parametrize("one", TEXTS)
@pytest.mark.parametrize("other", TEXTS)
@pytest.mark.parametrize("profile", ["standard", "locked", "nobody's"])
def test_of_two_policies_the_stricter_answer_counts(one, other, profile):
    here, given = paddock.Policy.parse(one), paddock.Policy.parse(other)
    both, chain = combine_policies(here, given), (Agent("main", profile),)
    for text in ACTIONS:
        action = parse_action(text)
        answers = [decide(each, chain, [action]) for each in (here, given, both)]
        assert answers[2].outcome is max(answers[0].outcome, answers[1].outcome), text
        assert answers[2].policy_digest == both.digest
    shells = [shell_for(each, chain) for each in (here, given, both)]
    networks = ("none", "policy", "host")
    assert shells[2].network == min((each.network for each in shells[:2]), key=networks.index)
    assert both.settings.limits.view_bytes_max == min(
        each.settings.limits.view_bytes_max for each in (here, given)
    )
    assert combine_policies(here, given).digest == both.digest
    assert (both.digest == combine_policies(given, here).digest) is (one == other)


def test_a_profile_that_one_of_them_has_is_beside_the_standard_one_of_the_other():
    here = paddock.Policy.parse(f'{STANDARD}deny = ["tool:own:b"]')
    chain = (Agent("bot", "reader"),)
    for both in (
        combine_policies(here, paddock.Policy.parse(READER)),
        combine_policies(paddock.Policy.parse(READER), here),
    ):
        outcomes = {
            text: decide(both, chain, [parse_action(text)]).outcome.word
            for text in ("tool:file:view a", "tool:file:create a", "tool:own:a", "tool:own:b")
        }
        assert outcomes == {
            "tool:file:view a": "allow",
            "tool:file:create a": "deny",
            "tool:own:a": "ask",
            "tool:own:b": "deny",
        }


# Opening with one


def own(word: str) -> str:
    """Say it again."""
    return word


def test_without_a_policy_of_the_project_it_holds_over_what_is_built_in(place):
    policy = paddock.Policy.parse(f'{STANDARD}allow = ["tool:own:own"]')
    with paddock.open(place.project) as opened:
        opened.tools.add(own)
        assert opened.call("own", {"word": "a"}).refusal.code == "approval.unavailable"
    with paddock.open(place.project, policy=policy) as opened:
        opened.tools.add(own)
        assert opened.call("own", {"word": "a"}).content == "a"
        with pytest.raises(ProtectedPathError):
            opened.create_file(".git/config", "x")


def test_a_trusted_policy_of_the_project_stays_as_strict(place):
    govern(place, f'{STANDARD}deny = ["tool:own:own"]\nallow = ["tool:own:other"]')
    given = place.base / "given.toml"
    given.write_text(f'{STANDARD}allow = ["tool:own:own"]\ndeny = ["tool:own:third"]')
    with paddock.open(place.project, policy=given) as opened:
        for name in ("own", "other", "third"):
            opened.tools.add(own, name=name)
        codes = {
            name: refusal and refusal.code
            for name in ("own", "other", "third")
            for refusal in [opened.call(name, {"word": "a"}).refusal]
        }
        assert opened.create_file("a.md", "x").status == "ok"
    # The program says nothing of the second, which its `standard` then asks about.
    assert codes == {
        "own": "policy.denied",
        "other": "approval.unavailable",
        "third": "policy.denied",
    }


def test_an_untrusted_policy_of_the_project_tightens_it(place):
    govern(place, f'{STANDARD}allow = ["tool:own:other"]\ndeny = ["tool:own:own"]', trusted=False)
    policy = paddock.Policy.parse(f'{STANDARD}allow = ["tool:own:own", "tool:own:third"]')
    with paddock.open(place.project, policy=policy) as opened:
        for name in ("own", "third"):
            opened.tools.add(own, name=name)
        assert opened.call("own", {"word": "a"}).refusal.code == "policy.denied"
        # What the file does not say, it leaves as it is.
        assert opened.call("third", {"word": "a"}).status == "ok"


def test_what_it_refuses_names_its_file_and_line(place):
    given = place.base / "given.toml"
    given.write_text('[paths]\nprotected = ["/locked/**"]\n')
    with paddock.open(place.project, policy=given) as opened:
        refused = opened.call("create_file", {"path": "locked/a", "content": "x"}).refusal
        assert opened.create_file("open/a", "x").status == "ok"
    assert refused.rule == {"text": "/locked/**", "file": "given.toml", "line": 2}
    assert not (place.project / "locked").exists()


def test_it_is_on_record_once_as_long_as_it_stays_the_same(place):
    one, other = (paddock.Policy.parse(f"{STANDARD}# {n}") for n in (1, 2))
    digests: list[str] = []
    for policy in (one, one, other, None, other):
        with paddock.open(place.project, policy=policy) as opened:
            digests.append(str(opened.view("README.md").call_id))
    rows = governance(place, "POLICY_GIVEN")
    assert [row["program"]["path"] for row in rows] == ["(policy of the program)"] * 2
    assert [row["policy_digest"] for row in rows] == [one.digest, other.digest]
    assert len(governance(place, "POLICY_LOADED")) == 1


def test_no_agent_changes_the_file_that_governs_it(place):
    (place.project / "conf").mkdir()
    given = place.project / "conf" / "given.toml"
    given.write_text(STANDARD)
    with paddock.open(place.project, policy=given) as opened:
        with pytest.raises(ProtectedPathError):
            opened.create_file("conf/given.toml", "[paths]\nprotected = []\n")
        assert opened.create_file("conf/other.toml", "x").status == "ok"
        assert opened.view("conf/given.toml").status == "ok"
    assert given.read_text() == STANDARD
    with paddock.open(place.project) as opened:
        assert opened.create_file("conf/given.toml", "x").status == "ok"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (None, paddock.UsageError, "given.toml' not found"),
        ("[profiles", paddock.ConfigError, "given.toml:1"),
        ("[paths]\nprotcted = []\n", paddock.ConfigError, "protcted"),
        ('[profiles.a]\nallow = ["tool:fiel:view"]\n', paddock.ConfigError, "fiel"),
    ],
)
def test_one_that_does_not_load_stops_the_opening(place, text, error, said):
    given = place.base / "given.toml"
    if text is not None:
        given.write_text(text)
    with pytest.raises(error) as raised:
        paddock.open(place.project, policy=given)
    assert said in raised.value.render()
    with paddock.open(place.project) as opened:
        assert opened.view("README.md").status == "ok"


def test_what_is_asked_about_under_it_is_not_kept_for_somebody_who_does_not_know_it(place):
    policy = paddock.Policy.parse(f'{STANDARD}ask = ["tool:file:delete"]')
    with (
        paddock.open(place.project, policy=policy) as opened,
        pytest.raises(ApprovalUnavailableError),
    ):
        opened.delete_file("README.md")
    assert place.run("approvals", "list", "--json").json == []
    with paddock.open(place.project, policy=policy, approver=lambda _: True) as opened:
        opened.delete_file("README.md")
    assert not (place.project / "README.md").exists()


# An agent


def test_an_agent_of_the_program_works_in_the_project_and_is_declared_nowhere(place):
    spec = paddock.AgentSpec("bot", "locked")
    with paddock.open(place.project, agent=spec) as opened:
        assert opened.view("README.md").status == "ok"
        with pytest.raises(PermissionDeniedError):
            opened.create_file("a.md", "x")
        assert "create_file" not in [tool.name for tool in opened.tools.list_all()]
    with pytest.raises(paddock.UsageError, match="no agent is named 'bot'"):
        paddock.open(place.project, agent="bot")
    (row,) = governance(place, "AGENT_CHANGED")
    assert (row["profile"], row["workspace"]) == ("locked", str(place.project))


def test_what_an_agent_of_the_program_did_is_undone_as_any_other_call(place):
    with paddock.open(place.project, agent=paddock.AgentSpec("bot")) as opened:
        made = opened.create_file("a.md", "x").call_id
        opened.create_file("b.md", "x")
    undone = place.run("undo", made)
    assert (undone.status, undone.err) == (0, "")
    assert [(place.project / name).exists() for name in ("a.md", "b.md")] == [False, True]


def test_what_it_did_elsewhere_is_not_undone_in_the_project(place):
    elsewhere = place.base / "elsewhere"
    elsewhere.mkdir()
    spec = paddock.AgentSpec("bot", workspace=elsewhere)
    with paddock.open(place.project, agent=spec) as opened:
        made = opened.create_file("README.md", "x").call_id
    assert place.run("undo", made).status != 0
    assert (place.project / "README.md").read_text().startswith("# Widgets")


def test_an_agent_of_the_program_has_its_own_permissions_and_never_exceeds_its_parent(place):
    narrow = paddock.Permissions(write=("docs/**",), forbidden=("src/**",))
    spec = paddock.AgentSpec("bot", "standard", permissions=narrow)
    with paddock.open(place.project, agent=spec) as opened:
        assert opened.create_file("docs/a.md", "x").status == "ok"
        for act in (lambda: opened.create_file("b.md", "x"), lambda: opened.view("src/a.py")):
            with pytest.raises(PermissionDeniedError):
                act()
    govern(place, '[profiles.standard]\nallow = ["tool:file:view"]\n')
    child = paddock.AgentSpec("child", "open", parent="main")
    with paddock.open(place.project, agent=child) as opened:
        assert opened.view("README.md").status == "ok"
        with pytest.raises(PermissionDeniedError):
            opened.create_file("c.md", "x")


@pytest.mark.parametrize(
    ("spec", "error", "said"),
    [
        (paddock.AgentSpec("main"), paddock.UsageError, "an agent named 'main' exists already"),
        (paddock.AgentSpec("No Name"), paddock.UsageError, "not an agent's name"),
        (paddock.AgentSpec("a", ""), paddock.UsageError, "not a profile's name"),
        (paddock.AgentSpec("a", parent="b"), paddock.UsageError, "no agent is named 'b'"),
        (paddock.AgentSpec("a", toolsets=("core",)), paddock.UsageError, "never declared"),
        (paddock.AgentSpec("a", workspace=Path("/nowhere")), paddock.UsageError, "nowhere"),
    ],
)
def test_an_agent_that_cannot_be_is_refused(place, spec, error, said):
    place.run("where")
    with paddock.open(place.project):
        pass
    with pytest.raises(error, match=said):
        paddock.open(place.project, agent=spec)


def test_a_profile_that_nobody_has_is_locked(place):
    with paddock.open(place.project, agent=paddock.AgentSpec("bot", "nope")) as opened:
        assert opened.view("README.md").status == "ok"
        with pytest.raises(PermissionDeniedError):
            opened.create_file("a.md", "x")


# Notices

BESIDE = "also judges the agent 'bot', and the stricter answer counts"


@pytest.mark.parametrize("owner", ["project", "user"])
def test_a_profile_that_only_the_program_has_is_a_notice(place, owner):
    if owner == "project":
        govern(place, STANDARD)
    else:
        config = place.environment.user_config
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(STANDARD)
    agent = paddock.AgentSpec("bot", profile="reader")
    with paddock.open(place.project, policy=paddock.Policy.parse(READER), agent=agent) as opened:
        opened.tools.add(own)
        said = f"the policy of the {owner} has no profile 'reader', so its 'standard' {BESIDE}"
        assert opened.notices == (said,)
        assert opened.call("own", {"word": "a"}).refusal.code == "approval.unavailable"


def test_a_profile_that_only_the_project_has_is_a_notice(place):
    govern(place, READER)
    agent = paddock.AgentSpec("bot", profile="reader")
    with paddock.open(place.project, policy=paddock.Policy.parse(STANDARD), agent=agent) as opened:
        said = (
            f"the policy given by the program has no profile 'reader', so its 'standard' {BESIDE}"
        )
        assert opened.notices == (said,)


@pytest.mark.parametrize("text", ["", STANDARD])
def test_a_profile_that_both_have_is_not_a_notice(place, text):
    if text:
        govern(place, text + READER)
    agent = paddock.AgentSpec("bot", profile="reader")
    with paddock.open(place.project, policy=paddock.Policy.parse(READER), agent=agent) as opened:
        opened.tools.add(own)
        assert opened.notices == ()
        assert opened.call("own", {"word": "a"}).content == "a"


@pytest.mark.parametrize("policy", [None, paddock.Policy.parse(READER)])
def test_a_profile_that_nobody_has_is_a_notice_and_locks_the_agent(place, policy):
    govern(place, STANDARD)
    agent = paddock.AgentSpec("bot", profile="nope")
    with paddock.open(place.project, policy=policy, agent=agent) as opened:
        assert opened.notices == (
            "no policy has a profile 'nope', so 'locked' judges the agent 'bot'",
        )
        assert (
            opened.call("create_file", {"path": "a", "content": ""}).refusal.code == "policy.denied"
        )
    assert not (place.project / "a").exists()


@pytest.mark.parametrize("policy", [None, paddock.Policy.parse(STANDARD)])
def test_the_hint_for_an_agent_of_the_program_names_the_call_which_can_be_explained(place, policy):
    agent = paddock.AgentSpec("bot", profile="locked")
    with paddock.open(place.project, policy=policy, agent=agent) as opened:
        refused = opened.call("create_file", {"path": "a", "content": ""})
    assert refused.refusal.hint.endswith(f": paddock policy explain {refused.call_id}")
    explained = place.run("policy", "explain", refused.call_id)
    assert explained.status == 0
    assert "tool:file:create a" in explained.out


# Questions


def test_check_decides_as_the_call_would_be_decided_and_makes_nothing(place):
    before = tree(place.base)
    given = paddock.Policy.parse('[paths]\nprotected = ["/a"]\n')
    allowed = paddock.check("tool:file:create a", place.project)
    denied = paddock.check("tool:file:create a", place.project, policy=given)
    assert (allowed.outcome.word, denied.outcome.word) == ("allow", "deny")
    assert (denied.rule.text, denied.rule.place) == ("/a", "(policy of the program):2")
    assert paddock.check(paddock.Action("file", "view", ".env"), place.project).code
    assert tree(place.base) == before
    with pytest.raises(paddock.UsageError, match="names the unknown operation"):
        paddock.check("tool:file:craete a", place.project)
    with pytest.raises(paddock.UsageError, match="no agent is named 'x'"):
        paddock.check("tool:file:view a", place.project, agent="x")


def test_check_says_of_a_command_what_it_comes_to_here(place):
    decision = paddock.check("tool:shell:run make", place.project)
    assert decision.outcome is paddock.Outcome.CONFINE
    assert decision.enforcement in {"full", "partial", "none"}


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("file", "create", "docs/a.md"), "tool:file:create docs/a.md"),
        (("file", "view"), "tool:file:view ."),
        (("file", "view", "./a//b"), "tool:file:view a/b"),
        (("shell", "run", "make -j 2"), "tool:shell:run make -j 2"),
        (("own", "weather"), "tool:own:weather"),
        (("net", "connect", "example.com:443"), "tool:net:connect example.com:443"),
    ],
)
def test_an_action_is_written_as_rules_have_it(parts, text):
    assert paddock.format_action(*parts) == text
    assert str(parse_action(text)) == text


@pytest.mark.parametrize(
    "parts",
    [
        ("fiel", "view", "a"),
        ("file", "wiew", "a"),
        ("file", "view", "../a"),
        ("file", "view", "/a"),
        ("file", "view", " a"),
        ("own", "weather", "Oslo"),
        ("client", "Bash"),
    ],
)
def test_what_no_call_has_is_not_written(parts):
    with pytest.raises(paddock.UsageError):
        paddock.format_action(*parts)


# Notices


def test_a_policy_that_is_not_trusted_is_said_at_each_opening(place, logged):
    govern(place, '[paths]\nprotected = ["/a"]\n', trusted=False)
    for _ in range(2):
        with paddock.open(place.project) as opened:
            (said, *_) = opened.notices
            assert said.startswith("paddock.toml is not trusted")
            opened.view("README.md")
    assert logged == []


def test_what_nobody_reads_is_logged_once(place, logged):
    govern(place, '[paths]\nprotected = ["/a"]\n', trusted=False)
    with paddock.open(place.project) as opened:
        assert logged == []
        for _ in range(2):
            opened.view("README.md")
        (said,) = logged
        assert opened.notices[0] in said
    govern(place, '[paths]\nprotected = ["/b"]\n')
    logged.clear()
    with paddock.open(place.project) as opened:
        opened.view("README.md")
    assert logged == []


def test_tracked_secrets_are_said_where_an_agent_has_commands(place):
    os.rename(place.project / ".git", place.base / "empty")
    done = place.project
    for arguments in (["init", "-q"], ["add", "-f", ".env", "README.md"]):
        assert os.spawnvp(os.P_WAIT, "git", ["git", "-C", str(done), *arguments]) == 0
    with paddock.open(place.project) as opened:
        said = [each for each in opened.notices if "tracked file is secret: '.env'" in each]
        assert len(said) == 1
    with paddock.open(place.project, agent=paddock.AgentSpec("bot", "locked")) as opened:
        assert opened.notices == ()
