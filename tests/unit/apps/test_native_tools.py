"""The providers' own tool types: their documented calls, answered in their words, by our rules."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.tools import BetaLocalFilesystemMemoryTool, ToolError

import paddock
from paddock.ledger.query import Filter, query
from paddock.ledger.verify import verify
from paddock.tools.arguments import ArgumentType, needed_text
from paddock.tools.spec import Effects, ToolSpec
from tests.support.places import Place, new_place

EDITOR = "str_replace_based_edit_tool"
PRIMES = "def is_prime(n):\n    for num in range(2, n)\n        pass\n"
POLICY = """[profiles.standard]
allow = ["tool:file:*", "tool:search:*", "tool:memory:*", "tool:client:bash"]
deny = ["tool:file:* closed/**", "tool:memory:* /memories/closed*"]
"""


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with new_place() as made:
        for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "PADDOCK_HOME", "PADDOCK_PLANE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HOME", str(made.home))
        (made.project / "primes.py").write_text(PRIMES)
        (made.project / "paddock.toml").write_text(POLICY)
        assert made.run("trust", "--yes").status == 0
        yield made


@pytest.fixture
def runtime(place: Place) -> Iterator[paddock.Runtime]:
    with paddock.open(place.project) as opened:
        yield opened


def entries(place: Place, event: str) -> list[tuple[str, dict[str, Any], list[str]]]:
    """Of the calls on record: the tool, its arguments, and what was judged."""
    path = place.run("where", "--json").json["ledgers"]["ho1m"]
    assert verify(path).problems == ()
    found = [row.entry.metadata for row in query(path, Filter(event)).entries]
    return [
        (row["tool"], row["arguments"], row.get("actions", [row.get("action")])) for row in found
    ]


def use(runtime: paddock.Runtime, name: str, **given: Any) -> tuple[str, bool]:
    """The content that answers a call of Anthropic's, and whether it is an error."""
    block = {"type": "tool_use", "id": "t1", "name": name, "input": given}
    (answer,) = runtime.answer("anthropic", {"content": [block], "stop_reason": "tool_use"})
    assert (answer["type"], answer["tool_use_id"]) == ("tool_result", "t1")
    return answer["content"], answer["is_error"]


def patch(runtime: paddock.Runtime, **operation: str) -> dict[str, Any]:
    item = {"type": "apply_patch_call", "call_id": "c1", "operation": operation}
    (answer,) = runtime.answer("openai-responses", {"output": [item], "status": "completed"})
    assert (answer.pop("type"), answer.pop("call_id")) == ("apply_patch_call_output", "c1")
    return answer


# What is offered


def test_the_providers_own_types_stand_in_place_of_ours(runtime):
    assert runtime.tools.for_provider("anthropic", native=True) == [
        {"type": "text_editor_20250728", "name": EDITOR},
        {"type": "memory_20250818", "name": "memory"},
    ]
    assert runtime.tools.for_provider("openai-responses", native=True) == [{"type": "apply_patch"}]


def test_a_policy_that_confines_commands_offers_shells_too(monkeypatch):
    with new_place() as made, monkeypatch.context() as patched:
        patched.setenv("HOME", str(made.home))
        printed = made.run("tools", "--provider", "anthropic", "--native").json
        assert [tool["name"] for tool in printed] == [EDITOR, "bash", "memory"]
        printed = made.run("tools", "--provider", "openai-responses", "--native").json
        assert printed == [
            {"type": "apply_patch"},
            {"type": "shell", "environment": {"type": "local"}},
        ]


def test_ours_are_offered_as_before(runtime):
    names = [tool["name"] for tool in runtime.tools.for_provider("anthropic")]
    assert "view" in names
    assert not {"insert_text", "patch_file", "memory_view"} & set(names)


def test_a_provider_without_own_types_is_a_usage_error(runtime, place):
    with pytest.raises(paddock.UsageError, match="no native tools for the provider 'openai'"):
        runtime.tools.for_provider("openai", native=True)
    assert place.run("tools", "--native").status != 0


class NoteArguments(ArgumentType):
    command: str = needed_text("What to note.")


def test_a_tool_of_the_program_keeps_its_name_and_is_offered_too(runtime):
    spec = ToolSpec("bash", "Bash", "Notes.", "own", NoteArguments, Effects(reads_only=True))
    runtime.tools.register(spec, lambda arguments: f"noted {arguments.command}")
    offered = runtime.tools.for_provider("anthropic", native=True)
    assert [tool["name"] for tool in offered] == [EDITOR, "memory", "bash"]
    assert use(runtime, "bash", command="rm -rf /") == ("noted rm -rf /", False)


# The editor of Anthropic


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"command": "view", "path": "primes.py"}, "1: def is_prime(n):\n2:     for num in range"),
        ({"command": "view", "path": "/primes.py", "view_range": [3, 3]}, "3:         pass"),
        ({"command": "view", "path": "primes.py", "view_range": [3, -1]}, "3:         pass"),
        (
            {"command": "view", "path": "primes.py", "view_range": [1, 1]},
            "1: def is_prime(n):\n[lines 1-1 of 3 shown; use view_range=[2, -1] to continue]",
        ),
        ({"command": "view", "path": "/"}, "./\n"),
        (
            {
                "command": "str_replace",
                "path": "primes.py",
                "old_str": "n)\n ",
                "new_str": "n):\n ",
            },
            "Successfully replaced text at exactly one location.",
        ),
        (
            {"command": "create", "path": "/new/test_primes.py", "file_text": "import primes\n"},
            "File created successfully at: /new/test_primes.py",
        ),
        (
            {"command": "insert", "path": "primes.py", "insert_line": 0, "insert_text": '"""x"""'},
            "The file primes.py has been edited.",
        ),
    ],
)
def test_the_documented_commands_of_the_editor(runtime, given, content):
    found, is_error = use(runtime, EDITOR, **given)
    assert found.startswith(content)
    assert not is_error


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ({"command": "view", "path": "missing.py"}, "Error: File not found"),
        (
            {"command": "str_replace", "path": "primes.py", "old_str": "zzz", "new_str": ""},
            "Error: No match found for replacement. Please check your text and try again.",
        ),
        (
            {"command": "str_replace", "path": "primes.py", "old_str": "s", "new_str": ""},
            (
                "Error: Found 3 matches for replacement text. Please provide more context to make a "
                "unique match."
            ),
        ),
        (
            {"command": "create", "path": "closed/a", "file_text": "x"},
            "Error: Permission denied. Cannot write to file.\n'tool:file:create closed/a' is denied",
        ),
        ({"command": "view", "path": "../x"}, "Error: path escapes root: '../x'"),
        ({"command": "view", "path": "/../../etc/passwd"}, "Error: path escapes root"),
        (
            {"command": "insert", "path": "primes.py", "insert_line": 9, "insert_text": "x"},
            (
                "Error: Invalid `insert_line` parameter: 9. It should be within the range of lines of "
                "the file: [0, 3]"
            ),
        ),
        (
            {"command": "view", "path": "primes.py", "view_range": [3, 1]},
            "Error: Invalid `view_range` parameter: '[3, 1]'",
        ),
        ({"command": "undo_edit", "path": "a"}, "Error: Invalid `command` parameter: 'undo_edit'"),
        ({"command": "create", "path": "a"}, "Error: file_text is required"),
        ({"command": "create", "path": "a", "file_text": 5}, "Error: file_text must be a string"),
        (
            {"command": "create", "path": "closed/a", "file_text": "x", "content": "y"},
            "Error: unknown argument 'content'\nthe arguments are: path, file_text",
        ),
        (
            {"command": "view", "path": ".env"},
            "Error: Permission denied. Cannot read file.\n'tool:file:view .env' is denied",
        ),
        ({"command": "view", "path": 5}, "Error: path must be a string"),
        ({"command": "view", "path": "a", "deep": 1}, "Error: unknown argument 'deep'"),
        ({}, "Error: Invalid `command` parameter: 'None'"),
    ],
)
def test_the_documented_errors_of_the_editor_and_others(place, runtime, given, content):
    found, is_error = use(runtime, EDITOR, **given)
    assert found.startswith(content)
    assert is_error
    assert (place.project / "primes.py").read_text() == PRIMES
    assert not (place.project / "closed").exists()


def test_a_replacement_without_a_new_text_deletes(place, runtime):
    given = {"path": "primes.py", "old_str": "        pass"}
    assert use(runtime, EDITOR, command="str_replace", **given)[1] is False
    assert (place.project / "primes.py").read_text() == PRIMES.replace("        pass", "")


def test_the_older_name_of_the_text_to_insert_is_understood(place, runtime):
    given = {"path": "primes.py", "insert_line": 0}
    assert use(runtime, EDITOR, command="insert", **given, new_str="# x")[1] is False
    assert (place.project / "primes.py").read_text() == f"# x\n{PRIMES}"
    assert use(runtime, EDITOR, command="insert", **given, new_str="a", insert_text="b") == (
        "Error: unknown argument 'new_str'\nthe arguments are: path, insert_line, insert_text",
        True,
    )


def test_an_edit_keeps_every_byte_that_it_does_not_name(place, runtime):
    raw = b"\xef\xbb\xbfa\r\nb\nc"
    (place.project / "mixed").write_bytes(raw)
    use(runtime, EDITOR, command="insert", path="mixed", insert_line=1, insert_text="x\ny")
    use(runtime, EDITOR, command="insert", path="mixed", insert_line=5, insert_text="z")
    assert (place.project / "mixed").read_bytes() == b"\xef\xbb\xbfa\r\nx\ny\nb\nc\nz"


def test_a_native_call_is_on_record_as_the_call_that_it_becomes_and_is_undone(place, runtime):
    use(runtime, EDITOR, command="create", path="/a.txt", file_text="hello\n")
    assert [entries(place, "TOOL_INTENT")[-1][i] for i in (0, 2)] == [
        "create_file",
        ["tool:file:create a.txt"],
    ]
    assert place.run("undo", "t1").status == 0
    assert not (place.project / "a.txt").exists()


def test_a_turn_that_was_cut_runs_nothing(place, runtime):
    given = {"command": "create", "path": "a.txt", "file_text": "half"}
    block = {"type": "tool_use", "id": "t1", "name": EDITOR, "input": given}
    (answer,) = runtime.answer("anthropic", {"content": [block], "stop_reason": "max_tokens"})
    assert (answer["is_error"], (place.project / "a.txt").exists()) == (True, False)


def test_calls_of_both_kinds_in_one_message_are_answered_in_order(runtime):
    asked = [
        ("t1", EDITOR, {"command": "view", "path": "primes.py"}),
        ("t2", "view", {"path": "primes.py"}),
        ("t3", "nope", {}),
        ("t4", "memory", {"command": "view", "path": "/memories"}),
    ]
    blocks = [SimpleNamespace(type="tool_use", id=i, name=n, input=g) for i, n, g in asked]
    answers = runtime.answer("anthropic", SimpleNamespace(content=blocks, stop_reason="tool_use"))
    assert [(each["tool_use_id"], each["is_error"]) for each in answers] == [
        ("t1", False),
        ("t2", False),
        ("t3", True),
        ("t4", False),
    ]
    assert answers[1]["content"].startswith("     1\tdef is_prime")


# The memory of Anthropic

NOTES = "/memories/notes.md"


def test_the_documented_commands_of_memory(runtime):
    def said(**given: Any) -> str:
        content, is_error = use(runtime, "memory", **given)
        assert not is_error, content
        return content

    listed = (
        "Here're the files and directories up to 2 levels deep in /memories, excluding hidden "
        "items and node_modules:\n"
    )
    assert said(command="view", path="/memories") == f"{listed}0B\t/memories"
    created = said(command="create", path=NOTES, file_text="one\ntwo\n")
    assert created == f"File created successfully at: {NOTES}"
    said(command="create", path="/memories/a/b/c/deep.md", file_text="x" * 1536)
    said(command="create", path="/memories/.hidden", file_text="")
    assert said(command="view", path="/memories") == (
        f"{listed}1.5K\t/memories\n1.5K\t/memories/a/\n1.5K\t/memories/a/b/\n8B\t{NOTES}"
    )
    assert said(command="view", path=NOTES) == (
        f"Here's the content of {NOTES} with line numbers:\n     1\tone\n     2\ttwo"
    )
    assert said(command="str_replace", path=NOTES, old_str="two", new_str="2") == (
        "The memory file has been edited. Here is the snippet showing the change (with line "
        "numbers):\n     1\tone\n     2\t2"
    )
    inserted = said(command="insert", path=NOTES, insert_line=1, insert_text="1.5\n")
    assert inserted == f"The file {NOTES} has been edited."
    renamed = said(command="rename", old_path="/memories/a", new_path="/memories/z/a")
    assert renamed == "Successfully renamed /memories/a to /memories/z/a"
    assert said(command="view", path="/memories/z/a/b/c/deep.md").endswith("x" * 1536)
    assert said(command="delete", path="/memories/z") == "Successfully deleted /memories/z"
    assert said(command="view", path="/memories") == f"{listed}10B\t/memories\n10B\t{NOTES}"


@pytest.mark.parametrize(
    ("given", "content"),
    [
        (
            {"command": "view", "path": "/memories/x"},
            "The path /memories/x does not exist. Please provide a valid path.",
        ),
        (
            {"command": "create", "path": NOTES, "file_text": "x"},
            f"Error: File {NOTES} already exists",
        ),
        (
            {"command": "str_replace", "path": NOTES, "old_str": "zz", "new_str": "x"},
            f"No replacement was performed, old_str `zz` did not appear verbatim in {NOTES}.",
        ),
        (
            {"command": "str_replace", "path": NOTES, "old_str": "a", "new_str": "x"},
            (
                "No replacement was performed. Multiple occurrences of old_str `a` in lines: 1, 2. "
                "Please ensure it is unique"
            ),
        ),
        (
            {"command": "insert", "path": NOTES, "insert_line": 3, "insert_text": "x"},
            (
                "Error: Invalid `insert_line` parameter: 3. It should be within the range of lines of "
                "the file: [0, 2]"
            ),
        ),
        (
            {"command": "delete", "path": "/memories/x"},
            "Error: The path /memories/x does not exist",
        ),
        (
            {"command": "rename", "old_path": "/memories/x", "new_path": "/memories/y"},
            "Error: The path /memories/x does not exist",
        ),
        (
            {"command": "rename", "old_path": "/memories/other.md", "new_path": NOTES},
            f"Error: The destination {NOTES} already exists",
        ),
    ],
)
def test_the_documented_errors_of_memory(runtime, given, content):
    use(runtime, "memory", command="create", path=NOTES, file_text="a\na\n")
    use(runtime, "memory", command="create", path="/memories/other.md", file_text="")
    found, is_error = use(runtime, "memory", **given)
    assert (found.split("\n")[0], is_error) == (content, True)


MEMORY_SCRIPT: list[dict[str, Any]] = [
    {"command": "create", "path": NOTES, "file_text": "one\ntwo\ntwo"},
    {"command": "create", "path": NOTES, "file_text": "other"},
    {"command": "view", "path": NOTES},
    {"command": "view", "path": NOTES, "view_range": [2, 3]},
    {"command": "view", "path": "/memories/none.md"},
    {"command": "str_replace", "path": NOTES, "old_str": "one", "new_str": "1"},
    {"command": "str_replace", "path": NOTES, "old_str": "two", "new_str": "2"},
    {"command": "str_replace", "path": NOTES, "old_str": "zz", "new_str": "2"},
    {"command": "str_replace", "path": "/memories/none.md", "old_str": "a", "new_str": "b"},
    {"command": "insert", "path": NOTES, "insert_line": 1, "insert_text": "1.5\n"},
    {"command": "insert", "path": "/memories/none.md", "insert_line": 0, "insert_text": "x"},
    {"command": "create", "path": "/memories/a/b.md", "file_text": "b"},
    {"command": "rename", "old_path": "/memories/a", "new_path": "/memories/c"},
    {"command": "view", "path": "/memories/c/b.md"},
    {"command": "rename", "old_path": "/memories/none.md", "new_path": "/memories/d"},
    {"command": "rename", "old_path": NOTES, "new_path": "/memories/c/b.md"},
    {"command": "delete", "path": "/memories/none.md"},
    {"command": "delete", "path": "/memories/c"},
    {"command": "view", "path": "/memories/c/b.md"},
]


def test_memory_answers_each_call_as_the_tool_of_the_sdk_does(runtime, tmp_path):
    theirs = BetaLocalFilesystemMemoryTool(str(tmp_path))
    for given in MEMORY_SCRIPT:
        try:
            expected = (theirs.call(given), False)
        except ToolError as error:
            expected = (str(error), True)
        content, is_error = use(runtime, "memory", **given)
        if is_error:
            # As the documentation has it; what to do next stands below.
            content = content.removeprefix("Error: ").split("\n")[0]
        assert (content, is_error) == expected, given


@pytest.mark.parametrize(
    "path",
    [
        *("/memories/../primes.py", "/memories/../../x", "/memories/a/../../x", "/memoriesx/a"),
        *("/primes.py", "primes.py", "../memories/a", "/memories/../memories/../x", "/etc/passwd"),
        *("/memories/%2e%2e/../../x", "//memories/a", "/memories/a\n/../b", "/memories/\x00"),
    ],
)
@pytest.mark.parametrize("command", ["view", "create", "str_replace", "insert", "delete", "rename"])
def test_no_path_leads_out_of_the_memory(place, runtime, path, command):
    given: dict[str, Any] = {"path": path}
    given |= {"create": {"file_text": "x"}, "insert": {"insert_line": 0, "insert_text": "x"}}.get(
        command, {}
    )
    if command == "str_replace":
        given |= {"old_str": "pass", "new_str": "x"}
    if command == "rename":
        use(runtime, "memory", command="create", path=NOTES, file_text="x")
        given = {"old_path": NOTES, "new_path": path}
    before = _tree(place.base)
    _, is_error = use(runtime, "memory", command=command, **given)
    assert is_error
    assert _tree(place.base) == before


def _tree(base: Path) -> dict[str, bytes]:
    """All files but those that record and lock."""
    return {
        str(path): path.read_bytes()
        for path in base.rglob("*")
        if path.is_file() and not {"ledger", "objects"} & set(path.parts)
    }


def test_a_link_in_the_memory_is_not_followed_out(place, runtime):
    use(runtime, "memory", command="create", path=NOTES, file_text="x")
    (notes,) = place.home.rglob("memories/notes.md")
    (notes.parent / "out").symlink_to(place.project)
    content, is_error = use(runtime, "memory", command="view", path="/memories/out/primes.py")
    assert (is_error, "is_prime" in content) == (True, False)
    _, is_error = use(
        runtime, "memory", command="create", path="/memories/out/new.py", file_text="x"
    )
    assert (is_error, (place.project / "new.py").exists()) == (True, False)


def test_the_memory_itself_stays(runtime):
    for given in (
        {"command": "delete", "path": "/memories"},
        {"command": "delete", "path": "/memories/a/.."},
        {"command": "rename", "old_path": "/memories", "new_path": "/memories/b"},
    ):
        content, is_error = use(runtime, "memory", **given)
        assert (content, is_error) == (
            "Error: cannot move or delete the /memories directory itself",
            True,
        )


def test_memory_is_judged_by_its_own_rules_and_recorded(place, runtime):
    content, is_error = use(
        runtime, "memory", command="create", path="/memories/closed.md", file_text="x"
    )
    assert is_error
    assert "'tool:memory:create /memories/closed.md' is denied" in content
    # A rule about a file of the workspace says nothing about it.
    _, is_error = use(runtime, "memory", command="create", path="/memories/closed/a", file_text="")
    assert is_error
    _, is_error = use(runtime, "memory", command="create", path=NOTES, file_text="secret")
    assert not is_error
    tool, arguments, actions = entries(place, "TOOL_INTENT")[-1]
    assert (tool, arguments["path"], actions) == (
        "memory_create",
        "notes.md",
        [f"tool:memory:create {NOTES}"],
    )
    assert "secret" not in json.dumps(arguments)
    assert place.run("undo", "t1").status != 0
    assert use(runtime, "memory", command="view", path=NOTES)[0].endswith("\tsecret")


def test_memory_lasts_and_is_each_agents_own(place, runtime):
    use(runtime, "memory", command="create", path=NOTES, file_text="kept\n")
    with paddock.open(place.project) as again:
        content, _ = use(again, "memory", command="view", path=NOTES)
        assert content.endswith("     1\tkept")
    assert place.run("agent", "create", "other").status == 0
    with paddock.open(place.project, agent="other") as other:
        content, is_error = use(other, "memory", command="view", path=NOTES)
        assert (is_error, "kept" in content) == (True, False)
    assert not [name for name in ("notes.md", "memories") if (place.project / name).exists()]


# The patches of OpenAI


def test_the_documented_operations_of_apply_patch(place, runtime):
    lib = place.project / "lib"
    assert patch(runtime, type="create_file", path="lib/a.py", diff="+one\n+two\n") == {
        "status": "completed",
        "output": "Created lib/a.py",
    }
    assert (lib / "a.py").read_bytes() == b"one\ntwo"
    assert patch(runtime, type="update_file", path="/lib/a.py", diff="@@\n one\n-two\n+2\n") == {
        "status": "completed",
        "output": "Updated /lib/a.py",
    }
    assert (lib / "a.py").read_bytes() == b"one\n2"
    assert patch(runtime, type="delete_file", path="lib/a.py") == {
        "status": "completed",
        "output": "Deleted lib/a.py",
    }
    assert not (lib / "a.py").exists()
    assert [tool for tool, _, _ in entries(place, "TOOL_INTENT")] == [
        "create_file",
        "patch_file",
        "delete_file",
    ]


@pytest.mark.parametrize(
    ("operation", "output"),
    [
        (
            {"type": "update_file", "path": "lib/baz.py", "diff": "@@\n-a\n+b\n"},
            "Error: File not found at path 'lib/baz.py'",
        ),
        ({"type": "delete_file", "path": "x"}, "Error: File not found at path 'x'"),
        (
            {"type": "create_file", "path": "primes.py", "diff": "+x\n"},
            (
                "Error: apply_patch cannot create primes.py because it already exists. Use an "
                "update_file operation to change an existing file."
            ),
        ),
        (
            {"type": "update_file", "path": "primes.py", "diff": "@@\n-zzz\n+b\n"},
            "Error: Invalid Context 0: 'zzz'",
        ),
        (
            # Its first hunk has a place.
            {"type": "update_file", "path": "primes.py", "diff": "@@\n-        pass\n@@\n-zzz\n"},
            "Error: Invalid Context 3: 'zzz'",
        ),
        ({"type": "create_file", "path": "x", "diff": "x\n"}, "Error: Invalid Add File Line: 'x'"),
        (
            {"type": "update_file", "path": "closed/x", "diff": "@@\n-a\n"},
            "Error: 'tool:file:str_replace closed/x' is denied",
        ),
        ({"type": "create_file", "path": "../x", "diff": "+x"}, "Error: path escapes root: '../x'"),
        ({"type": "move_file", "path": "x"}, "Error: Invalid `type` parameter: 'move_file'"),
        ({"type": "update_file", "path": "primes.py"}, "Error: path and diff are required"),
        ({"type": "create_file", "path": "x"}, "Error: diff is required"),
        (
            {"type": "update_file", "path": "primes.py", "diff": "@@\n         pass\n"},
            "Error: the edit does not change 'primes.py'\nthere is nothing to change",
        ),
        (
            {
                "type": "update_file",
                "path": "primes.py",
                "diff": "@@\n-        pass\n+        x\n",
                "move_to": "moved.py",
            },
            "Error: unknown argument 'move_to'\nthe arguments are: path, diff",
        ),
        ({}, "Error: Invalid `type` parameter: 'None'"),
    ],
)
def test_a_patch_that_does_not_fit_fails_and_changes_nothing(place, runtime, operation, output):
    before = set(place.project.rglob("*"))
    answer = patch(runtime, **operation)
    assert (answer["status"], answer["output"][: len(output)]) == ("failed", output)
    assert (place.project / "primes.py").read_text() == PRIMES
    assert set(place.project.rglob("*")) == before
