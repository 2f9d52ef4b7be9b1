"""`paddock hook`: judge the tool calls of a client that keeps its built-in tools.

A client (Claude Code, Codex) starts the hook at each tool call: JSON in on stdin, JSON out.

    launch, lean/   the installed entry point; the fast path, which decides from a policy image
    full, context   the full path, used when there is no valid image, which it then writes
    unconfined      the paths that a command line outside the sandbox would touch
    confinement, tickets   detect a usable sandbox; single-use approvals from the client's prompt
    exec, wrapped   run a client's command in Paddock's sandbox
    command, settings/, scratch_command   the command lines; the client's settings files
"""
