"""Entry points: the programs and servers through which calls arrive.

    cli/     the command line
    admin/   the admin shell in a terminal
    hook/    the hook of coding agents
    mcp/     the MCP server
    web/     the console, a page in the browser
    command  shared: a command as a table row, and how its reply is printed
    console  shared: streams and environment of a command, exit codes, yes/no questions
    listener shared by the servers that speak HTTP

Each may import the runtime, but not another entry point. Only these print and exit.
"""
