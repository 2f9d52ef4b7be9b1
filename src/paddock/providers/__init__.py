"""Ask models of several providers: each request returns one turn.

    choice                   choose the provider; read its key and keep it secret
    gateway                  the `Provider` protocol, and retries
    failures                 the common errors of all providers; cancellation
    client                   run an SDK on an event loop, so that it can be cancelled
    transport                HTTP below the SDK: filter headers, limit sizes, record cassettes
    anthropic, openai        a wire (HTTP API) each: requests to bodies, replies to turns
    structured               build a turn from a reply; check answers against their schema
    budgets                  reserve and settle tokens, in a session and its scopes
    scripted                 a model that plays a script
    builtin*                 the model that comes with Paddock, and its rules

Every provider returns a `ModelTurn`. A provider sends a request once; the gateway retries. An SDK
is imported when one of its models is first asked.
"""
