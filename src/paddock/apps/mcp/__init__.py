"""The MCP server: an agent's tools for other people's clients, over stdio and HTTP.

    server, agents     the two answers, tools/list and tools/call; the agents behind them
    stdio, http        one client by streams, from bytes to messages; many by HTTP, with a token
    elicitation        a client's person is asked; what a client has of other people's servers
    review             those servers, looked at before
    command, install   `paddock mcp`; a client's own configuration, its servers moved and back

Both protocol eras are served, the handshake of 2025 and the stateless requests of 2026.
The SDK speaks the protocol; nothing of it is loaded before a server starts. Dangers
that this folder answers for: a page in a browser that reaches the server by a name of its
own (DNS rebinding), a client that sends an answer twice or forges one, a token that reads
as another agent's, a slow call that holds up others, and what a client says of itself
being taken for who is calling.
"""
