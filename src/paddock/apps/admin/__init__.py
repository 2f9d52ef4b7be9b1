"""`paddock admin`: a shell in which an operator talks with an agent.

    command, shell      `paddock admin`; the loop: read, run, show
    commands            `/help` and the other slash commands
    session             the open session and its runtime; the sandbox of this host
    plain               Screen and Keyboard, and both for pipes, screen readers and programs
    terminal            both for a terminal: prompt_toolkit edits the line, rich draws
    history             lines typed earlier, in a file
    question            approval questions, with hidden characters made visible
    show                values to display, and their form as plain text

Threat: a model, a file or a tool's result contains terminal sequences, direction overrides
or invisible characters that draw a fake question or answer. All output passes `shown_text`
(`show`), and in a question `reveal`.
"""
