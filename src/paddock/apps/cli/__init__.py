"""The command line: one module a command, loaded only when it is called.

    entry        where the program begins, deaf to no signal
    main         finds the command and turns errors into exit codes (exits, defect)
    console      what a command talks to; options: what it was asked; project: what it works on
    call, run                        a person at the terminal, and signals
    ledger_query, history, options   what several commands have in common
    setup, doctor*                   a project and its host; sandbox: what commands may reach
    call, run                           calls, models, agents
    policy*, approvals               what decides, and who was asked
    history                          what calls changed
    ledger*, collector*              what is on record, here and of many hosts
    package*, package, bootstrap     what a plane is made of
    demo*, completion                the tour; a shell's completion

Rules kept here:
  * results on stdout, everything else on stderr; `--json` gives one JSON value;
  * no traceback ever reaches a user: a defect has an id and a report file;
  * names and texts from elsewhere are escaped before a terminal sees them.
"""
