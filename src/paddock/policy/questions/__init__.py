"""What people ask about a policy: why, what if, what differs. Pure; no call waits for it.

    explain, record          why a decision is what it is; of a call on record
    flip                     near misses; the smallest change that flips it
    always                   from an approved call to the rules for it
    lint, coverage           rules that do nothing, grants that give much; each rule's examples
    compare, replay          two policies: calls that they answer differently; recorded calls again
    witness_calls, sampling  which calls are worth putting to both

Nothing that decides a call imports from here. Every answer comes from `decide`, a proposed
change is tried before it is shown, and searches are bounded and say where they stopped.
"""
