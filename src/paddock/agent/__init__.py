"""The agent: a supervisor that owns the session, an executor that carries out its orders.

    supervisor         a message becomes orders, and what comes back is judged
    executor, steps    one order with a model and tools; what a turn leads to, one pure function
    contracts          how a model is asked, from files or by default
    context            what a turn is given, and what was said before
    sessions           opened once, a turn for each message
    results, events    what a turn came to; what can be heard of it
    records, recorded  what the ledgers get (pure); reading that again

Two tiers with different authority: the supervisor turns a message into work orders and judges
what comes back; the executor is stateless, carries out one order, and can only narrow what it
was given. `steps.next_step` is total over every way in which a turn can end.

Dangers, and where they are met:
  * a call that was not allowed runs: every call passes the runtime's one door, and the
    order's tools are the bounds that it is given there;
  * a loop that never ends: turns, pauses, truncations, repeats and refusals are counted;
  * an answer to an earlier question is taken for the last word: a turn with calls that
    run is never the answer;
  * a cut turn is acted upon: none of its calls runs.
"""
