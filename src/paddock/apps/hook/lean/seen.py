"""Which warnings a session was given already: one empty file each, made exclusively.

Where nothing can be made, the warning is given once more: too often is safe.
"""

import posix

from paddock.apps.hook.lean.records import sha256

_FLAGS = posix.O_CREAT | posix.O_EXCL | posix.O_WRONLY | posix.O_CLOEXEC | posix.O_NOFOLLOW


def mark_path(directory: str, session_id: str, pattern: str) -> str:
    mark = sha256(f"{session_id}\0{pattern}".encode("utf-8", "surrogatepass"))
    return f"{directory}/{mark.hexdigest()[:32]}"


def claim_warning(directory: str, session_id: str, pattern: str) -> bool:
    """Note it; return whether it is the first."""
    if not session_id:
        return True
    path = mark_path(directory, session_id, pattern)
    for attempt in (1, 2):
        try:
            posix.close(posix.open(path, _FLAGS, 0o600))
        except FileExistsError:
            return False
        except FileNotFoundError:
            if attempt == 2 or not _made(directory):
                return True
        except OSError:
            return True
        else:
            return True
    return True


def forget(path: str) -> None:
    """Take a mark back: the warning was not given after all."""
    try:
        posix.unlink(path)
    except OSError:
        return


def _made(directory: str) -> bool:
    try:
        posix.mkdir(directory, 0o700)
    except FileExistsError:
        return True
    except OSError:
        return False
    return True
