"""The composition root: the one place where ports meet their implementations.

    project, opening       a root, its plane, and what governs it; opened, or made
    runtimes               an agent's tools, and how far its commands would be held
    shells                 its commands
    sessions               a session, also for a program; models, real and recorded
    ledgers, auditing      made, with checkpoints sent outwards; verified from outside
    collecting             what a collector is sent
    history, past          what ledgers name, what was replaced, the inbox; what a person undoes
    trust, questions       policy that is accepted; policy that is tried, agents that were
    granting               what the inbox holds, carried out, or made a rule
    agents                 who acts
    packages, extensions   packages, and the gates that look again; their tools, and MCP servers'
    bootstrap              how a new plane is made, and of what

Import from its modules: each command loads those that it needs, and no other.
"""
