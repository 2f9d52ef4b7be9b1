"""A defect of ours: an id for the user, the traceback in a file for the report."""

import os
import traceback

from paddock.apps.cli.console import Console
from paddock.errors import ConfigError, InternalError
from paddock.plane.environment import read_environment


def report_defect(error: Exception, console: Console) -> None:
    """Say that it is our fault, with an id, and keep the traceback for a report."""
    identity = os.urandom(6).hex()
    kept = _keep(error, identity, console)
    hint = f"please report it with {kept}" if kept else "please report it"
    console.report(
        InternalError(f"a defect of Paddock, {type(error).__name__} (id {identity})", hint=hint)
    )


def _keep(error: Exception, identity: str, console: Console) -> str:
    """The file that holds the traceback, or an empty text where none could be written."""
    try:
        home = read_environment(console.variables).paddock_home
        path = home / "defects" / f"{identity}.txt"
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(traceback.format_exception(error))
    except (OSError, ConfigError):
        return ""
    return str(path)
