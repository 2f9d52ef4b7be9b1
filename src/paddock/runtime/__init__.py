"""The only path to a tool: a call is bound, resolved, decided, approved, recorded, run, recorded.

    runtime, program     the public Runtime; its bytes, commands and shell sessions
    own_tools            functions of a program as tools: signature, docstring, call
    dispatch, prepared   the steps of one call; its state between them, tools and judge
    messages, native     a provider's messages and schemas; its own tool types
    approvals, question  an answer, bound to the exact call; ask the approver
    inbox                requests that wait for an answer; which grants count
    records              the ledger entries of a call; digests in place of contents
    changes, undo        show the changes of calls; undo them, or commit them once granted

A tool is reached only through `Dispatcher.prepare`, then `run`. This folder guards
against: a skipped step, a decision on one value and an act on another, an effect
without a record, a refused call with an effect, an approval that counts for more than
the approver saw.
"""
