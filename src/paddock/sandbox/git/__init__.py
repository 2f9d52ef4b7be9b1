"""What of a git directory a command may change, and which git directories it touches.

    rules.py     what a command may change: by name, content and preset. Pure
    index.py     an index, of every version: read, judged, and shown of a folder
    layout.py    the git directories that changes touch, and their work trees
    objects.py   what commits name, by a git that believes nothing of a repository
    tracked.py   which closed names an index names; what index and HEAD name, before and after

A git directory runs code for its next user, by hooks, configuration and what its files point
at: what is not an ordinary operation's work is refused, by name and by content.
"""
