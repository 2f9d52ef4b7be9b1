"""Entry point of a wrapped command: `python -I exec.py …`.

A background command locks its session's directory before the imports, which take most of its start:
a command that its client starts next waits until it can be met.

Threat: an agent shadows a standard module, in the working directory or by PYTHONPATH: hence -I.
"""

import fcntl
import os
import sys

sys.path.append(__file__.removesuffix("/paddock/apps/hook/exec.py"))


def _lock(options: list[str]) -> list[str]:
    """Return the option that names the lock's descriptor, if a session is named to be locked."""
    named = [each.partition("=")[2] for each in options if each.startswith("--session=")]
    if "--background" not in options or not named:
        return []
    while True:
        os.makedirs(named[0], 0o700, exist_ok=True)
        lock = os.open(named[0], os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
        # The last command of the session may have removed it meanwhile.
        if os.fstat(lock).st_nlink:
            return [f"--lock={lock}"]
        os.close(lock)


if __name__ == "__main__":
    given = sys.argv[1:]
    try:
        given = [*_lock(given[: given.index("--")] if "--" in given else given), *given]
    except OSError as error:
        sys.exit(f"paddock: the command did not run: its session cannot be locked: {error}")

    from paddock.apps.hook.wrapped import main

    sys.exit(main(given))
