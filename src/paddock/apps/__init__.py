"""Interfaces: where a call comes in.

    cli/     the command line
    admin/   the admin shell in a terminal
    hook/    the hook of coding agents
    mcp/     the MCP server

Each knows the runtime; none knows another. Only these print and exit.
"""
