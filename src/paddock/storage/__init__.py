"""Files that survive a crash, and what was replaced in them.

    disk       every call that changes one
    atomic     small files of our own, whole    locks     flock(2), and forked children
    objects    contents by their digest         shelf     how they stand on the disk
    prune      how the store keeps to its size  blobs     contents that can be erased
    history    what writes replaced, kept       notes     what a call is about to do
    journal    sets of changes that happen as a whole, whatever ends the process

By descriptor and name where others can move things; by path only where nobody else can.
"""
