"""The one door: a call is bound, resolved, decided, approved, recorded, run, recorded.

Nothing reaches a tool but through `Dispatcher.dispatch`. Dangers that this
folder answers for: a short cut round a step, a decision on one value and an act
on another, an effect without a record, a refusal that still did something, an
approval that counts for something other than what was shown.
"""
