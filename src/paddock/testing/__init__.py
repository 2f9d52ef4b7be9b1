"""Shipped fakes of the real things.

    memory_ledger, memory_collector   without a disk, without a database
    faulty_disk        a disk of which a chosen call fails

They keep the ports of the real things and pass the same suites.
"""
