"""From the layer that a command wrote to what lands in the workspace, or is kept, or is refused.

    upper.py                   the layer as the kernel left it; what is mounted over the workspace
    differences.py             one entry for each path, beside what the workspace has
    judging.py settling.py     each entry by the policy of the file tools; settled together,
                               but for what this user cannot bring in
    units.py                   a repository's changes land together, or none of them does
    losing.py                  how much of what was there it would change or take away
    diffing.py                 the same as a diff, for whoever is asked
    commit.py                  one set of changes lands, or nothing does
                                 what a change stands on besides its own entry, asked as it lands
    parking.py                 a set that is kept for an answer, as data

Dangers: the command chose every name, type and mode in the layer; the workspace goes on
changing under other hands while it is read; a crash may come between two renames. So a
layer is read by descriptors and never followed, what was compared is compared again as
it lands, and a set is on record before its first change.
"""
