"""Answer questions of people about a policy: why, what if, what differs. Pure.

    explain, record         the reasons of a decision, and of a recorded call; examples of rules
    flip                    the smallest change that flips a decision; rules for an approved call
    lint                    rules without effect, grants that are wide
    differences             the differences of two policies, and sample calls to compare them
    compare                 calls that two policies answer differently; recorded calls replayed

Nothing that decides a call imports from here. Every answer comes from `decide`, a proposed
change is tried before it is shown, and searches are bounded and report where they stopped.
"""
