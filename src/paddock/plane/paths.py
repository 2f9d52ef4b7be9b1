"""Names of directories, resolved where the user stands: before any agent acts.

What agents name is resolved by descriptor in the workspace and never here.
"""

import os
import stat
from pathlib import Path

from paddock.errors import ConfigError, HostError, UsageError
from paddock.text.show import quote


def real_path(path: Path) -> Path:
    """`path` absolute, links resolved as far as it exists."""
    # Nothing that this is asked about can be swapped by an agent: the user's own
    # directories, and roots before they are opened.
    return Path(os.path.realpath(path))  # noqa: TID251 - no agent's name, see above


def real_directory(path: Path) -> Path:
    """`path` absolute with every link resolved.

    Raises:
        UsageError: nothing stands there, or no directory.
        ConfigError: its name is not UTF-8, so that no ledger could hold it.
        HostError: it can't be reached.
    """
    try:
        real = Path(os.path.realpath(path, strict=True))  # noqa: TID251 - no agent's name
        is_directory = stat.S_ISDIR(os.stat(real).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"there is no directory {quote(str(path))}", hint="name one that exists"
        ) from None
    except (OSError, ValueError) as error:
        raise HostError(f"{quote(str(path))} cannot be reached: {error}") from error
    if not is_directory:
        raise UsageError(f"{quote(str(path))} is not a directory", hint="name a directory")
    require_utf8(real)
    return real


def require_utf8(path: Path, variable: str = "") -> None:
    """Refuse a path that UTF-8 cannot say: records and ledgers hold text.

    `variable` names the one that chooses another place.

    Raises:
        ConfigError: it has bytes that are not UTF-8.
    """
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise ConfigError(
            f"the path {quote(str(path))} is not UTF-8",
            where=variable,
            hint=f"set {variable} to another one" if variable else "rename the directory",
        ) from None
