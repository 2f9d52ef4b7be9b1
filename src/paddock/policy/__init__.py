"""Pure: rules and an action → a decision. Text in, values out; no disk, no clock.

    rules                    rules, profiles and actions as text, each with its place
    load, positions          reading a policy file strictly; lines and problems
    settings, presets        the tables other than rules; the built-in defaults
    arguments                a rule's conditions on the arguments of a call
    engine                   files → `Policy`, and the paths that agents may never touch
    decide, network          a call → the strictest answer; what a command may reach
    profiles                 profiles compiled for judging calls and command lines
    globs, pathset           path patterns by gitignore's rules, lists of them, agent permissions
    compiled                 rules as plain values and how to match them; also used by the hook
    commands/, questions/    parsing shell lines; explain, what-if and diff

Grammars and the command parser are loaded when a file or a command is first read.
"""
