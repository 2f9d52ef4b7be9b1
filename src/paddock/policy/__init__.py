"""Pure: rules and an action → a decision. Text in, values out; no disk, no clock.

    actions, rules           actions and rules as text, each with its place
    load, reader, places     a policy file read strictly, or what is wrong
    settings, presets        the tables without rules; what holds without any file
    engine                   files → `Policy`, and what an agent may never do
    decide                   a call → the strictest answer, and what a command may reach
    profiles, matching       rules compiled for judging, and what agents lay over them
    globs, pathset           paths by gitignore's rules, and lists of them
    compiled                 what is left of it to ask: plain values, also of the hook
    commands/, questions/    lines of shell, taken apart; why, what if, what differs

Grammars and the command parser are loaded when a file or a command is first read.
"""
