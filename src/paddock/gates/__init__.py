"""Gates: what has to be true of a plane, each one looked at and none of it believed.

    results    pass, fail, not applicable; which gates there are; their port and their entries
    ground     what the gates look at, read once
    owned      G0B: what really stands under a plane, and whose it is
    checks     every other gate, each with what it proves; running them

Rules: a gate that looked at nothing says `not applicable`, which is no pass. What cannot be
read is a failure, never a reason to pass over it. Nothing here writes; what a gate said is
recorded by whoever ran it.

All gates but G6 stand on what the packages say of themselves. So each first asks whether
that is what the packages ledger says (`Ground.deviations`), and fails where it is not.
Dangers: a gate that passes because it found nothing to look at is worse than none. Names and
texts come from files that a stranger may have written.
"""
