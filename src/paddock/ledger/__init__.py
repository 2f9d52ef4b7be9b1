"""The ledger: an append-only file of entries, each chained to the one before.

The JSONL is the truth; what stands in the folder beside it can be rebuilt from it. `format/` is
its bytes, pure, as docs/formats/ledger.md has them; `ports.py` is what the runtime asks of it.
`append.py` writes, by recovery.py, head.py, and tail.py, which is all that the hook needs.
`read.py` reads, without a lock; query.py asks, of index.py where that helps; export.py hands out.
`checkpoint.py` has sizes and roots signed (signing.py) and kept elsewhere (anchors.py); tree.py
and proof.py prove by them; `verify.py` says whether a ledger is what its writers wrote.
"""
