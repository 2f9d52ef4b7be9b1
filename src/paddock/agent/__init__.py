"""The agent: a supervisor that owns the session, an executor that carries out its orders.

    supervisor         turn a message into orders, and judge what comes back
    executor           carry out one order with a model and tools
    steps              decide what a model's turn leads to (pure); ask the model: budget, record
    contracts          say how a model is asked, from files or by default
    context            choose what a turn is given, and which earlier turns fit
    sessions           one turn for each message; delegation to other agents
    events             report a turn to a listener; what the turn came to
    records, session_log  make ledger entries (pure); read sessions back from them

An order only narrows: every tool call goes through `Runtime.call_all`, with the order's tools as
bounds. `steps.next_step` covers every way a turn can end; an unknown one fails the order.
"""
