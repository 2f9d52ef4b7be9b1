"""The bytes of a ledger: what a line may be, and how lines are chained. Pure.

    line, lines      the bytes of one line, without slow imports; an entry as a line, and back
    notes            what an auditor keeps: the tree over the lines (RFC 6962), signed notes of it

A value has one spelling, and whoever reads a line writes it again and compares.
"""
