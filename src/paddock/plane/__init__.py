"""Where things are on disk, whose word counts, and who may act.

    environment, discover        what the process was started with, with the dual gate; the root
    layout, json_files           the plane's paths; JSON files as typed values
    create                       a plane, made once, of a project or governing itself
    trust                        the policy in force, and whether the user has looked at it
    grants                       what it grants beyond the defaults, shown before it is trusted
    agents                       who may act, and where
    admin                        the admin agent of a bare plane, and its prompt contracts
    tokens                       what lies with the user and never in a plane; one session at a time
    clients                      another program's configuration, edited as it was read; which of
                                 them run with the hook, and whether they started us
    scratch                      scratch folders of a project
    records                      what governance is told, and where everything is (pure)

This folder finds the root that is worked on, opens its plane, which lies outside the project,
and reads policy files, agents and the user's trust. It judges no call.
"""
