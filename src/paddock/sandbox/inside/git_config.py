"""The `.gitconfig` of a private HOME: who commits, and which folder is no repository."""

from __future__ import annotations

_SAFE = b"[safe]\n\tbareRepository = explicit\n"
"""Threat: HEAD, objects and refs among ordinary files make a repository of a folder, whose
config names programs that a mere `git status` runs. One that is named is taken."""


def git_config(identity: list[bytes]) -> bytes:
    """Quoted values (git-config(1), syntax); `identity` is name and e-mail, or empty."""
    if not identity:
        return _SAFE
    name, email = map(_quoted, identity)
    return b"%b[user]\n\tname = %b\n\temail = %b\n" % (_SAFE, name, email)


def _quoted(value: bytes) -> bytes:
    escaped = value.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"%b"' % escaped
