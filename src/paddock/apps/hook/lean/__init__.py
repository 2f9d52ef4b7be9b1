"""The hook's fast path: a new process at every tool call of a client.

    start, handler the process of one call; one event, decided here or left to the full path
    request        parse the event, and find the operations that the call would perform
    flow, judge    judge, record, then answer, in this order; wrap a command for the sandbox
    image          verify and query the compiled policy (paddock.policy.compiled)
    records        ledger entries and shown warnings; paddock.ledger.tail appends entries

Only modules built into the interpreter are imported (`posix`, `time`, `marshal`, `_json`,
`_sha256`, `fcntl`): loading typing, dataclasses, re or pathlib takes longer than a decision. Hence
plain classes and a local `TYPE_CHECKING`. The full path uses the same modules, with a command
parser (`hook.context`) and another appender.
"""
