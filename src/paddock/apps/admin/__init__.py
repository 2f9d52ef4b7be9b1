"""`paddock admin`: a shell in which an operator talks with an agent.

    shell        the loop: read, do, show; it knows two ports and no terminal
    ports        Screen and Keyboard
    plain        both for pipes, dumb terminals and screen readers
    terminal     both for a real terminal (prompt_toolkit draws the input, rich the rest)
    turn         what happens in a turn, as it is shown; calls: the calls of a session
    question     what somebody is asked before an approval; approver puts it
    commands     `/help` and all the others, by groups
    blocks       what can be shown, as values; drawing turns them into text

Threat: a model, a file or a tool's result writes terminal sequences, direction
overrides or invisible characters, to draw a question or an answer of its own. Nothing
is shown but through `shown_text` (`drawing`), and in a question through `reveal`.
"""
