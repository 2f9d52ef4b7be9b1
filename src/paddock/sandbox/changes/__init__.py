"""From the layer that a command wrote to what lands in the workspace, or is kept, or is refused.

    upper                   the layer as the kernel left it; what is mounted over the workspace
    differences             one entry for each path, beside what the workspace has
    judging, settling       each entry by the policy of the file tools; then all of them together
    units                   a repository's changes land together, or none of them does
    losing                  how much of what was there it would change or take away
    diffing                 the same as a diff, for whoever is asked
    commit                  one set of changes lands, or nothing does
    parking                 a set that is kept for an answer, as data

Dangers: the command chose every name, type and mode in the layer; the workspace goes on
changing under other hands while it is read; a crash may come between two renames. So a
layer is read by descriptors and never followed, what was compared is compared again as
it lands, and a set is on record before its first change.
"""
