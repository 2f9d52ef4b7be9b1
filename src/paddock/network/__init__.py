"""Which hosts a command reaches: names and addresses, what is sent first, the wall that decides.

Sockets are made in the sandbox's network namespace and served from outside it. See
docs/architecture.md.
"""
