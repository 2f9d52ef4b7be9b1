"""The fence for people who keep their client's own tools: `paddock hook`.

A client (Claude Code, Codex) starts it at each tool call, JSON in on stdin, JSON out.

    launch, lean/   the file that an installed command names; what runs every time, from an image
    full, context   the same where there is no image
    unconfined   what a line that no sandbox holds would touch, read off its words
    images       the compiled policy in a file, with all that it depends on
    confinement, tickets   whether commands are confined here; what a person is being asked
    exec, wrapped   a client's command, run in Paddock's sandbox
    command, settings/, scratch_command   the command lines; a client's own settings
"""
