"""The ledger: an append-only file of entries, each chained to the one before.

    format/                           the bytes of docs/formats/ledger.md, PURE
    append, files, tail               write; the lean hook loads tail.py alone
    read, query, index, export        read without a lock; search; export
    checkpoint, signing, anchors      sign sizes and roots, and store the signatures elsewhere
    tree, verify                      prove lines; detect lines that were changed or cut off

The JSONL is authoritative: everything beside it but signatures and torn bytes can be rebuilt.
"""
