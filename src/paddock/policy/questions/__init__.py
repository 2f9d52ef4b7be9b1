"""What people ask about a policy: why, what if, what differs. Pure; no call waits for it.

    explain.py explain_now.py explain_record.py   why a decision is what it is; of a call on record
    nearness.py changes.py edits.py               near misses; the smallest change that flips it
    always.py                                     from an approved call to the rules for it
    lint.py coverage.py interpreters.py           rules that do nothing, grants that give much
    examples.py                                   `policy test`: each rule's own examples
    diff.py diff_rows.py differences.py           two policies: calls that they answer differently
    witness_calls.py sampling.py                  which calls are worth putting to both
    recorded.py replay.py                         recorded calls decided again

Above the policy and never beneath it: nothing that decides a call imports from here.

Dangers: an answer beside the engine's own, which would be believed; a proposal that
opens more than was asked for; patterns made to keep a question busy without an end.
So every answer comes from `decide` itself, a proposed change is tried before it is
shown, and searches are bounded and say where they stopped.
"""
