"""Whether a ledger is what its writers wrote: two passes, and what others hold of it.

    verifying.py  a ledger verified: every line, link and checkpoint
    passes.py     the quick pass, which hashes each line, and the whole one, which parses each
    results.py    what came of it, as values; checkpoints that are held elsewhere

Dangers: to trust what lies beside the lines (it can be made by whoever changed them),
to call a ledger sound of which a part was not looked at, and to run on without an end
over a file that grows. So every question is answered from the lines, what was left
out is a result of its own, and a pass ends at the size that it began with.
"""
