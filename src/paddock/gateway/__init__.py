"""Third-party MCP servers, run in sandboxes behind one gateway.

    confine      the sandbox of one server: its policy, its process
    bridge       a program in the sandbox that connects to a server at a URL
    connection   one server: start, requests both ways, restart; its process as the SDK's streams,
                 with limits on its output
    definitions  a server's tool and prompt definitions, and the reviewed ones
    tools        tools, resources and prompts as tools of an agent
    gateway      one event loop, a connection for each server, answers as results

Servers are untrusted: their descriptions, their answers, and their stated identity.
"""
