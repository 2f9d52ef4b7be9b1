"""Control which hosts a command can reach: DNS, connections, TLS requests, credentials.

    packages    hosts of the user's package clients, as the clients and their registries report
    names       DNS questions and answers, synthetic addresses
    sniff       a client's first bytes: a TLS hello, the head of an HTTP request, or neither
    egress      outgoing connections: resolve names, judge addresses, connect, relay bytes
    decisions   decisions and approvals while a command runs
    wall        one sandbox's network, served from outside it
    credentials credentials and their placeholders
    requests    TLS termination where requests are judged; verification of the real hosts

Sockets are created in the sandbox's network namespace and served from outside it. See
docs/architecture.md.
"""
