"""The version that a call acts on: refused where it holds no more, with what changed since."""

from collections.abc import Mapping

import pytest
from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import FileChangedError, PathNotFoundError
from paddock.tools.toolsets import all_tools
from paddock.workspace import version_of

OLD, NEW = b"one\ntwo\n", b"one\n2\n"
DIFF = "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2"
AGAIN = "read it again, then repeat the call with the new version; what changed:\n"
ACTS = [
    ("create_file", {"content": "x"}),
    ("write_file_dev", {"content": "x"}),
    ("str_replace", {"old_str": "one", "new_str": "x"}),
    ("insert_text", {"insert_line": 1, "insert_text": "x"}),
    ("patch_file", {"diff": "-one\n+x"}),
    ("edit_file_dev", {"old_string": "one", "new_string": "x"}),
    ("move_file", {"to": "b"}),
    ("delete_file", {}),
]
CREATORS = {"create_file", "write_file_dev"}


class Remembers(Struct, frozen=True, dict=True):
    """Contents by path and version."""

    contents: Mapping[tuple[str, str], bytes]

    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        found = self.contents.get((path, version))
        return found if found is not None and len(found) <= bytes_max else None


@pytest.fixture
def remembering(desk):
    """A desk that knows what `a` and `closed/a` held before."""
    names = ("a", "closed/a", "binary")
    earlier = Remembers({(name, version_of(OLD)): OLD for name in names})
    return replace(desk, ports=replace(desk.ports, earlier=earlier))


def refused(desk, tool, **given) -> tuple[str, str]:
    """Message and hint; run and, where an approver would be asked, pinned alike."""
    with pytest.raises(FileChangedError) as caught:
        desk.run(tool, **given)
    with pytest.raises(FileChangedError) as pinned:
        desk.tool(tool).handler.pin(desk.plan(tool, **given), desk.ports)
    assert pinned.value.hint == caught.value.hint
    return caught.value.message, caught.value.hint


@pytest.mark.parametrize(("tool", "given"), ACTS)
def test_a_version_that_holds_no_more_is_refused_with_what_changed(remembering, tool, given):
    remembering.write("a", NEW)
    said = f"'a' is no longer at version '{version_of(OLD)}': it is at {version_of(NEW)}"
    found = refused(remembering, tool, path="a", if_version=version_of(OLD), **given)
    assert found == (said, AGAIN + DIFF)
    assert remembering.tree() == {"a": NEW}
    remembering.run(tool, path="a", if_version=version_of(NEW), **given)
    assert remembering.tree() != {"a": NEW}


@pytest.mark.parametrize(("tool", "given"), ACTS)
def test_what_the_agent_may_not_view_is_in_no_difference(remembering, tool, given):
    remembering.write("closed/a", b"hidden\n")
    if tool == "move_file":
        given = {"to": "closed/b"}
    for version in (version_of(OLD), "absent"):
        message, hint = refused(remembering, tool, path="closed/a", if_version=version, **given)
        assert hint.endswith("; what changed:\n[no diff: you may not view this file]")
        assert "hidden" not in message + hint
    assert remembering.tree() == {"closed/a": b"hidden\n"}


def test_what_is_not_kept_is_said_with_the_size_of_what_is_there(remembering):
    remembering.write("other", NEW)
    _, hint = refused(remembering, "delete_file", path="other", if_version=version_of(OLD))
    assert hint == f"{AGAIN}[no diff: its earlier content is not stored; it has 6 bytes now]"


def test_of_what_is_no_text_the_sizes_are_told(remembering):
    remembering.write("binary", b"\0\1\2")
    _, hint = refused(remembering, "delete_file", path="binary", if_version=version_of(OLD))
    assert hint == f"{AGAIN}[no diff: not text; 8 bytes then, 3 bytes now]"


def test_a_long_difference_is_cut_and_says_so(remembering):
    remembering.write("a", b"".join(b"%d\n" % number for number in range(10_000)))
    _, hint = refused(remembering, "delete_file", path="a", if_version=version_of(OLD))
    assert hint.count("\n") < 50
    assert hint.endswith("more lines of the diff]")


@pytest.mark.parametrize("tool", sorted(CREATORS))
def test_a_version_of_what_is_gone_is_refused_without_a_difference(remembering, tool):
    found = refused(remembering, tool, path="a", content="x", if_version=version_of(OLD))
    said = f"'a' is not at version '{version_of(OLD)}': it does not exist"
    assert found == (said, "leave if_version out to create it")
    assert remembering.tree() == {}


@pytest.mark.parametrize("path", ["a", "gone/a"])
@pytest.mark.parametrize(("tool", "given"), [act for act in ACTS if act[0] not in CREATORS])
def test_a_version_of_what_cannot_be_created_is_refused_too(remembering, tool, given, path):
    found = refused(remembering, tool, path=path, if_version=version_of(OLD), **given)
    said = f"'{path}' is not at version '{version_of(OLD)}': it does not exist"
    assert found == (said, "it was moved or deleted meanwhile; list the files")
    with pytest.raises(PathNotFoundError):
        remembering.run(tool, path=path, **given)
    assert remembering.tree() == {}


@pytest.mark.parametrize("tool", sorted(CREATORS))
def test_absence_that_holds_no_more_has_changed_too(desk, tool):
    desk.run(tool, path="a", content="one\n", if_version="absent")
    version = version_of(b"one\n")
    found = refused(desk, tool, path="a", content="two\n", if_version="absent")
    hint = "read it, then repeat the call with its version, or use another path; what changed:\n"
    difference = "--- a/a\n+++ b/a\n@@ -0,0 +1 @@\n+one"
    assert found == (f"'a' exists now, at {version}", hint + difference)
    assert desk.tree() == {"a": b"one\n"}


@pytest.mark.parametrize("tool", sorted(CREATORS))
def test_a_directory_where_nothing_was_to_be_is_no_absence(desk, tool):
    (desk.root / "a").mkdir()
    message, hint = refused(desk, tool, path="a", content="two\n", if_version="absent")
    assert message == "'a' exists now"
    assert hint.endswith("what changed:\n[no diff: 'a' is a directory]")
    assert (desk.root / "a").is_dir()


def test_absence_is_offered_where_it_can_hold_alone():
    offers = {
        tool.name: "'absent'" in tool.binder.declared["if_version"].description
        for tool in all_tools()
        if "if_version" in tool.binder.declared and not tool.name.startswith("memory_")
    }
    assert offers == {tool: tool in CREATORS for tool, _ in ACTS}
