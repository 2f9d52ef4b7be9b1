"""Running something as a plain user, where root would hide the effect.

A child is forked and gives up root for good; nothing is executed anew, so it needs no
access to the interpreter's files. All modules that the act uses must be imported before.
"""

import os
import pwd
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final

PLAIN_USER: Final = "nobody"


def become_plain_user() -> None:
    """Give up root in this process, groups and capabilities with it. No way back."""
    user = pwd.getpwnam(PLAIN_USER)
    os.setgroups([])
    os.setresgid(user.pw_gid, user.pw_gid, user.pw_gid)
    os.setresuid(user.pw_uid, user.pw_uid, user.pw_uid)


def plain_ids() -> tuple[int, int]:
    """User and group of the plain user."""
    user = pwd.getpwnam(PLAIN_USER)
    return user.pw_uid, user.pw_gid


def give_to_plain_user(path: str | os.PathLike[str]) -> None:
    """Make a tree below the temporary directory the plain user's own, and let it get there.

    Started by a plain user already, it is that user's own.
    """
    if os.geteuid() != 0:
        return
    for folder in Path(path).parents:
        if Path(tempfile.gettempdir()) in folder.parents:
            os.chmod(folder, os.stat(folder).st_mode | 0o011)
    uid, gid = plain_ids()
    os.chown(path, uid, gid, follow_symlinks=False)
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            os.chown(os.path.join(folder, name), uid, gid, follow_symlinks=False)


def run_as_plain_user(act: Callable[[], object]) -> None:
    """Do `act` in a child without root; an exception there is an AssertionError here.

    Started by a plain user already, the act is done as that user.
    """
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(read_end)
            if os.geteuid() == 0:
                become_plain_user()
            act()
            code = 0
        except BaseException:
            os.write(write_end, traceback.format_exc().encode()[-60_000:])
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as report:
        said = report.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said
