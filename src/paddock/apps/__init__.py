"""Interfaces: where a call comes in.

    cli/     the command line
    admin/   the admin shell in a terminal
    hook/    the hook of coding agents
    mcp/     the MCP server
    web/     the console, a page in the browser
    command  for all of them: a command as a row of a table, and how its answer is printed
    console  for all of them: what a command talks to, its exit codes, a person's yes
    listener for those that serve over HTTP

Each knows the runtime; none knows another. Only these print and exit.
"""
