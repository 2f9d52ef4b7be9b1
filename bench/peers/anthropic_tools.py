"""The agent toolset of Anthropic's SDK: `python anthropic_tools.py ROOT`."""

import asyncio
import sys
from typing import Any

from anthropic.lib.tools.agent_toolset import AgentToolContext, beta_agent_toolset_20260401
from serve import Refused, serve


class Tools:
    """Its tools, called as its runner does."""

    def __init__(self, root: str) -> None:
        # Without a cap on sizes: the others have none that the comparison meets.
        context = AgentToolContext(workdir=root, max_file_bytes=None)
        self._tools = {tool.name: tool for tool in beta_agent_toolset_20260401(context)}

    def read(self, path: str, first: int = 1, count: int = 2000) -> str:
        if first == 1 and count >= 2000:
            return self._call("read", file_path=path)
        return self._call("read", file_path=path, view_range=[first, first + count - 1])

    def write(self, path: str, text: str) -> str:
        return self._call("write", file_path=path, content=text)

    def edit(self, path: str, old: str, new: str) -> str:
        return self._call("edit", file_path=path, old_string=old, new_string=new)

    def grep(self, pattern: str) -> str:
        return self._call("grep", pattern=pattern)

    def find(self, pattern: str) -> str:
        return self._call("glob", pattern=pattern)

    def _call(self, name: str, **given: Any) -> str:
        done = asyncio.run(self._tools[name].call(given))
        if not isinstance(done, str):
            raise Refused(str(done))
        return done


serve(Tools(sys.argv[1]))
