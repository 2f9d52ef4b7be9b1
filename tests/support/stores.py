"""Stores that are never waited for, and what stands in one."""

import os

from paddock.storage.disk import Disk


class NoSyncDisk(Disk):
    """One that is never waited for: tests of what is kept, not of durability."""

    def sync(self, fd: int) -> None:
        pass

    def fdatasync(self, fd: int) -> None:
        pass

    def sync_all(self, dir_fd: int, fds: list[int]) -> None:
        pass


def objects_in(directory) -> list[str]:
    """The names of the objects, packed ones with their ending."""
    return sorted(name for name in os.listdir(directory) if len(name) >= 64)
