"""What a plan has to know of this host, found before a command runs and given as values.

    host_facts       the facts as types; which directories cover which; where a path really is
    toolchains       the toolchains on PATH and in the workspace, and how one is told
    git              the workspace's git directory where it stands outside; git's configuration,
                     and what of it is taken

A workspace may have written part of what is read (a PATH entry, a link, a mark), and what is
found a command may read: links are followed by hand, and homes are never given whole.
"""
