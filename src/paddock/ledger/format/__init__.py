"""The bytes of a ledger: what a line may be, and how lines are chained. Pure.

    line, lines      the bytes of one line, without slow imports; an entry as a line, and back
    notes            what an auditor keeps: the tree over the lines (RFC 6962), signed notes of it

Dangers: two spellings of one value, so that a line could be changed and hash the same; a reader
that takes what a writer would never write; numbers and texts that another language reads
otherwise. So there is one spelling, and whoever reads writes it again and compares.
"""
