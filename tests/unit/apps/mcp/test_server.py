"""What the server answers, without a transport."""

import threading

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from paddock.apps.mcp.agents import ServedAgent
from paddock.apps.mcp.server import Calls, Handlers
from paddock.errors import PermissionDeniedError

PATIENCE_S = 60


class SlowDoor:
    """Opens when the loop says so, and then there is nobody."""

    def __init__(self) -> None:
        self.free = threading.Event()

    def served(self) -> ServedAgent:
        assert self.free.wait(PATIENCE_S)
        raise PermissionDeniedError("nobody is in")


def test_an_agent_that_has_to_be_opened_for_its_list_holds_nobody_up():
    door = SlowDoor()

    async def run() -> None:
        async def list_tools() -> None:
            with pytest.raises(MCPError, match="nobody is in"):
                await Handlers(door.served, Calls(1), is_structured=False).list_tools(None, None)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(list_tools)
            await anyio.lowlevel.checkpoint()
            # The loop comes here while the door is still closed.
            door.free.set()

    anyio.run(run)
