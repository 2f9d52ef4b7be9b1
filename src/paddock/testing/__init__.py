"""Test doubles for programs that embed Paddock.

    memory_ledger      without a disk
    faulty_disk        a disk on which a chosen call fails

They implement the same ports as the real ones, and pass the same contract tests.
"""
