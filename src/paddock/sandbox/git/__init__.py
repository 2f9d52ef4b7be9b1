"""Decide which changes a command may make in git directories.

    rules.py     allowed changes by name, content and preset. Pure
    index.py     index files of every version: read, checked, and reduced to a folder
    layout.py    the git directories that changes touch, and their work trees
    objects.py   paths in commits, read by a git that trusts nothing in the repository
    tracked.py   closed names in an index; paths in index and HEAD, before and after

A git directory makes its next user run code, through hooks, configuration and the targets of its
files: a change that no ordinary operation makes is refused, by name and by content.
"""
