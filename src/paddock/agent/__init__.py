"""The agent: a supervisor that owns the session, an executor that carries out its orders.

    supervisor         a message becomes orders, and what comes back is judged
    executor, steps    one order with a model and tools; what a turn leads to, one pure function
    contracts          how a model is asked, from files or by default
    context            what a turn is given, and what was said before
    sessions           opened once, a turn for each message
    events             what can be heard of a turn, and what it came to
    records, recorded  what the ledgers get (pure); reading that again

The executor is stateless, carries out one order, and can only narrow what it was given; every call
passes the runtime's one door, with the order's tools as bounds. `steps.next_step` is total over
every way in which a turn can end: what is not understood is never a reason to go on.
"""
