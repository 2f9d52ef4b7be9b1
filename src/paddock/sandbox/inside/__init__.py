"""What runs in the launcher and inside the sandbox, before the command does.

    main, protocol       the launcher; what it is told and answers; a stage's directories
    confine              a process in new namespaces, what it finds there, its private network
    init                 the first process of its pid namespace: one command, its end and report
    supervisor           the same without namespaces: the program that keeps such a command

Nothing slow is loaded here (no `typing`, `dataclasses`, `enum`, `socket`, `json`), and of the
package only this folder and `kernel`: a test lists it.
"""
