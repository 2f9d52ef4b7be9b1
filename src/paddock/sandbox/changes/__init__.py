"""Judge the changes in a command's upper layer, and commit or refuse them.

    upper                   the raw changes in the overlay's upper layer
    differences             one change for each path, found by comparing with the workspace
    judgement               each change judged by policy; a repository's changes as one unit
    selection               the set that lands, with its limits and refusals
    pending                 the set as a diff for the approver, and as data until the answer
    commit                  one set of changes lands as a whole, or not at all

The command chose every name, type and mode, and the workspace changes meanwhile. So a layer is
read through descriptors, links are never followed, and every comparison is repeated on landing.
"""
