"""A server as the official Python SDK's first page has it: `python mcp_sdk.py ROOT`."""

import sys
from pathlib import Path

from mcp.server.mcpserver import MCPServer

server = MCPServer("read")


@server.tool()
def read(path: str) -> str:
    """Read a file, whatever it is."""
    return Path(sys.argv[1], path).read_text(encoding="utf-8")


server.run()
