"""The composition root: connect ports with implementations; the acts that interfaces offer.

    project, project_open  read a root with its plane and policy; open or create one
    runtimes               an agent's tools behind the dispatcher; `paddock.open`, `paddock.check`
    shells                 an agent's sandboxed commands
    sessions               a model's session; `paddock.open_session`; recorded and scripted models
    ledgers, audit         create ledgers, with keys and anchors; verify, accept, export them
    push                   push ledgers to a collector, and record what it accepted
    history, undo          stored contents and the inbox; show past changes, and undo them
    trust, questions       accept policies and MCP servers; try a policy without accepting it
    inbox_answers          answer a kept request, carry it out, or make a rule of it
    agents                 declare, change and remove agents
    packages, extensions   install packages and run gates; load packages' and MCP servers' tools
    bootstrap              create a bare plane from packages, or repair one

Import from its modules: each command loads only those that it needs.
"""
