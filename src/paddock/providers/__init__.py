"""Models: one request in, one turn out, whoever answers.

    choice                   which provider answers; its key, shown nowhere
    gateway, failures        what a provider is, asked again within a budget; the one family of
                             errors
    client, transport        a provider behind an SDK, how it is stopped; what passes between the
                             SDK and the network: headers, limits, exchanges on a cassette
    anthropic, openai        the vendors' wires, from requests to turns
    structured               from the parts of a reply to a turn, an answer checked against its
                             schema
    budgets                  what is left, and what a request may cost
    scripted                 turns that a file or a test says
    builtin*                 the model that comes with Paddock, and its rules

Each provider speaks its own wire and hands back the same `ModelTurn`. It sends a request once;
the gateway retries. SDKs are imported when a model of theirs is asked, and not before.
"""
