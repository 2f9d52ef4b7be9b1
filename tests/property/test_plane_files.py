"""Whatever stands in the plane's own files, reading them answers or is a `ConfigError`."""

import json
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from paddock.errors import ConfigError
from paddock.plane.agents import AgentRecord, is_agent_name, parse_agent, write_agent
from paddock.plane.discover import PlaneIdentity, identity_of, parse_identity
from paddock.plane.environment import read_environment
from paddock.plane.layout import PlaneLayout, plane_name
from paddock.plane.trust import find_trust, trust_record_path
from paddock.values.decisions import Agent, Permissions, PlaneKind
from tests.support.changes import memory_directory

LAYOUT = PlaneLayout(Path("/plane"), PlaneKind.PROJECT)
FILE = LAYOUT.agent_file("x")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)
KEYS = st.sampled_from(
    [
        "name",
        "profile",
        "workspace",
        "parent",
        "toolsets",
        "permissions",
        "format",
        "root",
        "id",
        "path",
        "digest",
        "trusted_at",
        "more",
    ]
)
VALUES = JSON | st.sampled_from(["x", "/abs", "standard", 1, ["shell"], {"read": ["**"]}])
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=8).map(lambda value: json.dumps(value).encode())
CONTENTS = (
    st.binary(max_size=200)
    | OBJECTS
    | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
PATTERNS = st.lists(TEXTS, unique=True, max_size=3).map(tuple)
NAMES = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,63}", fullmatch=True)


def attempt(parse, *arguments):
    try:
        return parse(*arguments)
    except ConfigError:
        return None


@given(CONTENTS)
@example(b"[" * 200_000)
@example(b'{"a":' * 100_000)
@example(b'{"name": ' + b"[" * 900 + b"]" * 900 + b"}")
@example(b'{"name": 1e999, "format": -0}')
@example(b'{"name": "\\ud800", "profile": "\\udfff"}')
@example(b"\xef\xbb\xbf{}")
def test_arbitrary_bytes_are_read_or_refused_as_configuration(content):
    assert isinstance(attempt(parse_agent, content, FILE, LAYOUT), AgentRecord | None)
    assert isinstance(attempt(parse_identity, content, "plane.json"), PlaneIdentity | None)
    with memory_directory() as base:
        environment = read_environment({"HOME": str(base)})
        policy = base / "paddock.toml"
        record = trust_record_path(policy, environment)
        record.parent.mkdir(mode=0o700, parents=True)
        record.write_bytes(content)
        assert not find_trust(policy, b"", environment).trusted


@given(
    NAMES,
    TEXTS.filter(str.isprintable),
    st.none() | st.just(Path("/w/ö x")),
    st.none() | NAMES,
    st.lists(st.sampled_from(["workspace", "search", "output", "shell"]), unique=True).map(tuple),
    st.builds(Permissions, PATTERNS, PATTERNS, PATTERNS),
)
def test_what_is_written_is_what_is_read(name, profile, workspace, parent, toolsets, permissions):
    parent = None if parent == name else parent
    file = LAYOUT.agent_file(name)
    agent = Agent(name, profile, toolsets, permissions, parent, source=str(file))
    written = write_agent(agent, workspace)
    record = parse_agent(written, file, LAYOUT)
    assert record.agent == replace(agent, declaration=written)
    assert record.workspace == (workspace or LAYOUT.agent_workspace(name))


@given(st.text(max_size=70))
@example("a\n")
@example("a\0")
@example("..")
@example("ａ")
def test_an_agents_name_is_always_one_safe_file_name(name):
    if is_agent_name(name):
        assert LAYOUT.agent_file(name).parent.parent == LAYOUT.agents
        assert name.isascii()
        assert not set(name) & set("/\0\n\\")
        assert name not in {".", ".."}


@given(st.text(max_size=300).filter(lambda text: "\0" not in text))
def test_a_plane_name_is_always_one_safe_file_name(text):
    path = Path("/projects") / text.encode("utf-8", "replace").decode("utf-8")
    name = plane_name(path)
    assert name.isascii()
    assert name.isprintable()
    assert "/" not in name
    assert not name.startswith((".", "-"))
    assert len(name) <= 60


@given(TEXTS.filter(lambda text: "\0" not in text))
def test_the_identity_of_any_root_is_read_back(text):
    identity = identity_of(Path("/") / text)
    assert parse_identity(identity.to_bytes(), "plane.json") == identity
