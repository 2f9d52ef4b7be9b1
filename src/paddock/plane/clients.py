"""A client's own configuration file: read, an edit of it shown, and written only as it was read."""

import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import ConfigError, HostError
from paddock.plane.environment import real_path
from paddock.storage.atomic import (
    host_errors,
    make_directories,
    read_file,
    read_file_through_links,
    sync_directory,
)
from paddock.text.show import quote

CLIENT_FILE_BYTES_MAX: Final = 16_000_000
_SHARED_MODE: Final = 0o644
"""A project's settings hold no secret."""
_PRIVATE_MODE: Final = 0o600
"""What a client keeps in its user's own file may be one."""


class ClientFile(Struct, frozen=True):
    path: Path
    content: bytes | None
    mode_if_new: int

    @property
    def text(self) -> str:
        try:
            return (self.content or b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigError(
                f"the settings are not UTF-8 at byte {error.start}", where=str(self.path)
            ) from None


class ClientFileEdit(Struct, frozen=True):
    file: ClientFile
    content: bytes | None

    @property
    def changes(self) -> bool:
        return self.content != self.file.content

    def shown(self) -> str:
        import difflib  # noqa: PLC0415 - for who asks to see the edit

        before = (self.file.content or b"").decode("utf-8", "replace").splitlines()
        after = (self.content or b"").decode("utf-8", "replace").splitlines()
        name = str(self.file.path)
        return "\n".join(difflib.unified_diff(before, after, name, name, lineterm=""))

    def apply(self) -> None:
        """Put the new content in the place of what was read.

        Sequence: temporary beside it, with its mode → fsync → a look that the file is still
        what was read → rename → fsync of the directory.

        Raises: ConfigError: somebody changed the file meanwhile. HostError.
        """
        path = self.file.path
        make_directories(path.parent)
        with host_errors("writing", path):
            if self.content is None:
                self._remove()
            else:
                self._replace(self.content)
            sync_directory(path.parent)
        if self.content is None:
            with suppress(OSError):
                # Ours too, if nothing else stands in it.
                os.rmdir(path.parent)

    def _remove(self) -> None:
        self._require_unchanged()
        os.unlink(self.file.path)

    def _replace(self, content: bytes) -> None:
        path = self.file.path
        temporary = path.parent / f".paddock-{os.urandom(16).hex()}.tmp"
        mode = self.file.mode_if_new
        if self.file.content is not None:
            mode = stat.S_IMODE(os.stat(path).st_mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o600)
        try:
            rest = memoryview(content)
            while rest:
                rest = rest[os.write(descriptor, rest) :]
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)
            self._require_unchanged()
            os.rename(temporary, path)
        except (OSError, ConfigError, HostError):
            os.unlink(temporary)
            raise
        finally:
            os.close(descriptor)

    def _require_unchanged(self) -> None:
        file = self.file
        if read_file(file.path, CLIENT_FILE_BYTES_MAX) != file.content:
            raise ConfigError(
                "the settings were changed by somebody else meanwhile",
                where=str(file.path),
                hint="nothing was written; do it again",
            )


def read_client_file(path: Path, *, follows: bool) -> ClientFile:
    """Raises: ConfigError: a link where none is followed, no regular file, too large.

    Threat: a cloned project whose settings file is a link has us write somewhere else.
    In the user's own directory a link is the user's, and what it leads to is edited.
    """
    if not follows:
        parent = path.parent
        if parent.is_symlink():
            raise ConfigError(
                f"{quote(str(parent))} is a link, and links are not followed here",
                where=str(parent),
                hint="replace the link with a directory of its own",
            )
        return ClientFile(path, read_file(path, CLIENT_FILE_BYTES_MAX), _SHARED_MODE)
    real = real_path(path)
    content = read_file_through_links(real, CLIENT_FILE_BYTES_MAX)
    return ClientFile(real, content, _PRIVATE_MODE)


# Sources: Claude Code's documentation of its settings, Codex's of its configuration. The hook's
# lean path imports nothing of the plane, and names the variables again in `image.py`.


class ClientHome(Struct, frozen=True):
    """One client's folder: `folder` in a project and in a home, unless `variable` is set."""

    folder: str
    variable: str

    def of_user(self, home: str, variables: Mapping[str, str]) -> str:
        """The user's own folder. A variable's value stays as it is: also a relative one."""
        return variables.get(self.variable) or f"{home.rstrip('/')}/{self.folder}"


CLAUDE: Final = ClientHome(".claude", "CLAUDE_CONFIG_DIR")
CODEX: Final = ClientHome(".codex", "CODEX_HOME")
HOMES: Final = (CLAUDE, CODEX)
