"""Keys of servers that the user's ssh knows, of those hosts that a command may connect to.

In a sandbox ssh has no key and no agent of its own, only these entries: it can tell whose server
it meets, and a server that nobody has met stays unknown (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
"""

import hmac
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

_FILES: Final = (".ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
_BYTES_MAX: Final = 1_048_576
_LINES_MAX: Final = 1_000
_HASHED: Final = "|1|"
_SSH_PORT: Final = 22
_FIELDS: Final = 3


def read_known_hosts(home: Path) -> str:
    """Return what the user's own file and the system's say; empty where there is none."""
    found: list[str] = []
    for name in _FILES:
        try:
            with (home / name).open("rb") as file:
                found.append(file.read(_BYTES_MAX).decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(found)


def select_entries(text: str, names: Iterable[str], may_reach: Callable[[str, int], bool]) -> str:
    """Return the entries of hosts that may be reached, each with just those names.

    `names`: those that rules write out, for lines whose own names are hashed. What is marked, as
    authorities and revoked keys are, is left out: a key that is not known is not trusted.
    """
    known = tuple(names)
    lines: list[str] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < _FIELDS or line.startswith(("#", "@")) or "\0" in line:
            continue
        hosts = ",".join(_reachable(fields[0], known, may_reach))
        if hosts:
            lines.append(" ".join((hosts, *fields[1:_FIELDS])))
    return "".join(f"{line}\n" for line in lines[:_LINES_MAX])


def _reachable(
    hosts: str, known: tuple[str, ...], may_reach: Callable[[str, int], bool]
) -> Iterator[str]:
    if hosts.startswith(_HASHED):
        yield from (name for name in known if _is_hash_of(hosts, name) and may_reach(name, 22))
        return
    for host in hosts.split(","):
        name, port = host, _SSH_PORT
        if host.startswith("["):
            name, _, digits = host[1:].partition("]:")
            port = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not any(sign in name for sign in "*?!") and may_reach(name.lower(), port):
            yield host


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        salt, digest = (b64decode(part, validate=True) for part in hashed[3:].split("|"))
    except ValueError:
        return False
    # The format's own hash, and nothing rests on its strength here.
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
