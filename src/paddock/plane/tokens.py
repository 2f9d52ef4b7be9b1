"""Keep one bearer token for each name on an HTTP server; lock a session while it is open.

The MCP server's tokens are named after agents, the console's after what they may do. A token
identifies the caller, so it is in the user's configuration, where no agent can read. A new token
for an agent revokes the old one at once, and so does removing the agent.
"""

import hashlib
import hmac
import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from paddock.errors import ConfigError, HostError, PaddockError, UsageError
from paddock.plane.environment import Environment, plane_title
from paddock.plane.layout import PlaneLayout, path_id
from paddock.storage import atomic
from paddock.storage.locks import open_locked
from paddock.text.show import quote

MCP: Final = "mcp"
_PREFIX: Final = "paddock_"
_SECRET_BYTES: Final = 32
_FILE_BYTES_MAX: Final = 1024
_SUFFIX: Final = ".token"


def token_path(
    layout: PlaneLayout, environment: Environment, agent: str, server: str = MCP
) -> Path:
    return _directory(layout, environment, server) / f"{agent}{_SUFFIX}"


def make_token(layout: PlaneLayout, environment: Environment, agent: str, server: str = MCP) -> str:
    path = token_path(layout, environment, agent, server)
    atomic.make_directories(path.parent)
    atomic.require_private(path.parent)
    token = _PREFIX + secrets.token_urlsafe(_SECRET_BYTES)
    atomic.replace_file(path, f"{token}\n".encode("ascii"))
    return token


def read_token(
    layout: PlaneLayout, environment: Environment, agent: str, server: str = MCP
) -> str | None:
    path = token_path(layout, environment, agent, server)
    atomic.require_private(path.parent)
    content = atomic.read_file(path, _FILE_BYTES_MAX)
    return None if content is None else content.decode("ascii", "replace").strip()


def remove_token(layout: PlaneLayout, environment: Environment, agent: str) -> None:
    path = token_path(layout, environment, agent)
    with atomic.host_errors("removing", path):
        try:
            path.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return
        atomic.sync_directory(path.parent)


class Bearer(NamedTuple):
    agent: str | None
    unread: tuple[PaddockError, ...] = ()


def find_bearer(
    layout: PlaneLayout, environment: Environment, token: str, server: str = MCP
) -> Bearer:
    """Find the agent of this token. An unreadable file does not affect other tokens.

    Threat: an attacker tries tokens and measures the time of the answer. So digests are compared
    in constant time, and all of them each time.

    Raises: ConfigError: others can write to the directory. HostError.
    """
    directory = _directory(layout, environment, server)
    if not directory.is_dir():
        return Bearer(None)
    atomic.require_private(directory)
    given = _digest(token)
    found: str | None = None
    unread: list[PaddockError] = []
    for path in sorted(directory.glob(f"*{_SUFFIX}")):
        agent = path.name.removesuffix(_SUFFIX)
        try:
            known = read_token(layout, environment, agent, server)
        except (ConfigError, HostError) as error:
            unread.append(error)
            continue
        if known and hmac.compare_digest(_digest(known), given):
            found = agent
    return Bearer(found, tuple(unread))


def token_digest(token: str) -> str:
    return _digest(token).hex()[:16]


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()


def _directory(layout: PlaneLayout, environment: Environment, server: str) -> Path:
    return environment.config_home / server / plane_title(layout)


# A session is open once at a time, over all processes.

_LOCK_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def session_lock(
    layout: PlaneLayout, environment: Environment, session_id: str
) -> Generator[None, None, None]:
    """Hold the session's lock; Paddock must have created its id, which becomes a file name.

    The file is in the user's state directory, where no agent works. flock(2) ends with the
    descriptor: a killed holder leaves a file, but no lock.

    Raises: UsageError: it is open in another process, or already in this one. HostError.
    """
    directory = environment.paddock_home / "sessions"
    file = directory / f"{path_id(layout.root)}-{session_id}.lock"
    atomic.make_directories(directory)
    descriptor = _acquire(file)
    try:
        yield
    finally:
        # Removed while locked: a process that opened it meanwhile finds it gone and tries again.
        with atomic.host_errors("removing", file):
            os.unlink(file)
        os.close(descriptor)


def _acquire(file: Path) -> int:
    while True:
        with atomic.host_errors("locking", file):
            if (descriptor := open_locked(None, file, _LOCK_FLAGS)) is not None:
                return descriptor
        # Locked, if it still exists; else its holder has just removed it: try again.
        if os.path.lexists(file):
            raise UsageError(
                f"the session {quote(file.stem)} is open in another process",
                hint="end that one first, or open a new session",
            )
