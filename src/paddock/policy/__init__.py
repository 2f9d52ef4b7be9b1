"""Pure: rules and an action → a decision. Text in, values out; no disk, no clock.

    rules                    rules, profiles and actions as text, each with its place
    load, positions          a policy file read strictly, or what is wrong
    settings, presets        the tables without rules; what holds without any file
    arguments                what a rule wants of the arguments of a call
    engine                   files → `Policy`, and what an agent may never do
    decide, network          a call → the strictest answer, and what a command may reach
    profiles                 rules compiled for judging
    globs, pathset           paths by gitignore's rules, lists of them, what agents lay over them
    compiled                 what is left of it to ask: plain values, also of the hook
    commands/, questions/    lines of shell, taken apart; why, what if, what differs

Grammars and the command parser are loaded when a file or a command is first read.
"""
