"""The providers' tools and ours leave the same bytes, and the same of the tree."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.errors import ToolError
from paddock.runtime.messages import Asked, Malformed, dialect_of
from paddock.runtime.native import NativeTurn
from paddock.tools.spec import Ports
from paddock.values.calls import ToolCall
from paddock.workspace import Workspace
from tests.unit.tools.conftest import TOOLS

NAMES = st.sampled_from(["a", "b", "d/c"])
TEXTS = st.lists(st.sampled_from(["one", "two", "\n", "\r\n", " ", "é"]), max_size=8).map("".join)


class Everything:
    def is_shown(self, relative: str) -> bool:
        return True

    def may_view(self, relative: str) -> bool:
        return True

    def allows(self, action: object) -> bool:
        return True


def edits() -> st.SearchStrategy[tuple[dict[str, Any], tuple[str, dict[str, Any]]]]:
    """A native call, and the one of ours that means the same."""
    create = st.builds(
        lambda path, text: (
            {"name": "create", "path": path, "file_text": text},
            ("create_file", {"path": path, "content": text}),
        ),
        NAMES,
        TEXTS,
    )
    replace = st.builds(
        lambda path, old, new: (
            {"name": "str_replace", "path": f"/{path}", "old_str": old, "new_str": new},
            ("str_replace", {"path": path, "old_str": old, "new_str": new}),
        ),
        NAMES,
        TEXTS.filter(bool),
        TEXTS,
    )
    return create | replace


def run(ports: Ports, asked: Asked) -> str:
    if isinstance(asked, Malformed):
        return asked.refusal.code
    tool = TOOLS[asked.tool]
    try:
        arguments, _ = tool.binder.bind(asked.arguments)
        tool.handler.run(tool.handler.resolve(arguments, ports), ports)
    except ToolError as error:
        return error.code
    return "ok"


def tree(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@given(sequence=st.lists(edits(), max_size=8))
@settings(deadline=None)
def test_a_sequence_of_edits_leaves_the_same_bytes(sequence) -> None:
    with TemporaryDirectory() as native_root, TemporaryDirectory() as root:
        with Workspace.open(native_root) as native, Workspace.open(root) as ours:
            found = []
            for number, (call, (tool, arguments)) in enumerate(sequence):
                name, given_ = call["name"], {k: v for k, v in call.items() if k != "name"}
                block = {
                    "type": "tool_use",
                    "id": str(number),
                    "name": "str_replace_based_edit_tool",
                    "input": {"command": name, **given_},
                }
                asked = dialect_of("anthropic").read({"content": [block]})
                turn = NativeTurn(frozenset({block["name"]}), asked, native.names)
                (become,) = turn.asked
                theirs = run(Ports(native, Everything()), become)
                mine = run(Ports(ours, Everything()), ToolCall("", tool, arguments))
                found.append((theirs, mine))
        assert all(theirs == mine for theirs, mine in found)
        assert tree(Path(native_root)) == tree(Path(root))
