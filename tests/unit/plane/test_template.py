import tomllib

from paddock.plane.create import POLICY_TEMPLATE
from paddock.policy.load import PathsTable, Scope, read_policy
from paddock.policy.presets import built_in_paths, presets
from paddock.policy.settings import Settings
from paddock.values.decisions import Outcome

ADDED = "# To add rules to it, write this instead:"
PRESETS = {profile.name: profile for profile in presets()}


def load(text: bytes):
    return read_policy("paddock.toml", text, Scope.PROJECT, Settings(), PRESETS)


def texts(paths) -> dict[str, list[str]]:
    names = ("protected", "generated", "warned", "safe", "secret")
    return {name: [pattern.text for pattern in getattr(paths, name)] for name in names}


def test_the_template_changes_nothing():
    document = load(POLICY_TEMPLATE)
    assert document.paths == PathsTable()
    assert document.profiles == ()
    assert document.settings == Settings()


def test_the_paths_in_the_template_are_the_built_in_ones_word_for_word():
    assert texts(load(uncommented()).paths) == texts(built_in_paths())


def test_the_template_is_short_lines_of_ascii():
    lines = POLICY_TEMPLATE.decode("ascii").splitlines()
    assert max(map(len, lines)) <= 100


def uncommented(*, until: str | None = None) -> bytes:
    """The template with its examples taken at their word: what looks like TOML is TOML."""
    lines: list[str] = []
    for line in POLICY_TEMPLATE.decode().splitlines():
        if line == until:
            break
        body = line.removeprefix("# ")
        is_example = body.startswith(("[", "]", "    ")) or " = " in body
        lines.append(body if line.startswith("# ") and is_example else line)
    return "\n".join(lines).encode()


def test_the_examples_in_the_template_load_once_they_are_uncommented():
    document = load(uncommented())
    assert [profile.name for profile in document.profiles] == ["standard"]
    assert set(tomllib.loads(uncommented().decode())) == {
        "paths",
        "profiles",
        "shell",
        "hook",
        "agents",
    }


def test_the_template_has_the_built_in_profile_word_for_word():
    document = load(uncommented(until=ADDED))
    written, built_in = document.profiles[0], presets()[1]
    assert (written.name, built_in.name) == ("standard", "standard")
    assert said_by(written) == said_by(built_in)


def said_by(profile) -> tuple[list[tuple[str, Outcome]], list[tuple[str, Outcome]]]:
    rules = [(rule.pattern.text, rule.outcome) for rule in profile.rules]
    return rules, [(each.as_match().text, each.outcome) for each in profile.otherwise]
