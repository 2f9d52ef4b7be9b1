"""Paddock as what each framework for agents calls a sandbox, a backend or a toolset.

    claude_agent_sdk  the permission callback, and the tools as an MCP server in the process
    deepagents        a backend: file tools, searches, shell
    inspect_ai        a sandbox for evaluations, and its configuration
    openai_agents     a sandbox's client, a shell, an editor of patches
    openai_agents_session, openai_agents_processes   what that client opens; what runs on in it
    opened            the runtime behind each of them
    pydantic_ai       a toolset; an ask is a deferred call
    strands           a sandbox

One module a framework, and an extra of its name. Importing a module loads its framework; nothing
else of Paddock does.
"""
