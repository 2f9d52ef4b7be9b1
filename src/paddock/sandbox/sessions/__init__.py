"""Persistent shell sessions and background commands.

    shared_state the network and the /tmp that the commands of one session share; directory,
                variables, functions, aliases and options passed from one shell to the next
    process     one running command: its output, its input, its view of the workspace, its end
    client_session the commands of one client's session, each in a process of its own
    sessions    the sessions and processes of one agent's shell

A snapshot is untrusted: only the agent's next command reads it, nothing on the host does.
"""
