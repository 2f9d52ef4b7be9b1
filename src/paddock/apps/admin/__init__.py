"""`paddock admin`: a shell in which an operator talks with an agent.

    command      `paddock admin`; opening: the shell put together, with a terminal or without
    shell        the loop: read, do, show; it knows two ports and no terminal
    desk         what shell and commands work with; sandboxed: what this host can enforce
    plain        Screen and Keyboard
    plain        both for pipes, dumb terminals and screen readers
                   a screen for programs
    terminal     both for a real terminal (prompt_toolkit draws the input, rich the rest)
    panel, completion             the lower part of that, what keys do there, what was typed before
    completion   what can stand at the cursor; completer: the same for prompt_toolkit
                   what happens in a turn, as it is shown; calls: the calls of a session
    question     what somebody is asked before an approval; approver puts it
                   the difference that a call would make; reveal: what would not be seen, visible
    commands*    `/help` and all the others, by groups
    show         what can be shown, as values; drawing and rich_drawing turn them into text
                   what holds right now

Threat: a model, a file or a tool's result writes terminal sequences, direction
overrides or invisible characters, to draw a question or an answer of its own. Nothing
is shown but through `shown_text` (`drawing`), and in a question through `reveal`.
"""
