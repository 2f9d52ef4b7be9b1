"""What runs at every tool call of a client, in a new process each time.

    start, door    the process of one call; one event, decided here or declined
    asked, wanted, patches, shell, places    what a client asks, and what the call would do
    flow, judging, answers    judge, record, then answer, in this order
    image, indexes, quick     the compiled policy: found and verified, matched, asked
    records                   an entry and its line; paddock.ledger.tail appends it
    wrap           a command's line, changed so that it runs in the sandbox
    seen           which warnings a session was given

Nothing here imports more than the interpreter carries with it (`posix`, `time`,
`marshal`, `_json`, `_sha256`, `fcntl`): typing, dataclasses, re or pathlib alone cost
more than a whole decision. Hence plain classes with slots, and `TYPE_CHECKING` as a
constant of our own. The same modules serve the full path, which brings the policy
engine and the command parser; what differs is who judges (`engine`) and who appends.

`from paddock.apps.hook.lean import …` runs no other `__init__` of the package where
`launch.py` started the process.
"""
