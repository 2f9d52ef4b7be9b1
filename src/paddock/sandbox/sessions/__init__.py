"""Shells that last: what one command leaves to the next, and commands that go on running.

    shared_state the network and the /tmp that the commands of one session share; directory,
                variables, functions, aliases and options, from one shell to the next
    process     one running command: its output, its input, its view of the workspace, its end
    sessions    the sessions and processes of one agent's shell

A snapshot is the agent's word: it is read by its own next command, and by nothing of the host.
"""
