"""Which hosts a command reaches: names and addresses, what is sent first, the wall that decides.

    names       names made canonical, DNS questions and answers, synthetic addresses

Sockets are made in the sandbox's network namespace and served from outside it. See
docs/architecture.md.
"""
