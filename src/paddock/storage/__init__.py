"""Files that survive a crash, and what was replaced in them.

    disk, atomic, locks      every call that changes one; small files, whole; flock(2) and forks
    objects                  contents by digest, within a size
    history, notes, journal  what writes replaced, what calls are about to do, sets that are whole

By descriptor and name where others can move things; by path only where nobody else can.
"""
