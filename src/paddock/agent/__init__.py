"""The agent: a supervisor that owns the session, an executor that carries out its orders.

    supervisor         turn a message into orders, and judge their results
    executor           carry out one order with a model and tools
    steps              choose the step after a model's turn (pure); ask the model: budget, record
    contracts          prompt contracts, built-in or from files
    context            choose a turn's context, and the earlier turns that fit
    sessions           one turn per message; delegation to other agents
    events             report a turn and its result to a listener
    records, session_log  build ledger entries (pure); read sessions back from them

An order only narrows permissions: every tool call goes through `Runtime.call_all`, limited to the
order's tools. `steps.next_step` covers every way a turn can end; an unknown one fails the order.
"""
