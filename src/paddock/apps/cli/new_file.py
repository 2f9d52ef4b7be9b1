"""A file that a command was told to make."""

from collections.abc import Iterable
from pathlib import Path

from paddock.errors import HostError, UsageError
from paddock.text.show import quote


def write_new_file(path: Path, parts: Iterable[bytes]) -> int:
    """Write parts to a file that was not there; how many. Nothing is left of half a file.

    Raises:
        UsageError: something stands there.
        HostError: it cannot be written.
    """
    try:
        file = path.open("xb")
    except FileExistsError:
        raise UsageError(
            f"{quote(str(path))} is there already", where="--out", hint="name a new file"
        ) from None
    except OSError as error:
        raise _unwritten(path, error) from error
    count = 0
    try:
        with file:
            for part in parts:
                file.write(part)
                count += 1
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise _unwritten(path, error) from error
        raise
    return count


def _unwritten(path: Path, error: OSError) -> HostError:
    return HostError(f"{quote(str(path))} cannot be written: {error.strerror}")
