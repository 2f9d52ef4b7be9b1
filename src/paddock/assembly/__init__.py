"""The composition root: the one place where ports meet their implementations.

    project, opening         a root and its plane; what governs it, read; opened, or made
    runtimes, history, shell      an agent's tools, where it works, what it is shown
                               how far this host would hold a command, for questions
    sessions, cassettes                      a session for a program; models, real and recorded
    ledgers, auditing        made, with checkpoints sent outwards; verified from outside
    collecting               what a collector is sent
    contents, history            what ledgers name; what was replaced; what a file held before
    past, past_agents, operator_calls                    what a person asks and undoes
    policies, trust, granting  policy that is tried, accepted, extended by an approval
    approvals, granting      the inbox, answered, and carried out
    agents                       who acts
                               the admin agent of a bare plane, and its dual gate
    packages, extensions                  packages, and what they bring
                                   what is said of an archive, and how its tests run
    gates                    gates, run on a plane
    bootstrap, bootstrap_sources   how a new plane is made, and of what

Everything that a door needs is opened here: the project and its plane, the
policy in force, an agent's tools on its workspace, the ledgers. What the system
as a whole does (a policy comes into force, an agent is made) is recorded in the
governance ledger here too.

Import from its modules: each command loads those that it needs, and no other.
"""
