"""A client's own settings, with our entries in them.

    claude, codex  our entries in each client's own form. Pure
    install        what is planned, shown, and written then

Our entries are put in and taken out, every other byte is left alone.
"""
