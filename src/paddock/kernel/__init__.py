"""Every ctypes call of Paddock, each constant with its ABI reason.

A leaf: it knows nothing of workspaces or policy, takes plain integers and bytes
and raises plain `OSError`, as the functions of `os` do. Who calls it converts.
"""
