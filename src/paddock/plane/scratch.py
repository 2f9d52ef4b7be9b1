"""Make and clean a project's scratch folders: `agent_sandbox/<date>/<topic>/`, ignored by git.

Threat: agents write there, so any name in it may have become a link. Entries are created and
removed through their directory's descriptor, and no link to a directory is followed.
"""

import os
import stat
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from datetime import date, timedelta
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import ConfigError, HostError, UsageError
from paddock.pattern import lazy_pattern
from paddock.storage.atomic import held_open, host_errors, read_file
from paddock.text.show import quote

FOLDER: Final = "agent_sandbox"
IGNORED: Final = b"*\n"
"""Ignores the whole folder, this file included (gitignore(5))."""
_IGNORE: Final = ".gitignore"
_TOPIC: Final = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DATE: Final = lazy_pattern(r"\d{4}-\d\d-\d\d")
_AGE: Final = lazy_pattern(r"(\d{1,5})d")
_NEW_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Cleaned(Struct, frozen=True):
    """Folders that were, or would be, removed, by date; `kept` could not be removed."""

    removed: tuple[str, ...]
    kept: tuple[str, ...] = ()


def make_folder(root: Path, *, ignored: bool) -> bool:
    made = False
    with host_errors("making", root / FOLDER), suppress(FileExistsError):
        os.mkdir(root / FOLDER)
        made = True
    with _open_folder(root) as folder:
        if ignored:
            with host_errors("making", root / FOLDER / _IGNORE), suppress(FileExistsError):
                with held_open(os.open(_IGNORE, _NEW_FILE, 0o644, dir_fd=folder)) as descriptor:
                    os.write(descriptor, IGNORED)
                made = True
    return made


def ignore_new_folder(root: Path) -> Callable[[], None]:
    """Return a function to run after a call: if the call created `agent_sandbox/`, git ignores it.

    A link or file in its place is left alone, and a full disk is not an error: the call that wrote
    there is complete.
    """
    if os.path.lexists(root / FOLDER):
        return lambda: None

    def ignore() -> None:
        if os.path.lexists(root / FOLDER):
            with suppress(ConfigError, HostError):
                make_folder(root, ignored=True)

    return ignore


def remove_empty_folder(root: Path) -> None:
    if not os.path.lexists(root / FOLDER):
        return
    with _open_folder(root) as folder, host_errors("removing", root / FOLDER):
        if os.listdir(folder) not in ([], [_IGNORE]):
            return
        try:
            content = read_file(root / FOLDER / _IGNORE, len(IGNORED))
        except (ConfigError, HostError):  # Threat: a FIFO or a link that an agent has put there.
            return
        if content not in (None, IGNORED):
            return
        if content is not None:
            os.unlink(_IGNORE, dir_fd=folder)
        os.rmdir(root / FOLDER)


def new_folder(root: Path, topic: str, today: date, *, ignored: bool) -> Path:
    if not _TOPIC.fullmatch(topic):
        raise UsageError(
            f"{quote(topic)} cannot be a topic",
            hint="1 to 64 letters, digits, dots, dashes and underscores, no dot or dash in front",
        )
    make_folder(root, ignored=ignored)
    with _open_folder(root) as folder, held_open(_make_directory(today.isoformat(), folder)) as day:
        os.close(_make_directory(topic, day))
    return root / FOLDER / today.isoformat() / topic


def parse_age(text: str) -> int:
    match = _AGE.fullmatch(text)
    if match is None:
        raise UsageError(f"invalid age {quote(text)}", where="--older-than", hint="for example 7d")
    return int(match[1])


def clean(root: Path, days: int, today: date, *, dry_run: bool) -> Cleaned:
    if not os.path.lexists(root / FOLDER):
        return Cleaned(())
    removed: list[str] = []
    kept: list[str] = []
    with _open_folder(root) as folder:
        with host_errors("listing", root / FOLDER):
            names = sorted(os.listdir(folder))
        for name in names:
            if not _is_old(name, today - timedelta(days=min(days, today.toordinal() - 1))):
                continue
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if not stat.S_ISDIR(status.st_mode):
                continue
            try:
                if not dry_run:
                    import shutil  # noqa: PLC0415 - loads four compressors

                    shutil.rmtree(name, dir_fd=folder)
            except (OSError, RecursionError):
                # Threat: an agent nests folders deeper than rmtree can follow.
                kept.append(name)
            else:
                removed.append(name)
    return Cleaned(tuple(removed), tuple(kept))


def _is_old(name: str, limit: date) -> bool:
    if not _DATE.fullmatch(name):
        return False
    try:
        return date.fromisoformat(name) < limit
    except ValueError:
        return False


@contextmanager
def _open_folder(root: Path) -> Generator[int]:
    path = root / FOLDER
    try:
        descriptor = os.open(path, _DIRECTORY)
    except OSError as error:
        raise ConfigError(
            f"{FOLDER} is not a real directory: {error.strerror}",
            where=str(path),
            hint="remove the entry of that name",
        ) from error
    with held_open(descriptor):
        yield descriptor


def _make_directory(name: str, parent: int) -> int:
    with host_errors("making", Path(FOLDER, name)), suppress(FileExistsError):
        os.mkdir(name, dir_fd=parent)
    try:
        return os.open(name, _DIRECTORY, dir_fd=parent)
    except OSError as error:
        raise ConfigError(
            f"{quote(name)} in {FOLDER} is not a directory: {error.strerror}",
            hint="remove the entry of that name",
        ) from error
