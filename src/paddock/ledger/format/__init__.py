"""The bytes of a ledger: what a line may be, and how lines are chained. Pure.

Dangers: two spellings of one value, so that a line could be changed and hash the same; a reader
that takes what a writer would never write; numbers and texts that another language reads
otherwise. So there is one spelling, whoever reads writes it again and compares, and
docs/formats/ledger.md says every byte.
"""
