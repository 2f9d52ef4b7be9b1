"""One file per tool: its spec, its argument type, its handler.

    spec, toolsets                        what a tool is; which there are; what they are judged as
    arguments            from JSON to typed values, and the fields that results share
    view, listing, grep                                     tools that look
    write, replace                                                          tools that write
    move, shell                                        tools that move, remove and run
    plane                                     tools that ask about the plane
    search_rows                                   what those that look have in common
    effects, ports                                             and those that change something
                                               and those that run commands

A tool gets ports (the workspace, what may be shown), never a path of the host.
It turns bound arguments into a plan (resolved paths and the actions to be
judged) and, once policy and approval have said yes, carries out that plan: what
was judged is what is used. A tool decides nothing about permission.
"""
