"""The tools: each has a spec, an argument type and a handler.

    spec, toolsets         the declaration of a tool and its ports; the list of tools
    arguments              from JSON to typed values, and the fields that results share
    view, listing, grep    tools that read
    write, replace         tools that write, move, delete and edit; effects: their changes
    shell, processes       tools that run commands, and control them; outcome: their results
    program                bytes and commands for the embedding program
    plane, memory          tools that query the plane; an agent's memory in it

A tool gets ports (the workspace, the agent's view of it), never a path of the host.
It turns bound arguments into a plan (resolved paths and the actions to be
judged) and, after policy and approval allow it, carries out exactly that plan.
A tool makes no decisions about permission.
"""
