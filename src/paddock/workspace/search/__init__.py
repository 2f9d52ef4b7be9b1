"""Searching contents and names. ripgrep proposes, the workspace disposes.

    asked       what a search is asked for, and what it answers
    content     the first lines that match, the same ones every time
    names       the first entries that a glob means
    counted     lines that match with a count of what was passed by
    ordered     files in a given order, until there are enough matches
    binaries    what ripgrep would read for nothing
    engine      runs of ripgrep, and what becomes of what they propose
    program     which program that is, and its command lines
    child       one run of it
    proposals   its output taken apart
    confirm     reading again what it proposed
    walk        a walk of our own, in byte order
    until       how long a search may go on
    globs       what a glob means           ignore      what .gitignore leaves out
The face is `search_content`, `search_names` and `search_counted`; they are not imported here: who
searches nothing shall not pay for starting programs.

Threat: ripgrep opens names, and a name can be swapped for a link while it runs. So a row is a
claim: the workspace opens that file by its own descriptors, finds that line, and shows its bytes.
Policy is asked for each file; one that may not be viewed counts for nothing. What stays: how
long ripgrep took for a file outside can be felt.
"""
