"""Test doubles for programs that embed Paddock.

    memory_ledger, memory_collector   without a disk, without a database
    faulty_disk        a disk on which a chosen call fails

They implement the same ports as the real ones, and pass the same contract tests.
"""
