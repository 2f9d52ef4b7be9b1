"""Models: one request in, one turn out, whoever answers.

    ports, choice, keys      what a provider is; which one answers; its key, shown nowhere
    gateway, failures        retries within a budget, and the one family of errors
    error_bodies             so much of what a server says with an error
    client                   a provider behind an SDK, how it is stopped, which headers it sends
    anthropic*, openai*      the two vendors' wires, from requests to turns
    wire, reading            what both wires share
    structured               an answer checked against its schema
    budgets                  what is left, and what a request may cost
    transcript, cassettes, scripted    conversations and exchanges as text, played again
    builtin*                 the model that comes with Paddock, and its rules

Each provider speaks its own wire and hands back the same `ModelTurn`. It sends a request once;
the gateway retries. SDKs are imported when a model of theirs is asked, and not before.
"""
