"""Where a plane keeps what belongs to changes of packages on their way; see `transaction`.

It lies in the plane's own store, which no package brings files to and no agent writes to.
Everything here is small, written whole and synced before anything relies on it.
"""

import os
import re
import secrets
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from paddock import limits
from paddock.errors import IntegrityError
from paddock.packages.transaction import Transaction, parse_transaction
from paddock.plane.files import (
    FILE_MODE,
    create_file,
    host_errors,
    is_temporary_name,
    make_directories,
    read_file,
    replace_file,
    require_private,
    sync_directory,
)
from paddock.plane.layout import PlaneLayout
from paddock.plane.locks import locked, shared, try_locked, try_shared
from paddock.values.digests import digest_of

_ID: Final = re.compile(r"TX-[0-9a-f]{32}", re.ASCII)


def new_transaction_id() -> str:
    """An id that nobody has."""
    return f"TX-{secrets.token_hex(16)}"


def sweep_drafts(directory: Path) -> None:
    """Remove drafts of files that killed writers left; whoever writes there holds our lock.

    Raises: HostError.
    """
    if not directory.is_dir():
        return
    with host_errors("tidying", directory):
        for name in os.listdir(directory):
            if is_temporary_name(name):
                os.unlink(directory / name)


class Attic:
    """One plane's. Whoever changes anything here holds the lock."""

    __slots__ = ("_directory", "_transaction")

    def __init__(self, layout: PlaneLayout) -> None:
        """Nothing is made."""
        self._directory = layout.package_changes
        self._transaction = layout.package_transaction

    @contextmanager
    def locked(self) -> Generator[None]:
        """One change of packages at a time, across processes.

        Raises: ConfigError (others can write here), HostError (another one goes on for long).
        """
        make_directories(self._directory)
        require_private(self._directory)
        with locked(self._directory):
            yield

    @contextmanager
    def try_locked(self) -> Generator[bool]:
        """The same without waiting: whether nobody else is changing packages now."""
        if not self._directory.is_dir():
            make_directories(self._directory)
        require_private(self._directory)
        with try_locked(self._directory) as is_ours:
            yield is_ours

    @contextmanager
    def at_rest(self) -> Generator[None]:
        """No change of packages meanwhile; any number may look at once. Raises: as `locked`."""
        make_directories(self._directory)
        require_private(self._directory)
        with shared(self._directory):
            yield

    @contextmanager
    def try_at_rest(self) -> Generator[bool]:
        """The same without waiting: False where packages are being changed now. Raises: HostError.

        It is for looks that write nothing here, so it is not asked who else can.
        """
        if not self._directory.is_dir():
            make_directories(self._directory)
        with try_shared(self._directory) as is_at_rest:
            yield is_at_rest

    def has_transaction(self) -> bool:
        """Whether a change was left half done, or is on its way: one look."""
        return os.path.lexists(self._transaction)

    def read(self) -> Transaction | None:
        """The change that is on its way, if there is one. Raises: ConfigError, IntegrityError."""
        path = self._transaction
        content = read_file(path, limits.receipt_bytes_max)
        if content is None:
            return None
        found = parse_transaction(content, str(path))
        if _ID.fullmatch(found.id) is None:
            raise IntegrityError("the record of a change of packages has no id", where=str(path))
        return found

    def write(self, transaction: Transaction) -> None:
        """Put it on the device, in the place of its earlier phase."""
        replace_file(self._transaction, transaction.to_bytes())

    def forget(self) -> None:
        """The change is over: its record first, then what was put aside for it."""
        with host_errors("ending a change of packages in", self._directory):
            self._transaction.unlink(missing_ok=True)
            sync_directory(self._directory)

    def put_aside(self, transaction_id: str, number: int, content: bytes) -> str:
        """Keep what is about to be replaced; its name."""
        directory = self._directory / transaction_id
        make_directories(directory)
        create_file(directory / str(number), content, FILE_MODE)
        return self.name_aside(transaction_id, number)

    def name_aside(self, transaction_id: str, number: int) -> str:
        """The name under which `put_aside` keeps something."""
        return f"{transaction_id}/{number}"

    def read_aside(self, name: str, version: str) -> bytes:
        """What was put aside under that name. Raises: IntegrityError: it is not that content."""
        transaction_id, _, number = name.partition("/")
        if _ID.fullmatch(transaction_id) is None or not number.isdigit():
            raise IntegrityError("the record of a change of packages names no place here")
        return self._read(self._directory / transaction_id / number, version)

    def sweep(self) -> None:
        """Remove what only changes that are over put aside."""
        sweep_drafts(self._directory)
        with host_errors("tidying", self._directory):
            for entry in list(os.scandir(self._directory)):
                if _ID.fullmatch(entry.name) is not None:
                    shutil.rmtree(entry.path)

    def _read(self, path: Path, version: str) -> bytes:
        content = read_file(path, limits.package_bytes_max)
        if content is None or digest_of(content) != version:
            raise IntegrityError(
                "what a package replaced was kept, and is damaged", where=str(path)
            )
        return content
