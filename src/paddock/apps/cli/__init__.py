"""The command line: one module a command, loaded only when it is called.

    entry        where the program begins, deaf to no signal
    main         finds the command, turns errors into exit codes, reports a defect
    console      what a command talks to, its exit codes, a person's yes
    options, project       what it was asked, what it works on
    setup, doctor*, sandbox      init, where, trust and agent; the host; what commands may reach
    call, run    tools and calls; models and sessions
    policy*, approvals     what decides, and who was asked
    history      history, diff and undo: what calls changed
    ledger*, collector     what is on record, here and of many hosts
    package, bootstrap     what a plane is made of, and its gates
    demo*, completion      the tour; a shell's completion

Rules kept here:
  * results on stdout, everything else on stderr; `--json` gives one JSON value;
  * no traceback ever reaches a user: a defect has an id and a report file;
  * names and texts from elsewhere are escaped before a terminal sees them.
"""
