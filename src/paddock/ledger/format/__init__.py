"""The ledger's byte format: valid lines and their chain. Pure.

    line, lines      encode one line without slow imports; convert entries to lines and back
    notes            the Merkle tree over the lines (RFC 6962), its proofs, signed checkpoints

A value has exactly one encoding: a reader re-encodes each line and compares the bytes.
"""
