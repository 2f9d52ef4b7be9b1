"""Gates: what has to be true of a plane, each one looked at and none of it believed.

    results    pass, fail, not applicable       ground     what the gates look at, read once
    tally      counting looks and failures      walk       what really stands under a plane
    names      which gates there are            running    one gate, or all, and what stops one
    records    what governance is told          port       how tools ask
    authority  whether an approval carries      witness    what is known of a ledger from outside
    ledgers    what G6 asks of one ledger
    g0a g0b g1 g1_complete g2 g3 g4 g5 g6       a gate each; its docstring says what it proves
    g0b_own, g0b_config, g4_last                parts of these

Rules: a gate that looked at nothing says `not applicable`, which is no pass. What cannot be
read is a failure, never a reason to pass over it. Nothing here writes; what a gate said is
recorded by whoever ran it.

All gates but G6 stand on what the packages say of themselves. So each first asks whether
that is what the packages ledger says (`Ground.deviations`), and fails where it is not.

Dangers: a gate that passes because it found nothing to look at is worse than none. Names
and texts come from files that a stranger may have written.
"""
