"""Which hosts a command reaches: names and addresses, what is sent first, the wall that decides.

    packages    hosts of the user's own package clients, asked of them and their registries
    names       DNS questions and answers, synthetic addresses, the name server
    sniff       the first bytes of a client: a TLS hello, the head of an HTTP request, neither
    egress      the way out: names resolved, addresses judged, connections made, bytes relayed
    decisions   what is decided and asked about while a command runs
    wall        one command's network, served from outside it
    credentials placeholders, and the values that they stand for
    requests    TLS ended where requests are judged, and hosts verified on the way out

Sockets are made in the sandbox's network namespace and served from outside it. See
docs/architecture.md.
"""
