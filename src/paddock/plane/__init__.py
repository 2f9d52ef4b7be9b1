"""Where things are on disk, whose word counts, and who may act.

    environment, discover        what the process was started with; the root that is worked on
    layout, json_files           the plane's paths; JSON files as typed values
    session_lock                 one session at a time
    create                       a plane, made once, of a project or governing itself
    trust                        the policy in force, and whether the user has looked at it
    grants                       what it grants beyond the defaults, shown before it is trusted
    agents, agent_files          who may act, and where
    admin, dual_gate             the admin agent of a bare plane, and its prompt contracts
    tokens                       what lies with the user and never in a plane
    clients                      another program's configuration: where it is, edited as it was read
    client_processes             which of them run with the hook, and whether they started us
    scratch                      scratch folders of a project
    records, report              what governance is told (pure); where everything is

This folder finds the root that is worked on, opens its plane, which lies outside the project,
and reads policy files, agents and the user's trust. It judges no call.
"""
