"""The one door: a call is bound, resolved, decided, approved, recorded, run, recorded.

    runtime, program     the public Runtime; its bytes, commands and lasting shells
    own_tools            functions of a program as tools: signature, docstring, call
    dispatch, prepared   the steps of one call; its state between them, registry and judge
    messages, native     a provider's messages and schemas; its own tool types
    approvals, question  an answer, bound to what will run; putting the question
    inbox                questions that wait for an answer; which grants count
    records              what a call leaves in the ledger; digests in place of contents
    changes, undo        what calls changed, shown; undone, or committed after a yes

Nothing reaches a tool but through `Dispatcher.prepare`, then `run`. Dangers that
this folder answers for: a short cut round a step, a decision on one value and an act
on another, an effect without a record, a refusal that still did something, an
approval that counts for something other than what was shown.
"""
