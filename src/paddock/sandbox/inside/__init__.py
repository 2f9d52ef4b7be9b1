"""What runs in the launcher and inside the sandbox, before the command does.

    main, orders         the launcher, and what it is told and answers
    serving              one command: its order in, its memory, its report out
    confine              a process in new namespaces, and what it finds there
    stages               a stage's directories, made and removed, whatever a command made of them
    first                the first process of its pid namespace
    keeper, landlocked   the same without namespaces

Nothing slow is loaded here (no `typing`, `dataclasses`, `enum`, `socket`, `json`), and of the
package only this folder and `kernel`: a test lists it.
"""
