"""The composition root: the one place where ports meet their implementations.

Everything that a door needs is opened here: the project and its plane, the
policy in force, an agent's tools on its workspace, the ledgers. What the system
as a whole does (a policy comes into force, an agent is made) is recorded in the
governance ledger here too.

Import from its modules: each command loads those that it needs, and no other.
"""
