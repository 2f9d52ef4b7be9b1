"""What runs at every tool call of a client, in a new process each time.

    start, handler the process of one call; one event, decided here or declined
    request        what a client asks, and what the call would do
    flow, judge    judge, record, then answer, in this order; a command wrapped for the sandbox
    image, engine  the compiled policy (paddock.policy.compiled): verified, asked
    records        an entry, the warnings given; paddock.ledger.tail appends it

Nothing here imports more than the interpreter carries with it (`posix`, `time`, `marshal`,
`_json`, `_sha256`, `fcntl`): typing, dataclasses, re or pathlib alone cost more than a decision.
Hence plain classes, and `TYPE_CHECKING` as a constant of our own. The full path uses the same
modules, with a parser (`hook.context`) and another appender.
"""
