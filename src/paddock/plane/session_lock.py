"""One process at a time has a session open."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from paddock.errors import UsageError
from paddock.plane.environment import Environment
from paddock.plane.layout import PlaneLayout, path_id
from paddock.storage.atomic import host_errors, make_directories
from paddock.storage.locks import open_locked
from paddock.text.show import quote

_FLAGS: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW


@contextmanager
def session_lock(
    layout: PlaneLayout, environment: Environment, session_id: str
) -> Generator[None, None, None]:
    """`session_id` is one of our own making, so a file name.

    The lock's file stands with the user's own state, where no agent works. flock(2)
    goes with the descriptor, so a killed holder leaves none behind.

    Raises: UsageError, open in another process or a second time in this one; HostError.
    """
    directory = environment.paddock_home / "sessions"
    file = directory / f"{path_id(layout.root)}-{session_id}.lock"
    make_directories(directory)
    descriptor = _acquire(file)
    try:
        yield
    finally:
        # Removed while it is held: whoever opened it meanwhile finds it gone and tries again.
        with host_errors("removing", file):
            os.unlink(file)
        os.close(descriptor)


def _acquire(file: Path) -> int:
    while True:
        with host_errors("locking", file):
            if (descriptor := open_locked(None, file, _FLAGS)) is not None:
                return descriptor
        # Gone: its holder has just ended, and removed it.
        if os.path.lexists(file):
            raise UsageError(
                f"the session {quote(file.stem)} is open in another process",
                hint="end that one first, or open a new session",
            )
