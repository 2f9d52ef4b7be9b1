"""What a plan has to know of this host, found before a command runs and given as values.

    host_facts       the facts as types; which directories cover which; where a path really is
    toolchains       the toolchains on PATH and in the workspace, and how one is told
    git_outside      the workspace's git directory where it stands outside
    git_settings     what git's configuration says here, and what of it is taken

Dangers: the host's own configuration is read with the user's rights, a workspace may
have written part of it (a PATH entry, a link, a file that says it is a toolchain), and
what is found here is what a command may read later. So links are followed by hand, a
directory is no toolchain for its name alone, and homes are never given whole.
"""
