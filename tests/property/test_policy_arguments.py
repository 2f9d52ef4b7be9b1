"""Laws of `when`: an allow never matches what it does not say, a deny holds what is not there."""

import json
import posixpath
import re
from math import isfinite

from hypothesis import example, given
from hypothesis import strategies as st

from paddock.policy.decide import decide
from paddock.policy.engine import PolicySource, load_policy
from paddock.values.decisions import Action, Agent, Outcome

MAIN = (Agent("main", "p"),)

texts = st.one_of(
    st.sampled_from(["docs/a", "docs/x/b", "DOCS/a", "src/a", "docs/../src/a", "docs/%2e%2e/a", "a"]),
    st.sampled_from(["docs", "docs/", "/docs/a", "docs\\a", "docs/a\0", "~/docs/a", "./docs/a", ""]),
    st.text(alphabet="dosc/.%2~\\*?", max_size=9),
)  # fmt: skip
numbers = st.one_of(
    st.integers(-3, 12), st.floats(width=16), st.sampled_from([10**400, 2**53 + 1, 1e308])
)
scalars = st.one_of(texts, numbers, st.booleans(), st.none())
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.dictionaries(st.sampled_from(["a", "0", "x"]), scalars, max_size=2),
    st.lists(st.lists(texts, max_size=2), max_size=2),
)
conditions = st.one_of(
    st.sampled_from(["docs/**", "/docs/*", "*.md", "a"]).map(lambda text: {"path": text}),
    st.sampled_from(["docs/*", "*a", "?", "d*/?", "*"]).map(lambda text: {"glob": text}),
    st.sampled_from([{"min": 0}, {"max": 10}, {"min": 0, "max": 10}, {"max": 0.5}]),
    st.sampled_from([{"in": ["a"]}, {"in": [1]}, {"in": [True]}, {"in": ["docs/a", 0, False]}]),
)
pointers = st.sampled_from(["one", "/one", "/two/a", "/two/0", "two"])
wholes = st.dictionaries(pointers, conditions, min_size=1, max_size=3).filter(
    lambda when: not {"one", "/one"} <= when.keys()
)
arguments = st.fixed_dictionaries({}, optional={"one": values, "two": values, "more": values})


def answer(outcome: str, when: object, given: object, only: bool = False) -> Outcome:
    rule = {"action": "tool:mcp:call s/t", "outcome": outcome, "when": when}
    if only:
        rule["only"] = True
    otherwise = {"tool:*": "deny" if outcome == "allow" else "allow"}
    profile = {"rules": [rule], "otherwise": otherwise}
    text = json.dumps({"profiles": {"p": profile}}).encode()
    policy = load_policy(PolicySource("p.json", text))
    return decide(policy, MAIN, [Action("mcp", "call", "s/t", json.dumps(given))]).outcome


def find(given, pointer):
    """An oracle of its own: a value, or nothing."""
    for step in pointer.removeprefix("/").split("/"):
        if isinstance(given, dict) and step in given:
            given = given[step]
        elif isinstance(given, list) and step == "0" and given:
            given = given[0]
        else:
            return None
    return given


def says(condition, value) -> bool:
    """Whether one value is, in every reading, what a condition says."""
    if "path" in condition:
        if not isinstance(value, str) or not value:
            return False
        is_one = posixpath.normpath(value) == value and not value.startswith(("/", "..", "~"))
        if not is_one or value == "." or re.search(r"%[0-9a-fA-F]{2}|\\|\0", value):
            return False
        pattern = condition["path"]
        if pattern == "docs/**":
            return value.startswith("docs/")
        if pattern == "/docs/*":
            return re.fullmatch(r"docs/[^/]+(/.*)?", value, re.DOTALL) is not None
        wanted = r".*\.md" if pattern == "*.md" else "a"
        return any(re.fullmatch(wanted, part, re.DOTALL) for part in value.split("/"))
    if "glob" in condition:
        said = re.escape(condition["glob"]).replace(r"\*", ".*").replace(r"\?", ".")
        return isinstance(value, str) and re.fullmatch(said, value, re.DOTALL) is not None
    if "in" in condition:
        return any(
            json.dumps(each) == json.dumps(value)
            or (is_number(each) and is_number(value) and each == value)
            for each in condition["in"]
        )
    return is_number(value) and condition.get("min", value) <= value <= condition.get("max", value)


def is_number(value) -> bool:
    is_one = isinstance(value, int | float) and not isinstance(value, bool)
    return is_one and (isinstance(value, int) or isfinite(value))


@given(wholes, arguments)
@example({"one": {"max": 10}}, {"one": 10**400})
@example({"one": {"in": [1]}}, {"one": True})
@example({"one": {"path": "docs/**"}}, {"one": []})
@example({"one": {"path": "docs/**"}}, {"one": ["docs/a", "src/a"]})
@example({"one": {"path": "docs/**"}}, {"one": "docs/../src/a"})
@example({"one": {"path": "docs/**"}}, {"one": "docs/%2e%2e/src/a"})
@example({"one": {"path": "docs/**"}}, {"one": "docs\\a"})
def test_an_allow_matches_exactly_what_its_conditions_say(when, given):
    def holds(value, condition) -> bool:
        values = value if isinstance(value, list) else [value]
        return values != [] and all(says(condition, each) for each in values)

    is_said = all(holds(find(given, name), condition) for name, condition in when.items())
    has_infinity = re.search(r"Infinity|NaN", json.dumps(given)) is not None
    wanted = Outcome.ALLOW if is_said and not has_infinity else Outcome.DENY
    assert answer("allow", when, given) is wanted


@given(wholes, arguments, st.sampled_from(["deny", "ask"]))
def test_a_deny_and_an_ask_hold_wherever_an_allow_of_the_same_words_would_match(
    when, given, outcome
):
    if answer("allow", when, given) is Outcome.ALLOW:
        assert answer(outcome, when, given) is Outcome.parse(outcome)


@given(wholes, arguments, st.sampled_from(["deny", "ask"]), st.data())
def test_a_deny_and_an_ask_hold_when_what_they_want_is_not_there(when, given, outcome, data):
    missing = dict(given)
    for name in when:
        missing.pop(name.removeprefix("/").split("/")[0], None)

    assert answer(outcome, when, missing) is Outcome.parse(outcome)
    # Of several that hold, taking any one away does not make it milder.
    if answer(outcome, when, given) is Outcome.parse(outcome) and given:
        gone = data.draw(st.sampled_from(sorted(given)))
        less = {name: value for name, value in given.items() if name != gone}
        assert answer(outcome, when, less) is Outcome.parse(outcome)


@given(wholes, arguments)
def test_only_allows_nothing_that_no_key_names(when, given):
    if answer("allow", when, given, only=True) is not Outcome.ALLOW:
        return
    assert answer("allow", when, given) is Outcome.ALLOW
    named = {name.removeprefix("/").split("/")[0] for name in when}
    assert given.keys() <= named
    for extra in ("more", "x"):
        assert answer("allow", when, {**given, extra: None}, only=True) is Outcome.DENY


@given(wholes, st.sampled_from(["", "{", '{"one": 1, "one": 2}', "[]", '{"one": NaN}', "null"]))
def test_arguments_that_two_readers_may_read_differently_are_not_there(when, text):
    for outcome, wanted in (("allow", Outcome.DENY), ("deny", Outcome.DENY), ("ask", Outcome.ASK)):
        rule = {"action": "tool:mcp:call s/t", "outcome": outcome, "when": when}
        otherwise = {"tool:*": "deny" if outcome == "allow" else "allow"}
        profile = {"rules": [rule], "otherwise": otherwise}
        source = PolicySource("p.json", json.dumps({"profiles": {"p": profile}}).encode())
        action = Action("mcp", "call", "s/t", text)
        assert decide(load_policy(source), MAIN, [action]).outcome is wanted
