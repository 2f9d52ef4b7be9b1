"""The command line: one module per noun, loaded only when it is used.

    entry        the program's entry point; Ctrl-C works from the first import on
    main         finds the command, turns errors into exit codes, reports defects
    setup, host  init, where, trust, agent and completion; doctor and sandbox
    planes       list and remove the planes of projects
    call, run    tools and calls; models and sessions
    policy, approvals      questions to policy; requests that wait for an answer
    network      hosts that commands can reach, and those of the user's package clients
    history      history, diff and undo of changes
    ledger*, collector     the ledgers of this host, and of many hosts
    package, bootstrap     packages and gates of a bare plane; the archive that creates planes
    demo         the tour

Rules kept here:
  * results on stdout, everything else on stderr; `--json` gives one JSON value;
  * a user never sees a traceback: a defect gets an id and a report file;
  * names and texts from elsewhere are escaped before they are printed.
"""
