"""From the layer that a command wrote to what lands in the workspace, is kept, or is refused.

    upper                   the layer as the kernel left it; what is mounted over the workspace
    differences             one entry for each path, beside what the workspace has
    judgement               each entry by the policy of the file tools; a repository's land together
    selection               all of them together: what lands, and how much it would change
    pending                 the same as a diff, for whoever is asked; kept for an answer, as data
    commit                  one set of changes lands, or nothing does

The command chose every name, type and mode; the workspace changes meanwhile. So a layer is read
by descriptors and never followed, and what was compared is compared again as it lands.
"""
