"""The plane on disk: its paths, what is trusted, and who may act.

    environment, discover        environment variables, the dual gate; which root is used
    layout, json_files           the plane's paths; JSON files as typed values
    create                       create a plane, of a project or a bare one
    trust                        the policy files in force, and whether the user accepted each
    grants                       list what a policy grants beyond the defaults, before trust
    agents                       who may act, and where
    admin                        the admin agent of a bare plane, and its prompt contracts
    tokens                       bearer tokens of the HTTP servers; the lock of an open session
    clients                      edit a client's configuration file; detect clients with the hook
                                 among this process's ancestors
    scratch                      scratch folders of a project
    records                      entries of the governance ledger; `paddock where` (pure)

This folder finds the root in use, opens its plane, which is outside the project, and reads policy
files, agents and the user's trust. It judges no calls.
"""
