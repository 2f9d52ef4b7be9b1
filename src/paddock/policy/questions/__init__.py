"""What people ask about a policy: why, what if, what differs. Pure; no call waits for it.

    explain, record         why a decision is what it is, examples included; of a call
    flip                    the smallest change that flips it; from an approved call to its rules
    lint                    rules that do nothing, grants that give much
    differences             what differs between two policies, and calls worth putting to both
    compare                 calls that two policies answer differently; recorded calls again

Nothing that decides a call imports from here. Every answer comes from `decide`, a proposed
change is tried before it is shown, and searches are bounded and say where they stopped.
"""
