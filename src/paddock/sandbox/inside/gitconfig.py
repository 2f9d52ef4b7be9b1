"""The `.gitconfig` of a private HOME: who commits, and nothing else."""

from __future__ import annotations


def git_config(name: bytes, email: bytes) -> bytes:
    """Two quoted values (git-config(1), syntax)."""
    return b"[user]\n\tname = %b\n\temail = %b\n" % (_quoted(name), _quoted(email))


def _quoted(value: bytes) -> bytes:
    escaped = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % escaped
