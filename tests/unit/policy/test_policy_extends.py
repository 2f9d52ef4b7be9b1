"""A profile that extends others: all that they say, and never less of what they deny."""

import pytest

from paddock.errors import ConfigError
from paddock.policy.decide import decide, shell_for
from paddock.policy.engine import Policy, PolicySource, load_policy
from paddock.policy.rules import parse_action
from paddock.policy.settings import ShellSettings
from paddock.values.decisions import Agent, Outcome

BASES = """[profiles.base]
allow = ["tool:file:*", "tool:shell:run make *"]
deny = ["tool:file:create db/**"]
otherwise = { "tool:shell:*" = "ask", "tool:mcp:*" = "ask" }
[profiles.base.shell]
git = "read-only"
commit = "all"
[profiles.team]
ask = ["tool:file:delete"]
otherwise = { "tool:client:*" = "deny" }
[profiles.mine]
extends = ["base", "team"]
allow = ["tool:file:create db/mine", "tool:search:*"]
otherwise = { "tool:shell:*" = "confine" }
[profiles.mine.shell]
commit = "each"
"""
LIFTED = """[profiles.a]
otherwise = { "tool:mcp:*" = "deny" }
[profiles.b]
extends = "a"
otherwise = { "tool:mcp:*" = "ask" }
"""


def policy(text: str, *, user: str = "", trusted: bool = True) -> Policy:
    mine = PolicySource("config.toml", user.encode()) if user else None
    return load_policy(PolicySource("paddock.toml", text.encode(), trusted), mine)


def outcome(decided: Policy, profile: str, action: str) -> str:
    return decide(decided, (Agent("main", profile),), [parse_action(action)]).outcome.word


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("tool:file:view a", "allow"),
        ("tool:search:grep a", "allow"),
        ("tool:shell:run make all", "allow"),
        # What a base denies or asks stays so; its own entry of `otherwise` replaces the base's.
        ("tool:file:create db/mine", "deny"),
        ("tool:file:delete a", "ask"),
        ("tool:shell:run ls", "confine"),
        ("tool:mcp:call mcp__x__y", "ask"),
        ("tool:client:WebFetch", "deny"),
        ("tool:ledger:query ho1m", "deny"),
    ],
)
def test_lists_are_joined_and_tables_are_merged_key_by_key(action: str, wanted: str) -> None:
    assert outcome(policy(BASES), "mine", action) == wanted


def test_its_shell_is_merged_key_by_key() -> None:
    found = shell_for(policy(BASES), (Agent("main", "mine"),))
    assert found == ShellSettings(git="read-only", commit="each")


@pytest.mark.parametrize(
    ("text", "action", "wanted"),
    [
        ('extends = "standard"\ndeny = ["tool:shell:run git push *"]', "tool:file:view a", "allow"),
        (
            'extends = "standard"\ndeny = ["tool:shell:run git push *"]',
            "tool:shell:run ls",
            "confine",
        ),
        (
            'extends = "standard"\ndeny = ["tool:shell:run git push *"]',
            "tool:shell:run git push",
            "deny",
        ),
        ('extends = "readonly-commands"', "tool:file:view a", "deny"),
        ('deny = ["tool:shell:run git push *"]', "tool:file:view a", "deny"),
    ],
)
def test_a_profile_that_extends_its_own_name_extends_the_built_in_one(
    text: str, action: str, wanted: str
) -> None:
    assert outcome(policy(f"[profiles.standard]\n{text}"), "standard", action) == wanted


def test_what_the_users_configuration_says_of_that_name_is_extended() -> None:
    user = '[profiles.standard]\nextends = "standard"\ndeny = ["tool:file:delete"]'
    extended = policy('[profiles.standard]\nextends = "standard"', user=user)
    replaced = policy('[profiles.standard]\nallow = ["tool:file:*"]', user=user)
    assert outcome(extended, "standard", "tool:file:delete a") == "deny"
    assert outcome(extended, "standard", "tool:file:view a") == "allow"
    assert outcome(replaced, "standard", "tool:file:delete a") == "allow"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('[profiles.a]\nextends = "b"\n[profiles.b]\nextends = "a"', '"a" extends "b" extends "a"'),
        ('[profiles.a]\nextends = "nobody"', 'extends the unknown profile "nobody"'),
        ('[profiles.a]\nextends = "a"', 'extends the unknown profile "a"'),
        ("[profiles.a]\nextends = 1", "extends in [profiles.a] is 1, not an array of strings"),
        (LIFTED, '"tool:mcp:*" is denied in paddock.toml:2 and stays denied'),
    ],
)
@pytest.mark.parametrize("trusted", [True, False])
def test_a_circle_an_unknown_base_and_a_lifted_deny_do_not_load(
    text: str, said: str, trusted: bool
) -> None:
    with pytest.raises(ConfigError) as caught:
        policy(text, trusted=trusted)
    assert said in caught.value.message or _turned(said) in caught.value.message


def _turned(said: str) -> str:
    """A circle may be told from any of its profiles."""
    return said.translate(str.maketrans("ab", "ba")) if said.startswith('"a" extends') else said


def test_bases_of_bases_may_not_multiply_without_an_end() -> None:
    lists = ",".join(f'"tool:file:view f{number}"' for number in range(200))
    rows = [f"[profiles.p0]\nallow = [{lists}]"]
    rows += [f'[profiles.p{n}]\nextends = "p{n - 1}"' for n in range(1, 300)]
    with pytest.raises(ConfigError, match="rules and patterns are more than"):
        policy("\n".join(rows))


def test_an_untrusted_file_that_extends_opens_nothing_and_closes_what_it_denies() -> None:
    text = '[profiles.standard]\nextends = ["standard", "open"]\ndeny = ["tool:file:delete"]'
    cloned = policy(text, trusted=False)
    assert outcome(cloned, "standard", "tool:file:view a") == "allow"
    assert outcome(cloned, "standard", "tool:file:delete a") == "deny"
    assert outcome(cloned, "standard", "tool:shell:run make") == "confine"
    assert outcome(policy(text), "standard", "tool:shell:run make") == "allow"


@pytest.mark.parametrize(
    ("action", "wanted"),
    [
        ("tool:file:view src/a.py", "allow"),
        ("tool:search:grep src", "allow"),
        ("tool:output:write a.md", "allow"),
        ("tool:file:create agent_sandbox/notes/a.md", "allow"),
        ("tool:file:str_replace outputs/a.md", "allow"),
        ("tool:shell:run pytest -q", "confine"),
        ("tool:file:create src/a.py", "deny"),
        ("tool:file:create lib/agent_sandbox/a.py", "deny"),
        ("tool:file:delete src/a.py", "deny"),
        ("tool:file:view .env", "deny"),
        ("tool:shell:run pytest > src/log", "deny"),
        ("tool:mcp:call mcp__x__y", "ask"),
    ],
)
def test_a_reviewer_reads_runs_and_writes_its_drafts_alone(action: str, wanted: str) -> None:
    assert outcome(policy(""), "reviewer", action) == wanted


def test_of_a_chain_the_commit_that_keeps_least_counts() -> None:
    chain = (Agent("child", "standard", parent="main"), Agent("main", "reviewer"))
    assert shell_for(policy(""), chain).commit == "none"


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("git status", Outcome.ALLOW),
        ("git log --oneline -5", Outcome.ALLOW),
        ("rg -n needle src | sort | head -3", Outcome.ALLOW),
        ("find . -name '*.py'", Outcome.ALLOW),
        ("cat a.txt && wc -l a.txt", Outcome.ALLOW),
        ("git diff --output=x", Outcome.ASK),
        ("git push", Outcome.ASK),
        ("find . -delete", Outcome.ASK),
        ("find . -exec rm {} +", Outcome.ASK),
        ("sort -o a a", Outcome.ASK),
        ("rg --pre ./x needle", Outcome.ASK),
        ("uniq a b", Outcome.ASK),
        ("ls; rm a", Outcome.ASK),
        ("PATH=. ls", Outcome.ASK),
        ("./ls", Outcome.ASK),
    ],
)
def test_commands_that_only_read_are_no_question_and_their_writing_options_are(
    line: str, wanted: Outcome
) -> None:
    text = '[profiles.p]\nextends = "readonly-commands"\notherwise = { "tool:shell:*" = "ask" }'
    action = parse_action(f"tool:shell:run {line}")
    assert decide(policy(text), (Agent("main", "p"),), [action]).outcome is wanted
