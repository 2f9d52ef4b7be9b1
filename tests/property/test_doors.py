"""Bad input at any door gets a clear answer and loses nothing: no traceback, no hang.

PADDOCK_DOOR_EXAMPLES says how many inputs each door gets (150 by default).
"""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.apps.cli.main import COMMANDS
from paddock.assembly.project import find_project
from paddock.assembly.project_open import open_project
from paddock.assembly.runtimes import open_runtime
from paddock.errors import TOOL_ERRORS, ConfigError, PaddockError
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import Verification, verify
from paddock.plane.agents import write_agent
from paddock.plane.create import POLICY_TEMPLATE
from paddock.policy.decide import decide
from paddock.policy.rules import parse_action
from paddock.runtime.approvals import NoApprover, YesApprover
from paddock.values.calls import ToolResult
from paddock.values.decisions import Agent, Permissions
from tests.support import nasty
from tests.support.ledgers import note, open_ledger
from tests.support.places import SECRET, Place, Ran, new_place
from tests.support.policies import EVERYTHING

EXAMPLES = int(os.environ.get("PADDOCK_DOOR_EXAMPLES") or 150)
DOOR = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
CODES = frozenset(TOOL_ERRORS) - {"internal"}
STATUSES = frozenset({0, 1, 2, 3, 4, 5})


class HungError(BaseException):
    """A door did not come to an end. No `except Exception` takes it for an answer."""


@contextlib.contextmanager
def bounded() -> Generator[None, None, None]:
    """A bound on all examples of a door together, far above what they take."""

    def hung(*_: object) -> None:
        raise HungError("an input was never answered")

    before = signal.signal(signal.SIGALRM, hung)
    signal.alarm(120 + EXAMPLES // 5)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def place() -> Iterator[Place]:
    with bounded(), new_place() as made:
        yield made


def assert_clear(error: PaddockError) -> None:
    """Says what and where."""
    assert error.message.strip()
    assert error.where.strip()
    assert "Traceback" not in error.render()


def assert_reported(ran: Ran) -> None:
    assert "Traceback" not in ran.err
    assert ran.err.startswith(("error[", "note: ")) or not ran.err


# --- tool calls -------------------------------------------------------------------

ASKING = b"""
[profiles.standard]
allow = ["tool:file:*"]
ask   = ["tool:file:delete **", "tool:file:* src/**"]
deny  = ["tool:file:create migrations/**"]
"""
VALID: dict[str, dict[str, Any]] = {
    "create_file": {"path": "new/a.md", "content": "x\n", "if_version": "absent"},
    "str_replace": {"path": "README.md", "old_str": "teh", "new_str": "the"},
    "view": {"path": "src/a.py", "offset": 1, "limit": 2},
    "move_file": {"path": "src/a.py", "to": "src/b.py"},
    "delete_file": {"path": "README.md", "if_version": "sha256:" + "0" * 64},
}
PIECES = [
    *("README.md", "src", "a.py", "empty", "out", "out.txt", "inner", "dangling", "loop", "proc"),
    *("fifo", ".git", ".GIT", "config", ".env", ".ENV", "paddock.toml", "migrations", "binary"),
    *("latin", "..", ".", "", "%2e%2e", "~", "-", "*", "a" * 255, "a" * 256, "\u202e", "é", "e\u0301"),
    *("\0", "\n", "\x1b[2J", "\udcff", "kept.txt", "home", "CON", "a\\b", ".paddock-"),
]  # fmt: skip
PATHS = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("/".join),
    st.sampled_from(["/", "//", "/proc/self/root", "/dev/null", "/etc/passwd", "a/" * 3_000]),
    nasty.TEXTS,
)
CONTENTS = st.one_of(
    nasty.TEXTS,
    st.sampled_from(["", "teh", "\n", "\r\n", "x = 1\ny", "x" * 200_000, "a\n" * 3_000]),
)
TOOLS = st.sampled_from(sorted(VALID))


@st.composite
def arguments(draw: Any, tool: str) -> dict[str, Any]:
    """A valid call with hostile values, then perhaps with members of no use."""
    given = {
        name: draw(
            CONTENTS | st.just(value)
            if name in {"content", "old_str", "new_str"}
            else st.just(value)
        )
        for name, value in VALID[tool].items()
    }
    for name in ("path", "to"):
        if name in given and draw(st.integers(0, 4)):
            given[name] = draw(PATHS)
    for name in ("if_version", "offset", "limit"):
        if name in given and draw(st.booleans()):
            del given[name]
    for _ in range(draw(st.sampled_from([0, 0, 0, 0, 0, 0, 1, 2]))):
        name = draw(st.sampled_from([*sorted(given), "path"]) | nasty.TEXTS)
        if name in given and draw(st.booleans()):
            del given[name]
        else:
            given[name] = draw(nasty.JSON | nasty.NESTS)
    return given


@st.composite
def calls(draw: Any) -> tuple[str, dict[str, Any]]:
    """Nine of ten name a tool that there is and mean something."""
    if draw(st.integers(0, 9)):
        tool = draw(TOOLS)
        return tool, draw(arguments(tool))
    return draw(TOOLS | nasty.TEXTS), draw(st.dictionaries(nasty.TEXTS, nasty.JSON, max_size=3))


CALLS = calls()


def assert_answered(place: Place, result: ToolResult, before: dict[str, object]) -> None:
    assert result.refusal is None or result.refusal.code in CODES
    shown = json.dumps(result.as_json())
    assert SECRET not in shown
    assert "Traceback" not in shown
    assert str(place.home) not in result.content
    assert place.untouchable() == before


def assert_ledger_whole(place: Place, calls: int) -> Verification:
    found = verify(place.run("where", "--json").json["ledgers"]["ho1m"])
    assert (found.problems, found.unanswered, found.torn_bytes) == ((), (), 0)
    assert found.entries > calls
    return found


@pytest.mark.parametrize("approver", [NoApprover(), YesApprover("test")], ids=["no", "yes"])
def test_any_arguments_to_any_tool_are_answered_and_on_record(place, approver):
    (place.project / "paddock.toml").write_bytes(ASKING)
    place.run("trust", "--yes")
    project = open_project(place.project, place.environment)
    calls = 0

    @DOOR
    @given(CALLS)
    def examine(call: tuple[str, dict[str, Any]]) -> None:
        nonlocal calls
        calls += 1
        place.fill()
        (place.project / "paddock.toml").write_bytes(ASKING)
        before = place.untouchable()
        assert_answered(place, runtime.call(call[0], nasty.unfold(call[1])), before)

    with open_runtime(project, agent=None, approver=approver) as runtime:
        examine()
    assert_ledger_whole(place, calls)


JSON_TOKENS = [
    *(b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"\\u0000", b"\\ud800", b"null", b"true"),
    *(b"NaN", b"-Infinity", b"1e999", b"9" * 5_000, b"\xff", b"\0", b"\xef\xbb\xbf", b'"path":'),
]


def is_plain(call: tuple[str, dict[str, Any]]) -> bool:
    """Whether Python can write it as JSON."""
    return not any(isinstance(value, nasty.Nest) for value in call[1].values())


CALL_TEXTS = st.one_of(
    CALLS.filter(is_plain).map(lambda call: (call[0], json.dumps(call[1]).encode())),
    st.tuples(
        TOOLS, nasty.mutated([json.dumps(each).encode() for each in VALID.values()], JSON_TOKENS)
    ),
    st.tuples(TOOLS, nasty.deep().map(str.encode)),
    st.tuples(TOOLS | nasty.TEXTS, st.binary(max_size=40)),
)


def test_any_json_text_given_to_call_is_answered_with_one_object(place):
    calls = 0

    @DOOR
    @given(CALL_TEXTS, st.booleans())
    def examine(call: tuple[str, bytes], through_stdin: bool) -> None:
        nonlocal calls
        calls += 1
        place.fill()
        before = place.untouchable()
        # What cannot stand in an argument vector comes as bytes that are no UTF-8 would.
        tool, text = call[0].replace("\0", ""), os.fsdecode(call[1]).replace("\0", "")
        if through_stdin:
            ran = place.run("call", "--yes", "--", tool, "-", stdin=call[1])
        else:
            ran = place.run("call", "--yes", "--", tool, text)
        assert ran.status in (0, 1), ran
        assert ran.err == ""
        shown = ran.json
        assert shown["status"] == ("ok" if ran.status == 0 else "error")
        assert ran.status == 0 or shown["code"] in CODES
        assert SECRET not in ran.out
        assert place.untouchable() == before

    examine()
    assert_ledger_whole(place, calls)


# --- policy files -----------------------------------------------------------------

EVERY_TABLE = (
    EVERYTHING.encode()
    + b"""
[[profiles.standard.rules]]
action  = "tool:shell:run npm install *"
outcome = "ask"

[[profiles.standard.rules]]
action  = "tool:shell:run git push *"
outcome = "deny"
"""
)
TOML_TOKENS = [
    *(b"[", b"]", b"[[", b"]]", b"{", b"}", b"=", b".", b",", b'"', b"'", b'"""', b"\n", b"#"),
    *(b"\\", b"\\u0000", b"\\ud800", b"true", b"nan", b"1979-05-27", b"0x", b"9" * 5_000, b"\r"),
    *(b"[paths]\n", b"[profiles.standard]\n", b'allow = ["tool:*"]\n', b"a.b.c = 1\n", b"\xff"),
    *(b'"tool:file:* **"', b'"tool:shell:run $(x"', b'"[!"', b'"**/**"', b'"!"', b"\0", b"\x1b"),
]
POLICY_WORDS = [
    *("allow", "ask", "deny", "tool:*", "tool:file:*", "tool:shell:run *", "tool:shell:run $(", "!"),
    *("tool:file:create ../x", "tool:nope:x", "**", "[", "/", "\\", "locked", "host", -1, 2**70),
    *({}, [], {"*": "allow"}, ["!*"], {"tool:*": "allow"}, {"profile": "nobody"}),
]  # fmt: skip
ACTIONS = st.sampled_from(
    [
        "tool:file:create docs/a.md",
        "tool:file:view .env",
        "tool:file:create migrations/1.sql",
        "tool:shell:run npm install x && git push",
        "tool:mcp:call mcp__toy__add",
    ]
)


def all_tables() -> dict[str, Any]:
    import tomllib

    return tomllib.loads(EVERY_TABLE.decode())


POLICIES = st.one_of(
    st.tuples(st.just("toml"), nasty.mutated([EVERY_TABLE, POLICY_TEMPLATE], TOML_TOKENS)),
    st.tuples(
        st.just("json"),
        nasty.mutated_json(all_tables(), POLICY_WORDS).map(
            lambda value: json.dumps(value).encode()
        ),
    ),
    st.tuples(
        st.just("json"), nasty.mutated([json.dumps(all_tables(), indent=1).encode()], JSON_TOKENS)
    ),
    st.tuples(st.sampled_from(["toml", "json"]), st.binary(max_size=60)),
    st.tuples(st.just("json"), nasty.deep().map(str.encode)),
)


def test_any_policy_file_loads_or_is_refused_with_its_place(place):
    @DOOR
    @given(POLICIES, ACTIONS, st.booleans(), st.sampled_from(["lint", "test", "explain"]))
    def examine(policy: tuple[str, bytes], action: str, is_trusted: bool, question: str) -> None:
        kind, content = policy
        for name in ("paddock.toml", "paddock.json"):
            (place.project / name).unlink(missing_ok=True)
        shutil.rmtree(place.home / ".local", ignore_errors=True)
        file = place.project / f"paddock.{kind}"
        file.write_bytes(content)
        if is_trusted:
            place.run("trust", "--yes")
        ran = place.run("policy", "check", action)
        assert_reported(ran)
        try:
            project = find_project(place.project, place.environment, None)
        except ConfigError as error:
            assert_clear(error)
            assert file.name in error.where
            assert (ran.status, ran.out) == (3, "")
        else:
            decided = decide(project.policy, (Agent("main", "standard"),), [parse_action(action)])
            assert (
                ran.status == {"allow": 0, "confine": 0, "deny": 1, "ask": 6}[decided.outcome.word]
            )
            asked = place.run("policy", question, *([action] if question == "explain" else []))
            assert_reported(asked)
            assert asked.status in ((0,) if question == "explain" else (0, 1))
        assert file.read_bytes() == content

    examine()


# --- agent files ------------------------------------------------------------------

AGENT = json.loads(
    write_agent(
        Agent("main", "standard", permissions=Permissions(forbidden=("private/**",))),
        Path("/somewhere"),
    )
)


def test_any_agent_file_loads_or_is_refused_with_its_place(place):
    place.run("agent", "list")
    project = find_project(place.project, place.environment, None)
    file = project.layout.agent_file("main")
    seed = {**AGENT, "workspace": str(place.project)}
    words = ["main", "standard", "locked", "shell", "core", "..", "/x/..", "**", "[", "nobody"]
    agents = st.one_of(
        nasty.mutated_json(seed, words).map(lambda value: json.dumps(value).encode()),
        nasty.mutated([json.dumps(seed, indent=1).encode(), file.read_bytes()], JSON_TOKENS),
        nasty.deep().map(str.encode),
        st.binary(max_size=60),
    )

    @DOOR
    @given(agents)
    def examine(content: bytes) -> None:
        file.write_bytes(content)
        seen = place.run("call", "view", '{"path": "README.md"}')
        assert_reported(seen)
        assert seen.status in (0, 1, 3)
        assert (seen.out == "") is (seen.status == 3)
        try:
            record = project.agents.read("main")
        except ConfigError as error:
            assert_clear(error)
            assert error.hint.strip()
            assert "agent.json" in error.where
            assert seen.status == 3
        else:
            assert record.agent.name == "main"
        assert file.read_bytes() == content

    examine()


def test_an_agent_file_whose_workspace_holds_the_plane_is_refused_with_its_place(place):
    place.run("agent", "list")
    project = find_project(place.project, place.environment, None)
    file = project.layout.agent_file("main")
    file.write_text(json.dumps({**AGENT, "workspace": str(place.home)}))
    with pytest.raises(ConfigError) as raised:
        project.agents.read("main")
    assert "agent.json" in raised.value.where


# --- ledger files -----------------------------------------------------------------

LEDGER_TOKENS = [
    *(
        b"\n",
        b"{",
        b"}",
        b'"',
        b"\\",
        b"\0",
        b"\r",
        b"\xff",
        b" ",
        b"{}\n",
        b'"seq":3',
        b"garbage\n",
    ),
    *(b'{"id":"LED-', b'"metadata":{}', b'"prev":"' + b"0" * 64 + b'"}', b"9" * 5_000),
]


@pytest.fixture
def ledger_seed(place: Place) -> tuple[Path, bytes]:
    """A real ledger's path and bytes, with everything that belongs beside it."""
    path = place.base / "seed" / "ho1m.jsonl"
    path.parent.mkdir()
    opened = open_ledger(path)
    for number in range(8):
        opened.append([note(f"{number}", size=number * 7), note(f"{number}+")])
    opened.close()
    return path, path.read_bytes()


def test_any_bytes_in_a_ledger_are_found_and_never_built_upon(place, ledger_seed):
    seed, whole = ledger_seed
    lines = whole.splitlines(keepends=True)
    target = place.base / "copy"

    @DOOR
    @given(
        nasty.mutated([whole], [*LEDGER_TOKENS, lines[3], lines[-1]]),
        st.sampled_from(["kept", "kept", "gone", "broken"]),
        st.data(),
    )
    def examine(content: bytes, head: str, data: Any) -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(seed.parent, target)
        path = target / seed.name
        path.write_bytes(content)
        marks = target / "ho1m.d" / "head"
        if head == "gone":
            marks.unlink()
        elif head == "broken":
            marks.write_bytes(data.draw(nasty.mutated([marks.read_bytes()], [b"\0", b"\xff"])))
        before = attempt_verify(path)
        acknowledged = append_one(path)
        after = attempt_verify(path)
        if not acknowledged:
            return
        assert after is not None
        # Damage is never covered up by what is written after it. Where the head file was
        # changed too, it may have been put aside from there on, whole and on record.
        is_torn = content.startswith(whole)
        aside = put_aside(path) if head == "broken" else {}
        if before is not None and not is_torn and before.problems:
            problem = before.problems[0]
            assert after.problems[:1] == (problem,) or any(
                at >= problem.offset_bytes and content[at:] == piece for at, piece in aside.items()
            )
        # No entry that still stood there is gone, and what was acknowledged is there.
        kept = b"".join([path.read_bytes(), *aside.values()])
        assert written_lines(content, lines) <= written_lines(kept, lines)
        assert [row.entry.reason for row in query(str(path), Filter("NOTE"), last=1).entries] == [
            "new"
        ]
        # What follows the last acknowledged line is put aside, and that is on record.
        if is_torn:
            assert after.problems == ()
            recovered = query(str(path), Filter("LEDGER_RECOVERED")).entries
            assert len(recovered) == (len(content) > len(whole))

    examine()


def attempt_verify(path: Path) -> Verification | None:
    try:
        query(str(path), Filter("NOTE"))
        return verify(str(path))
    except PaddockError as error:
        assert error.message.strip()
        return None


def append_one(path: Path) -> bool:
    try:
        opened = open_ledger(path, create=None)
    except PaddockError as error:
        assert error.message.strip()
        return False
    with contextlib.closing(opened):
        try:
            opened.append([note("new")])
        except PaddockError as error:
            assert error.message.strip()
            return False
    return True


def put_aside(path: Path) -> dict[int, bytes]:
    """What recovery put aside, by its place, as the ledger's own entries say."""
    recovered = query(str(path), Filter("LEDGER_RECOVERED")).entries
    said = [row.entry.metadata for row in recovered]
    folder = path.with_suffix(".d")
    return {each["offset"]: (folder / each["file"]).read_bytes() for each in said}


def written_lines(content: bytes, lines: list[bytes]) -> set[bytes]:
    """Those of `lines` that stand somewhere in `content`, whole."""
    return set(lines) & set(content.splitlines(keepends=True))


@pytest.mark.parametrize("damage", ["a byte more in the middle", "another last byte"])
def test_a_ledger_whose_newest_line_is_not_the_recorded_one_is_not_appended_to(
    place, ledger_seed, damage
):
    path, whole = ledger_seed
    lines = whole.splitlines(keepends=True)
    changed = whole[:-1] + b"x"
    if damage == "a byte more in the middle":
        changed = b"".join([*lines[:2], b" ", *lines[2:]])
    path.write_bytes(changed)
    assert not append_one(path)
    assert path.read_bytes() == changed


# --- command lines ----------------------------------------------------------------

DIRECTORIES = st.sampled_from([".", "src", "empty", "nowhere", "README.md", "fifo", "loop"])
WORDS = st.sampled_from(
    [
        *("--json", "--plane", "--help", "-h", "--version", "--", "-", "--agent", "main", "nobody"),
        *("--yes", "--no-input", "--provider", "anthropic", "acme", "create", "list", "show"),
        *("remove", "--profile", "locked", "--parent", "--toolsets", "workspace,search", "check"),
        *("explain", "test", "lint", "query", "tail", "verify", "--ledger", "ho1m", "--last", "3"),
        *("-1", "9" * 30, "--type", "TOOL_DENIED", "--since", "2026-01-31T00:00:00Z", "--until"),
        *("0001-01-01T00:00:00", "9999-12-31T23:59:59+00:01", "--full", "bash", "--plane=src"),
        *("tool:file:view a", "tool:shell:run (", "tool:file:create .git/x", "view", "create_file"),
        *("--agent=", "--last=", "--json=1", "--pla", "a,b,,", "x" * 5_000, "{", "[]", "\udcff"),
        *(json.dumps(each) for each in VALID.values()),
    ]
)
HARMLESS = sorted(set(COMMANDS) - {"demo", "web"})  # a tour, and a server that goes on
SHAPES = {
    "ledger": [["query"], ["tail"], ["verify"], ["query", "--since"], ["query", "--last"]],
    "agent": [["create"], ["list"], ["show"], ["remove"], ["create", "--parent"]],
    "policy": [["check"], ["explain"], ["test"], ["lint"]],
    "call": [["view"], ["create_file"], ["--no-input", "delete_file"], ["--agent"]],
    "completion": [["bash"], []],
}


def is_contained(word: str) -> bool:
    """No word may lead a command, run here with all our rights, out of the project."""
    return ".." not in word and "/" not in word


@st.composite
def command_lines(draw: Any) -> list[str]:
    loose = nasty.ARGUMENT_TEXTS.filter(is_contained)
    words = draw(st.lists(WORDS | DIRECTORIES | loose, max_size=4))
    front = draw(st.sampled_from([[], [], [], ["--json"], ["--plane", "src"], ["--plane=."]]))
    if not draw(st.integers(0, 7)):
        return [*front, *words]
    name = draw(st.sampled_from(HARMLESS))
    return [*front, name, *draw(st.sampled_from(SHAPES.get(name, [[]]))), *words]


def test_any_command_line_ends_with_a_documented_status(place):
    kept = place.untouchable()

    @DOOR
    @given(command_lines(), st.binary(max_size=30) | st.just(b'{"path": "README.md"}'))
    def examine(line: list[str], stdin: bytes) -> None:
        shutil.rmtree(place.home)
        place.home.mkdir()
        place.fill()
        ran = place.run(*line, stdin=stdin)
        assert ran.status in STATUSES
        assert "Traceback" not in ran.out + ran.err
        command = line[0] if line else ""
        if ran.status in (2, 3, 4) and "call" in line[:3]:
            assert ran.out == ""
        if ran.status in (2, 3, 4, 5) and command in COMMANDS and command != "policy":
            assert "error[" in ran.err or command == "ledger"
        (place.project / "paddock.toml").unlink(missing_ok=True)
        assert place.untouchable() == kept

    examine()
