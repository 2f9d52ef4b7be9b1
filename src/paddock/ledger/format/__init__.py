"""The bytes of a ledger: what a line may be, and how lines are chained. Pure.

    encoding.py       an entry and its place in the chain as the bytes of its line
    compact_json.py   the one spelling of a JSON value
    genesis.py        line 0: who this ledger is, under which key
    lines.py          a line read strictly: the entry it holds, or what is wrong with it
    notes.py          signed notes and checkpoints, the text that an auditor keeps
    merkle.py         the tree over the lines' hashes (RFC 6962): roots and proofs
    posting_files.py  the bytes of what is kept beside the lines, for questions

Dangers: two spellings of one value, so that a line could be changed and hash the
same; a reader that takes what a writer would never write; numbers and texts that
another language reads otherwise. So there is one spelling, whoever reads writes it
again and compares, and docs/formats/ledger.md says every byte.
"""
