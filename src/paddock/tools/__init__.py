"""One file per tool: its spec, its argument type, its handler.

    spec, toolsets         what a tool is, and what it asks for; which there are
    arguments              from JSON to typed values, and the fields that results share
    view, listing, grep    tools that look
    write, replace         tools that write, move, remove and edit; effects: what they changed
    shell, processes       tools that run commands, and that go on with them; outcome: how it went
    program                bytes and commands for the embedding program
    plane, memory          tools that ask about the plane; what an agent keeps in it

A tool gets ports (the workspace, what may be shown), never a path of the host.
It turns bound arguments into a plan (resolved paths and the actions to be
judged) and, once policy and approval have said yes, carries out that plan: what
was judged is what is used. A tool decides nothing about permission.
"""
