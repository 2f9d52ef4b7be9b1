"""Settings of any odd form: installed into and removed from, they are what they were."""

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from paddock.apps.hook.settings import claude, codex
from paddock.apps.hook.settings.claude import EVENTS, LAUNCHER, Program
from paddock.errors import ConfigError

PROGRAM = Program("/opt/py thon", f"/opt/ä \"'{LAUNCHER}")

gaps = st.lists(
    st.sampled_from(["", " ", "\n", "\t", "\r\n", "  ", "/* x */", "// y\n", "/**/"]), max_size=3
).map("".join)
scalars = st.one_of(
    st.none().map(lambda _: "null"),
    st.booleans().map(json.dumps),
    st.integers(-99, 99).map(json.dumps),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.text(max_size=8).map(json.dumps),
    st.text(max_size=8).map(lambda text: json.dumps(text, ensure_ascii=False)),
)


@st.composite
def containers(draw, inner):
    parts = draw(st.lists(inner, max_size=3))
    if draw(st.booleans()):
        names = draw(
            st.lists(st.text(max_size=4), min_size=len(parts), max_size=len(parts), unique=True)
        )
        parts = [
            f"{json.dumps('k' + name)}{draw(gaps)}:{draw(gaps)}{part}"
            for name, part in zip(names, parts, strict=True)
        ]
        opening, closing = "{", "}"
    else:
        opening, closing = "[", "]"
    return opening + joined(draw, parts) + closing


def joined(draw, parts: list[str]) -> str:
    """Parts with commas and odd gaps, a comma behind the last one at times."""
    text = draw(gaps)
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        comma = "," if not is_last or draw(st.booleans()) else ""
        text += f"{part}{draw(gaps)}{comma}{draw(gaps)}"
    return text


values = st.recursive(scalars, containers, max_leaves=6)


@st.composite
def groups(draw):
    """One matcher of somebody else."""
    command = json.dumps({"type": "command", "command": draw(st.text(max_size=5))})
    return f'{{{draw(gaps)}"hooks"{draw(gaps)}:[{draw(gaps)}{command}{draw(gaps)}]{draw(gaps)}}}'


@st.composite
def settings_texts(draw):
    members = [
        f'"{name}"{draw(gaps)}:{draw(gaps)}{draw(values)}'
        for name in draw(st.lists(st.sampled_from(["model", "env", "permissions"]), unique=True))
    ]
    if draw(st.booleans()):
        chosen = draw(st.lists(st.sampled_from([*EVENTS, "Stop"]), unique=True, max_size=3))
        events = [
            f'"{event}"{draw(gaps)}:{draw(gaps)}[{joined(draw, draw(st.lists(groups(), max_size=2)))}]'
            for event in chosen
        ]
        hooks = f'"hooks"{draw(gaps)}:{draw(gaps)}{{{joined(draw, events)}}}'
        members.insert(draw(st.integers(0, len(members))), hooks)
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return f"{mark}{draw(gaps)}{{{joined(draw, members)}}}{draw(gaps)}"


@given(settings_texts())
def test_install_then_uninstall_is_byte_for_byte_the_same(text):
    installed = claude.installed(text, "settings.json", PROGRAM)

    assert claude.is_installed(installed, "settings.json", PROGRAM)
    assert claude.installed(installed, "settings.json", PROGRAM) == installed
    assert claude.uninstalled(installed, "settings.json") == text
    assert claude.uninstalled(text, "settings.json") == text


@given(settings_texts())
def test_what_was_there_is_still_there_while_it_is_installed(text):
    installed = claude.installed(text, "settings.json", PROGRAM)
    rest = iter(installed)

    # Every character of the old text stands in the new one, in its order.
    assert all(char in rest for char in text)


comments = st.sampled_from(
    ["", "# x\n", "\n", 'a = "b"\n', "[t]\nc = 1\n", "[hooks]\n", "# no end"]
)


@given(st.lists(comments, max_size=4, unique=True).map("".join))
def test_codex_configurations_come_out_as_they_went_in(text):
    if "# no end" in text and not text.endswith("# no end"):
        text += "\n"
    if text.index("a = ") > text.index("[") if "a = " in text and "[" in text else False:
        text = text.replace('a = "b"\n', "")
    installed = codex.installed(text, "config.toml", PROGRAM)

    assert codex.uninstalled(installed, "config.toml") == text
    assert codex.is_installed(installed, "f", PROGRAM)


tables = st.sampled_from(
    [
        "# x\n",
        "\n",
        "[u]\nd = 2\n",
        "[[v]]\ne = 'f'\n",
        "[[hooks.PreToolUse]]\nmatcher = 'Bash'\n",
        "[[hooks.Stop]]\n",
        "timeout = 1\n",
        "[[hooks.PreToolUse.hooks]]\n",
        "[hooks.mine]\n",
    ]
)


@given(
    st.sampled_from(["", "# x", 'a = "b"', "[t]\nc = 1", "[[hooks.PreToolUse]]\nmatcher = 'x'"]),
    st.booleans(),
    st.lists(tables, max_size=4).map("".join),
)
def test_what_is_left_of_a_codex_configuration_says_what_it_said_beside_ours(text, ends, behind):
    before = text + "\n" * ends
    whole = codex.installed(before, "config.toml", PROGRAM) + behind
    try:
        said = tomllib.loads(whole)
        left = codex.uninstalled(whole, "config.toml")
    except (tomllib.TOMLDecodeError, ConfigError):
        return
    ours = tomllib.loads(codex.block(PROGRAM))["hooks"]
    rest = {
        event: [group for group in groups if group not in ours.get(event, [])]
        if isinstance(groups, list)
        else groups
        for event, groups in said.pop("hooks").items()
    }
    kept = tomllib.loads(left)
    hooks = kept.pop("hooks", {})
    assert kept == said
    assert hooks == {event: groups for event, groups in rest.items() if groups or event in hooks}
    assert left == (f"{before}\n" if before and behind and not ends else before) + behind
