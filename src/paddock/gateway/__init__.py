"""Other people's MCP servers, behind the one door.

    confine      the sandbox of one server: its policy, its process
    bridge       a URL in place of a process: a program that runs in the sandbox
    connection   one server's life: started, asked, asking back, started again; its process as the
                 SDK's streams, and a limit to each thing it says
    definitions  what a server says of itself, and what a person has seen of it
    tools        tools, resources and prompts as tools of an agent
    gateway      all of it: one loop, a connection for each server, an answer as a result

Nothing of a server is believed: not its descriptions, not its answers, not what it says it is.
"""
