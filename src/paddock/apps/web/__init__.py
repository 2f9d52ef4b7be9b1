"""The console: a page on which a person sees what agents do, answers, undoes, and sets policy.

    command    `paddock web`, and the tokens of programs
    access     who is let in: the code of a link, bearers, Host and Origin, the headers
    server     endpoints, their arguments and errors; listening
    stream     new entries to every page that is open
    view       the plane that is looked at, and what an entry is on a page
    record     entries of all ledgers, one whole, its proof; now; verify, checkpoints, export
    inbox      what waits for an answer
    changes    what calls changed, and sessions
    policy     the policy as it is edited: asked, saved, trusted

It is the same data as the command line's, and holds none of its own. `static/` is the page.
"""
