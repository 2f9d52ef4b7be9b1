"""Crash-safe files, and the history of replaced contents.

    disk, atomic, locks      system calls that change files; small atomic files; flock(2) and forks
    objects                  contents by digest, within a size bound
    history, notes, journal  replaced contents, notes of pending changes, atomic sets of changes

Paths are used only where no other user can move files; elsewhere a descriptor and a name.
"""
