"""Searching contents and names. ripgrep proposes, the workspace disposes.

    request     what a search is asked for, what it answers, how long it may go on
    grep        the first lines that match, the same ones every time; and with an account
    ripgrep     which program that is, how it is asked, one run of it, its output taken apart
    confirm     reading again what it proposed
    walk        a walk of our own, in byte order; the first entries that a glob means
    globs       what a glob means           ignore      what .gitignore leaves out
The face is `search_content`, `search_names` and `search_counted`; they are not imported here: who
searches no content shall not pay for starting programs.

Names are found by the walk alone: for a few thousand files it is over before a program has begun.

Threat: ripgrep opens names, and a name can be swapped for a link while it runs. So a row is a
claim: the workspace opens that file by its own descriptors, finds that line, and shows its bytes.
Policy is asked for each file; one that may not be viewed counts for nothing. What stays: how
long ripgrep took for a file outside can be felt.
"""
