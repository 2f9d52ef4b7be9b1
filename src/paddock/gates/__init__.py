"""Gates: conditions that a plane must meet, each one checked on disk.

    results    the gates, their results, and the ledger entry of a result
    evidence   what the gates check, read once; who vouches for a package
    ownership  G0B: the files that are really in a plane, and their owners
    checks     every other gate, with what it proves; running them

Rules: a gate that checked nothing says `not applicable`, which is not a pass. A file that cannot
be read is a failure and is never skipped. Nothing here writes: the caller records results.

The gates rely on `HOT/installed`. So each gate fails if the packages ledger says otherwise
(`GateEvidence.deviations`), G6 after it has verified that ledger.
Dangers: a gate that passes because it found nothing to check is worse than no gate. Names and
texts come from files that a stranger may have written.
"""
