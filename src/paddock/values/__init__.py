"""Immutable values that pass between the layers.

    calls, decisions    tool calls and results; policy decisions; agents and planes
    models, orders      requests to models and their turns; work orders and budgets
    entries             ledger entries, event types, digests as text

Nothing here does I/O, reads a clock or the environment, or draws random numbers.
"""
