"""The command line: one module a command, loaded only when it is called.

    entry        where the program begins, deaf to no signal
    main         finds the command and turns errors into exit codes (exits, defect)
    console      what a command talks to; options: what it was asked; project: what it works on
    prompt, asking, interrupts       a person at the terminal, and signals
    new_file, offers, times          what several commands have in common
    init, where, trust, doctor*      a project and its host; sandbox: what commands may reach
    call, tools, run, session, agent    calls, models, agents
    policy*, approvals               what decides, and who was asked
    history, diff, undo              what calls changed
    ledger*, collector*              what is on record, here and of many hosts
    package*, gate, bootstrap        what a plane is made of
    demo*, completion                the tour; a shell's completion

Rules kept here:
  * results on stdout, everything else on stderr; `--json` gives one JSON value;
  * no traceback ever reaches a user: a defect has an id and a report file;
  * names and texts from elsewhere are escaped before a terminal sees them.
"""
