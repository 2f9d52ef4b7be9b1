"""The bytes of a ledger: what a line may be, and how lines are chained. Pure.

    line.py   the bytes of one line and its place in the chain, without slow imports
    lines.py  an entry as a line; a line read strictly: its entry, or what is wrong; line 0
    notes.py  signed notes and checkpoints, the text that an auditor keeps
    merkle.py the tree over the lines' hashes (RFC 6962): roots and proofs

Dangers: two spellings of one value, so that a line could be changed and hash the
same; a reader that takes what a writer would never write; numbers and texts that
another language reads otherwise. So there is one spelling, whoever reads writes it
again and compares, and docs/formats/ledger.md says every byte.
"""
