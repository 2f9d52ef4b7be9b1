"""The launcher, and the code that runs inside the sandbox before the command.

    main, protocol       the launcher; its orders and reports; a stage's directories
    confine              confines a process in new namespaces: its files and its private network
    init                 the first process of a pid namespace: runs one command and reports its end
    supervisor           the same without namespaces: the program that supervises such a command

Nothing slow is imported here (no `typing`, `dataclasses`, `enum`, `socket`, `json`), and of the
package only this folder and `kernel`: a test checks the list.
"""
