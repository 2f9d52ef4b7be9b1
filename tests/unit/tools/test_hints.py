"""Every error of a tool says what to do next."""

import errno
import os

import pytest

from paddock import limits
from paddock.errors import InvalidArgumentsError, ToolError
from paddock.text.json import parse_object
from paddock.tools.toolsets import all_tools
from paddock.workspace import version_of
from paddock.workspace.failures import converted
from paddock.workspace.paths import unchecked_path

OTHER = version_of(b"other")
PATHS = {
    "nothing is there": "none",
    "a FIFO": "fifo",
    "a link that leads to itself": "loop",
    "a link whose text is no path": "odd",
    "a control character": "a\nb",
    "half of a surrogate pair": "\ud800",
    "nothing at all": "",
    "it leads out": "../a",
    "another absolute path": "/etc/passwd",
    "a name of ours": ".paddock-tmp-00000000000000000000000000000000",
    "a file as a directory": "a/",
    "below a file": "a/b",
    "a long name": "n" * 300,
    "a long path": "n/" * limits.path_bytes_max,
    "a deep path": "n/" * (limits.path_depth_max + 1),
}
ON_PATHS = {
    "view": {},
    "read_file": {},
    "str_replace": {"old_str": "x", "new_str": "y"},
    "edit_file_dev": {"old_string": "x", "new_string": "y"},
    "move_file": {"to": "b"},
    "delete_file": {},
    "ls": {},
    "list_files": {},
    "find": {"pattern": "*"},
    "grep": {"pattern": "x"},
    "grep_dev": {"pattern": "x"},
}
OTHERS = [
    *(("create_file", {"path": path, "content": "x"}) for path in ("d", "d/", ".", "fifo", "a/b")),
    *(("edit_file_dev", {"path": p, **ON_PATHS["edit_file_dev"]}) for p in ("d", "d/", ".")),
    *(("str_replace", {"path": p, **ON_PATHS["str_replace"]}) for p in ("d", "d/", ".", "binary")),
    *(("move_file", {"path": "a", "to": to}) for to in ("d", "d/", ".", "a/b", "fifo", "passed/b")),
    *(("move_file", {"path": path, "to": "b"}) for path in (".", "d", "fifo", "none")),
    *(("delete_file", {"path": path}) for path in (".", "d", "fifo", "passed/x")),
    ("move_file", {"path": "empty", "to": "empty/b"}),
    ("create_file", {"path": "a", "content": "x", "if_version": "absent"}),
    ("create_file", {"path": "d", "content": "x", "if_version": "absent"}),
    ("create_file", {"path": "none", "content": "x", "if_version": OTHER}),
    ("create_file", {"path": "a", "content": "x", "if_version": OTHER}),
    ("create_file", {"path": "a", "content": "x\0"}),
    ("create_file", {"path": "a"}),
    ("create_file", {"content": "x"}),
    ("write_file_dev", {"path": "a", "content": "x", "if_version": OTHER}),
    ("write_file_dev", {"path": "new/a", "content": "x"}),
    ("delete_file", {"path": "a", "if_version": OTHER}),
    ("str_replace", {"path": "a", "old_str": "x", "new_str": "x"}),
    ("str_replace", {"path": "a", "old_str": "never", "new_str": "x"}),
    ("str_replace", {"path": "a", "old_str": "o", "new_str": "x"}),
    ("edit_file_dev", {"path": "a", "old_string": "o", "new_string": "x"}),
    ("view", {"path": "a", "path_": "a"}),
    ("view", {"path": "binary"}),
    ("grep", {"pattern": "("}),
    ("grep", {"pattern": "x\0"}),
    ("grep", {"pattern": "x" * (limits.search_pattern_bytes_max + 1)}),
    ("find", {"pattern": "/a/../b"}),
    ("query_ledger", {"ledger": "none"}),
    ("query_ledger", {"since": "yesterday"}),
    ("gate_check", {"gate": "G9"}),
    ("write_output", {"name": "a/b", "content": "x"}),
    ("run_shell", {"command": "true"}),
]


@pytest.fixture
def ground(desk):
    desk.write("a", b"one\ntwo\n")
    desk.write("binary", b"\0\1")
    desk.write("d/x", b"x")
    (desk.root / "empty").mkdir()
    for link, text in {"loop": "loop", "odd": "a\nb", "passed": "d"}.items():
        (desk.root / link).symlink_to(text)
    os.mkfifo(desk.root / "fifo")
    return desk


def hint_of(ground, tool, given) -> str:
    with pytest.raises(ToolError) as caught:
        ground.run(tool, **given)
    return caught.value.hint


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS.keys())
def test_a_path_that_cannot_be_used_is_refused_with_what_to_do(ground, path):
    said = {}
    for tool, more in ON_PATHS.items():
        try:
            ground.run(tool, path=path, **more)
        except ToolError as error:
            said[tool] = error.hint
    assert said
    assert [tool for tool, hint in said.items() if not hint] == []


@pytest.mark.parametrize(("tool", "given"), OTHERS)
def test_a_call_that_cannot_be_made_is_refused_with_what_to_do(ground, tool, given):
    assert hint_of(ground, tool, given) != ""


@pytest.mark.parametrize(
    ("act", "closed"),
    [("read", "not readable by this user"), ("write", "not writable by this user")],
)
def test_what_the_system_refuses_is_refused_with_what_to_do(act, closed):
    path = unchecked_path("a")
    errors = [converted(OSError(code, "text"), path, act) for code in errno.errorcode]
    refused = {error.message: error.hint for error in errors if isinstance(error, ToolError)}
    assert f"cannot {act} 'a': {closed}" in refused
    assert [message for message, hint in refused.items() if not hint] == []


def _wrong_arguments():
    """For every argument of every tool: null, an array, a text or number that does not fit."""
    for tool in all_tools():
        for name, declared in tool.binder.declared.items():
            wrong = {str: ["", "\ud800", 1], int: [-1, 10**9, "1"], bool: ["true", 1]}
            wrong |= {dict[str, str]: ["A=1", {"A": 1}, {"": "x"}]}
            for value in (None, [], *wrong[declared.kind]):
                yield tool, {name: value}
        yield tool, {"no such argument": 1}
        yield tool, {}


def test_arguments_that_do_not_fit_are_refused_with_what_to_do():
    refused = {}
    for tool, given in _wrong_arguments():
        try:
            tool.binder.bind(given)
        except InvalidArgumentsError as error:
            refused[tool.name, error.message] = error.hint
    assert len(refused) > 100
    assert [call for call, hint in refused.items() if not hint] == []


@pytest.mark.parametrize(
    "source",
    [
        '{"path": "a", "path": "b"}',
        '{"offset": NaN}',
        '{"offset": %s}' % ("1" * 10_000),
        '{"path": ',
        "[]",
        b"\xff",
        "[" * 100,
        '{"a": ' * 100 + "1" + "}" * 100,
    ],
    ids=["twice", "NaN", "digits", "cut", "array", "no UTF-8", "deep", "deep object"],
)
def test_arguments_that_are_no_object_are_refused_with_what_to_do(source):
    require_hint(source)


def test_arguments_that_are_too_long_are_refused_with_what_to_do():
    # Not a case of the others: what stands in a list of cases is in memory in every test.
    require_hint(" " * (limits.argument_bytes_max + 1))


def require_hint(source):
    with pytest.raises(InvalidArgumentsError) as caught:
        parse_object(source)
    assert caught.value.hint != ""
