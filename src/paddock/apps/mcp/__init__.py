"""The MCP server: serve an agent's tools to MCP clients, over stdio and HTTP.

    server, agents     answer tools/list and tools/call; the agents and their runtimes
    stdio, http        one client over the standard streams; many over HTTP, with bearer tokens
    elicitation        ask the client's user; resources and prompts of servers behind the gateway
    review             review those servers before their tools are offered
    command, install   `paddock mcp`; edit a client's configuration, move its servers

Both protocol eras are served: the handshake of 2025 and the stateless requests of 2026. The SDK,
which speaks the protocol, is loaded only when a server starts. Dangers: DNS rebinding by a web
page, replayed or forged answers, a token accepted for another agent, a slow call that blocks
others, and a client's self-description taken for its identity.
"""
