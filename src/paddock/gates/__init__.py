"""Gates: what has to be true of a plane, each one looked at and none of it believed.

    results    which gates there are; what one answers, counts and writes to the ledger
    evidence   what the gates look at, read once; who vouches for a package
    ownership  G0B: what really stands under a plane, and whose it is
    checks     every other gate, each with what it proves; running them

Rules: a gate that looked at nothing says `not applicable`, which is no pass. What cannot be
read is a failure, never a reason to pass over it. Nothing here writes; what a gate said is
recorded by whoever ran it.

The gates of a plane rest on `HOT/installed`. So each fails where that is not what the packages
ledger says (`GatesGround.deviations`), G6 once that ledger verified.
Dangers: a gate that passes because it found nothing to look at is worse than none. Names and
texts come from files that a stranger may have written.
"""
