"""Search contents and names. ripgrep proposes matches; the workspace confirms them.

    request     the request, result and time limit of a search
    grep        search contents for the first matches; also with counts of skipped files
    ripgrep     find, run and parse ripgrep       confirm     read proposed lines again
    walk        walk files in byte order, by .gitignore; search names
    globs       compile search globs
Use `search_content`, `search_names` and `search_counted`. They are not imported here, so that
other calls need not load the code that starts programs. Names need only the walk: for a few
thousand files it is faster than starting a program.

Threat: ripgrep opens names, and a name can be swapped for a link while it runs. So a row is only a
claim: the workspace opens the file by its descriptors, finds the line, and shows its bytes. Policy
is asked for each file; one that may not be viewed has no effect on the result. What remains: the
time that ripgrep took for a file outside can be measured.
"""
