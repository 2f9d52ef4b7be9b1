"""Reading and replacing a client's settings file: whole, and only as it was read."""

import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.errors import ConfigError, HostError
from paddock.plane.files import (
    host_errors,
    make_directories,
    read_file,
    read_file_through_links,
    sync_directory,
)
from paddock.plane.paths import real_path

SETTINGS_BYTES_MAX: Final = 16_000_000
_NEW_MODE: Final = 0o644
"""No secret stands there, and a project's settings are shared."""


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """A settings file as it was read. `content` is None where there is none."""

    path: Path
    content: bytes | None

    @property
    def text(self) -> str:
        """The content as text; empty where there is none. Raises: ConfigError."""
        try:
            return (self.content or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the settings are not UTF-8 at byte {error.start}", where=str(self.path)
            ) from None


def read_settings(path: Path, *, follows: bool) -> SettingsFile:
    """Read a settings file.

    # Threat: a cloned project whose settings file is a link has us write somewhere else.
    In the user's own directory a link is the user's, and what it leads to is edited.

    Raises:
        ConfigError: a link where none is followed, no regular file, too large.
    """
    if not follows:
        parent = path.parent
        if parent.is_symlink():
            raise ConfigError(
                f"{str(parent)!r} is a link, and links are not followed here",
                where=str(parent),
                hint="replace the link with a directory of its own",
            )
        return SettingsFile(path, read_file(path, SETTINGS_BYTES_MAX))
    real = real_path(path)
    return SettingsFile(real, read_file_through_links(real, SETTINGS_BYTES_MAX))


def replace_settings(file: SettingsFile, content: bytes | None) -> None:
    """Put `content` in the place of what was read; None removes the file.

    Sequence: temporary beside it, with its mode → fsync → a look that the file is still
    what was read → rename → fsync of the directory.

    Raises:
        ConfigError: somebody else changed the file meanwhile; nothing was written.
        HostError: it cannot be written.
    """
    path = file.path
    make_directories(path.parent)
    with host_errors("writing", path):
        if content is None:
            _require_unchanged(file)
            os.unlink(path)
            sync_directory(path.parent)
            with suppress(OSError):
                # Ours too, if nothing else stands in it.
                os.rmdir(path.parent)
            return
        temporary = path.parent / f".paddock-{secrets.token_hex(16)}.tmp"
        mode = _NEW_MODE if file.content is None else stat.S_IMODE(os.stat(path).st_mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            _require_unchanged(file)
            os.rename(temporary, path)
        except (OSError, ConfigError, HostError):
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)
        sync_directory(path.parent)


def _require_unchanged(file: SettingsFile) -> None:
    if read_file(file.path, SETTINGS_BYTES_MAX) != file.content:
        raise ConfigError(
            "the settings were changed by somebody else meanwhile",
            where=str(file.path),
            hint="nothing was written; do it again",
        )
