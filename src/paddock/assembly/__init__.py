"""The composition root, where ports meet implementations; and what interfaces do with a plane.

    project, project_open  read a root with its plane and policy; open or make one, and record it
    runtimes               an agent's tools behind the dispatcher; `paddock.open`, `paddock.check`
    shells                 an agent's sandboxed commands
    sessions               a model's session; `paddock.open_session`; recorded and scripted models
    ledgers, audit         make ledgers, with keys and anchors; verify, accept, set aside, export
    push                   push ledgers to a collector, and record what it accepted
    history, undo          stored contents and the inbox; what a person looks back at and undoes
    trust, questions       accept policies and MCP servers; try a policy without accepting it
    inbox_answers          answer what the inbox holds, carry it out, or make a rule of it
    agents                 declare, change and remove agents
    packages, extensions   install packages and run gates; load packages' tools, offer MCP servers'
    bootstrap              make a bare plane of packages, or repair one

Import from its modules: each command loads those that it needs, and no other.
"""
