"""The bytes of a ledger: what a line may be, and how lines are chained. Pure.

    line, lines      the bytes of one line, without slow imports; an entry as a line, and back
    notes            the Merkle tree over the lines (RFC 6962), its proofs, signed checkpoints

A value has one encoding: a reader encodes what it read again, and compares the bytes.
"""
