"""The one door: a call is bound, resolved, decided, approved, recorded, run, recorded.

    runtime              what a program holds, and the tools that it adds
    dispatch, judge, prepared, answers            the life of one call, step by step
    awaiting             the calls of one turn; what runs in a thread
    registry, messages            the tools that exist, in each provider's words
    approvals, asking             someone's answer, bound to what will run
    inbox*, parked, records            questions that wait, and what governance is told of them
                           changes that wait, brought in after a yes
                           the judge of what a person asks for
    records, contents    what a call leaves in the ledger, and what becomes of large contents
    past, past_diff, undo              what calls changed, shown and taken back
                           who judges what a person at the command line asks for

Nothing reaches a tool but through `Dispatcher.dispatch`. Dangers that this
folder answers for: a short cut round a step, a decision on one value and an act
on another, an effect without a record, a refusal that still did something, an
approval that counts for something other than what was shown.
"""
