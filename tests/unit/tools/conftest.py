"""A desk: one workspace on a real directory, and tools that run on it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import Struct

from paddock.tools.spec import Ports, Tool, ToolOutput
from paddock.tools.toolsets import all_tools
from paddock.values.calls import Json
from paddock.workspace import Workspace
from paddock.workspace.workspace import Openat2Resolution, WalkResolution
from tests.support.shown import Shows

TOOLS = {tool.name: tool for tool in all_tools()}


class Desk(Struct, frozen=True, dict=True):
    root: Path
    ports: Ports

    def tool(self, name: str) -> Tool[Any]:
        return TOOLS[name]

    def plan(self, name: str, /, **arguments: Json) -> Any:
        tool: Tool[Any] = TOOLS[name]
        bound, _ = tool.binder.bind(arguments)
        return tool.handler.resolve(bound, self.ports)

    def run(self, name: str, /, **arguments: Json) -> ToolOutput:
        return TOOLS[name].handler.run(self.plan(name, **arguments), self.ports)

    def actions(self, name: str, /, **arguments: Json) -> list[str]:
        return [str(action) for action in self.plan(name, **arguments).actions]

    def write(self, name: str, content: bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def tree(self) -> dict[str, bytes | str]:
        """Every file's bytes and every link's text, by relative path."""
        found: dict[str, bytes | str] = {}
        for path in sorted(self.root.rglob("*")):
            name = str(path.relative_to(self.root))
            if path.is_symlink():
                found[name] = str(path.readlink())
            elif path.is_file():
                found[name] = path.read_bytes()
        return found


@pytest.fixture(params=["openat2", "walk"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    root = tmp_path / "work"
    root.mkdir()
    resolution = Openat2Resolution() if request.param == "openat2" else WalkResolution()
    with Workspace.open(str(root), resolution) as workspace:
        yield Desk(root, Ports(workspace, Shows(frozenset({"secret.txt"}), ("closed/",))))
