"""Install and remove the hook's entries in a client's settings files.

    claude, codex  the entries in each client's format; pure functions
    install        plan a change, which is shown and then written

Every byte outside the hook's entries is preserved.
"""
