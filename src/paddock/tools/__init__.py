"""One file per tool: its spec, its argument type, its handler.

A tool gets ports (the workspace, what may be shown), never a path of the host.
It turns bound arguments into a plan (resolved paths and the actions to be
judged) and, once policy and approval have said yes, carries out that plan: what
was judged is what is used. A tool decides nothing about permission.
"""
