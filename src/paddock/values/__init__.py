"""The nouns: what passes between the layers. Values in, values out.

    calls, decisions    what is asked, what policy judges and answers; agents and planes
    models, orders      a model's turn, an order for one, what it may cost
    entries             what a ledger is given, the names of its types, digests as text

Nothing here does I/O, reads a clock or the environment, or draws random
numbers; every type is immutable. A folder above may turn these values into
effects; this one only says what they are.
"""
