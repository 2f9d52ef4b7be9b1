"""Collect the host facts that a sandbox plan needs, before a command runs.

    host_facts       the facts as types; path comparisons; resolving symlinks
    toolchains       detection of the toolchains on PATH and in the workspace
    git              a git directory outside the workspace; the git settings that commands get

Part of the input may come from the workspace (a PATH entry, a link, a marker file), and commands
may read the detected paths: symlinks are resolved by hand, and a whole home is never readable.
"""
