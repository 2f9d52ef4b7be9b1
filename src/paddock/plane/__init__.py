"""Where things are on disk, whose word counts, and who may act.

    environment, discover        environment variables, the dual gate; which root is worked on
    layout, json_files           the plane's paths; JSON files as typed values
    create                       a plane, made once, of a project or governing itself
    trust                        the policy files in force, and whether the user accepted each
    grants                       what it grants beyond the defaults, shown before it is trusted
    agents                       who may act, and where
    admin                        the admin agent of a bare plane, and its prompt contracts
    tokens                       bearer tokens of the HTTP servers; the lock of an open session
    clients                      another program's configuration, edited as it was read; which of
                                 them run with the hook, and whether they started us
    scratch                      scratch folders of a project
    records                      entries of the governance ledger; `paddock where` (pure)

This folder finds the root that is worked on, opens its plane, which lies outside the project,
and reads policy files, agents and the user's trust. It judges no call.
"""
