"""What of a git directory a command may change, and which git directories it touches.

    names.py          what ordinary git operations write: names, and what may stand in them. Pure
    rules.py          which of it may change under `git = "safe"` or `"read-only"`. Pure
    entries.py        the entries of an index, of every version; split and sparse ones. Pure
    tracked.py        which closed names git tracks, each by the index of its own repository
    folders.py        an index where the workspace is a folder of the work tree. Pure
    index.py          whether the paths in an index are ones that git would enter. Pure
    repositories.py   the git directories that a command's changes touch, before and after
    worktrees.py      the work trees of these, and the repository that each belongs to
    named.py          what a work tree's index and HEAD name, before and after
    trees.py          what a commit names, by a git that believes nothing of a repository

Dangers: a git directory runs code for whoever uses it next, by hooks, by configuration
and by what its own files point at, and anything may call itself one. So what is not an
ordinary operation's work is refused, by name and by content.
"""
