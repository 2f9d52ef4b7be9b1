"""What was replaced, and how it comes back.

    objects      the one store of contents, named by their digest
    shelf        its directories, and contents on their way to their names
    holding      a large file becomes an object without being copied
    contents     reading one object      packing   how it stands on the disk
    locking      who may change the store when     usage     how much it holds
    pruning      how the store keeps to its size: pack, then forget the oldest
    newest       what the newest call replaced, which stays
    looking      reading all of it without touching anything
    notes        what a call is about to do, on disk before it does it
    keeping      the port by which the workspace hands over what it is about to replace
    journal      sets of changes that happen as a whole, whatever ends the process
    journal_format  one entry of it, and what a crash tore
    blobs        contents that the ledger names by a salted digest, and that can be erased
    pins         contents that wait for an answer, and are not pruned meanwhile

Before a file changes, its content stands in the store, durably; then its call's note
does; then it changes. So at any moment of a crash the old content is in its place or
in the store, and what call replaced it is known. The ledger is the index: a note is
needed only until the ledger has the call's result.

Dangers: whoever can write to the store can forge what undo brings back, so every object
is checked against its name when it is read; undo writes through the workspace like any
tool, so it reaches nothing that the fence does not.
"""

from paddock.history.objects import ObjectStore

__all__ = ["ObjectStore"]
