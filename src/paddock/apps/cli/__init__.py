"""The command line: one module a noun, loaded only when it is called.

    entry        where the program begins, deaf to no signal
    main         finds the command, turns errors into exit codes, reports a defect
    setup, host  init, where, trust, agent and completion; doctor and sandbox
    planes       the planes of projects, and their removal
    call, run    tools and calls; models and sessions
    policy, approvals      what decides, and who was asked
    network      what commands reach, and the hosts of the user's package clients
    history      history, diff and undo: what calls changed
    ledger*, collector     what is on record, here and of many hosts
    package, bootstrap     what a plane is made of, and its gates
    demo         the tour

Rules kept here:
  * results on stdout, everything else on stderr; `--json` gives one JSON value;
  * no traceback ever reaches a user: a defect has an id and a report file;
  * names and texts from elsewhere are escaped before a terminal sees them.
"""
