"""The one door: a call is bound, resolved, decided, approved, recorded, run, recorded.

    runtime, program     what a program holds; its bytes, commands and lasting shells
    own_tools            functions of a program as tools: signature, docstring, call
    dispatch, prepared   the life of one call, step by step, and what it works with
    messages, native     the tools that exist, in each provider's words; its own tool types
    approvals, asking    someone's answer, bound to what will run; putting the question
    inbox                questions that wait, and what is on record of them
    records              what a call leaves in the ledger; where large contents go
    past, undo           what calls changed, shown; taken back, or brought in after a yes

Nothing reaches a tool but through `Dispatcher.dispatch`. Dangers that this
folder answers for: a short cut round a step, a decision on one value and an act
on another, an effect without a record, a refusal that still did something, an
approval that counts for something other than what was shown.
"""
