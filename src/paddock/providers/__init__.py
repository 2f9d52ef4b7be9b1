"""Models: one request in, one turn out, whoever answers.

    choice                   choose the provider; find its key and show it nowhere
    gateway                  the `Provider` protocol, and retries
    failures                 the one family of errors; cancellation
    client                   run an SDK on an event loop, so that it can be cancelled
    transport                under the SDK: headers sent, sizes read, cassettes of exchanges
    anthropic, openai        a wire (HTTP API) each: requests to bodies, replies to turns
    structured               read calls and answers strictly; check answers against their schema
    budgets                  reserve and settle tokens, in a session and its scopes
    scripted                 a model that plays a script
    builtin*                 the model that comes with Paddock, and its rules

All hand back the same `ModelTurn`. A provider sends a request once; the gateway retries. SDKs are
imported when a model of theirs is asked, and not before.
"""
