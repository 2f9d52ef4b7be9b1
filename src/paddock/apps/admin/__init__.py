"""`paddock admin`: a shell in which an operator talks with an agent.

    command, shell      `paddock admin`; the loop: read, do, show, with a terminal or without
    commands            `/help` and all the others
    session             what shell and commands work with; what this host can enforce
    plain               Screen and Keyboard; both for pipes, screen readers and programs
    terminal            both for a real terminal: prompt_toolkit edits the line, rich draws
    history             what was typed before
    question            what is asked before an approval, with what would not be seen
    show                what can be shown, as values; the same as plain text

Threat: a model, a file or a tool's result writes terminal sequences, direction
overrides or invisible characters, to draw a question or an answer of its own. Nothing
is shown but through `shown_text` (`show`), and in a question through `reveal`.
"""
