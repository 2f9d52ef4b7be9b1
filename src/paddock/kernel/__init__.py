"""Every ctypes call of Paddock, each constant with its ABI reason.

    syscalls   system calls by number, privileges dropped permanently
    files      openat2, renameat2, syncfs
    mounts     mounts by descriptor, a child in new namespaces
    landlock   restrictions on access to files, ports and signals
    seccomp    a filter over system calls

A leaf: it knows nothing of workspaces or policy, takes plain integers and bytes and
raises plain `OSError`, as the functions of `os` do. The caller converts the errors.
"""
