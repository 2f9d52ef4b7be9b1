"""The agent: a supervisor that owns the session, an executor that carries out its orders.

    supervisor   a message becomes orders, what comes back is judged; office: what it has at hand
    executor     one order with a model and tools             what it is given; deadline: until when
                   ask, do what `steps` says, ask again; steps: the one pure function
    steps        one request to a model, reserved before and recorded after
    contracts    how a model is asked; contract_files, contract_defaults: where they come from
    context      the context of a turn                                   what was said before
                   whether a result is an answer (pure)  results            what a turn came to
    sessions     opened once, a turn for each message  events             what can be heard of it
    records      what the ledgers get (pure)          recorded           reading that again

The idea: two tiers with different authority. The supervisor turns a user's message
into work orders and accepts or rejects what comes back; the executor is stateless,
carries out one order with a model and the tools that the order allows, and can only
narrow what it was given. What a model's turn leads to is one pure function
(`steps.next_step`), total over every way in which a turn can end.

Dangers, and where they are met:
  * a call that was not allowed runs: every call passes the runtime's one door, and the
    order's tools are the bounds that it is given there;
  * a loop that never ends: turns, pauses, truncations, repeats and refusals are counted;
  * an answer to an earlier question is taken for the last word: a turn with calls that
    run is never the answer;
  * a cut turn is acted upon: none of its calls runs.
"""
