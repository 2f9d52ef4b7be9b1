"""Files that survive a crash: what changes a disk, and who may.

    disk     every call that changes one        atomic    small files of our own, whole
    locks    flock(2), and forked children

By descriptor and name where others can move things; by path only where nobody else can.
"""
