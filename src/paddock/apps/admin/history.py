"""Keep the lines that were typed, in a private file of the user.

One JSON string per line. Lines that begin with a space or are too long are not kept.

Threat: typed lines may hold secrets, and another user who could write the file could plant
commands that a key press recalls. The file must be private and not a symlink.
"""

import json
import os
import stat
from pathlib import Path
from typing import Final, cast

from paddock.errors import ConfigError
from paddock.storage import atomic
from paddock.text.show import quote

FILE: Final = "admin-history.jsonl"
_ENTRIES_MAX: Final = 2_000
_ENTRY_CHARS_MAX: Final = 10_000
_BYTES_MAX: Final = 4_000_000


class HistoryFile:
    """The lines typed earlier; at most 2,000, each in one write."""

    def __init__(self, directory: Path) -> None:
        self._file = directory / FILE

    def load(self) -> list[str]:
        """Return the lines, oldest first; skip invalid ones. Raises: ConfigError, HostError."""
        atomic.require_private(self._file.parent)
        content = atomic.read_file(self._file, _BYTES_MAX)
        if content is None:
            return []
        _require_own(self._file)
        found = [text for each in content.splitlines() if (text := _parse(each)) is not None]
        kept = found[-_ENTRIES_MAX:]
        if len(content) > _BYTES_MAX // 2 or len(found) > 2 * _ENTRIES_MAX:
            atomic.replace_file(
                self._file, b"".join(_line(text) for text in kept[-_ENTRIES_MAX // 2 :])
            )
        return kept

    def add(self, text: str) -> None:
        """Append a line. Raises: HostError."""
        if not text.strip() or text.startswith(" ") or len(text) > _ENTRY_CHARS_MAX:
            return
        atomic.make_directories(self._file.parent)
        # O_APPEND: concurrent shells add whole lines. O_NOFOLLOW, and 0600 from the start.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        with atomic.host_errors("writing", self._file):
            descriptor = os.open(self._file, flags, atomic.FILE_MODE)
            try:
                os.write(descriptor, _line(text))
            finally:
                os.close(descriptor)


def _require_own(file: Path) -> None:
    with atomic.host_errors("inspecting", file):
        found = os.lstat(file)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{quote(file)} is not private to you (mode {stat.S_IMODE(found.st_mode):04o})",
            where=str(file),
            hint="chmod 600, or remove it",
        )


def _line(text: str) -> bytes:
    return json.dumps(text, ensure_ascii=True).encode("ascii") + b"\n"


def _parse(line: bytes) -> str | None:
    try:
        value = cast("object", json.loads(line))
    except ValueError:
        return None
    return value if isinstance(value, str) else None
