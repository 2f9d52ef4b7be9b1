"""The console: web pages to watch agents, answer requests, undo calls and edit the policy.

    command    `paddock web`, and tokens for programs
    access     authentication: link codes, bearer tokens, Host and Origin, response headers
    server     endpoints, their arguments and errors; listening
    stream     new entries, sent to every open page
    view       the served plane; entries and errors as JSON
    record     ledgers: search, one entry, its proof, verify, checkpoint, export; the "now" page
    inbox      requests that wait for an answer
    changes    changes of calls and their undo; sessions
    policy     the policy editor: questions about a text, save and trust

It shows the same data as the command line and stores none. `static/` holds the page.
"""
