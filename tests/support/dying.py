"""Processes that die at a chosen step: every call that changes a disk is one."""

import os
import signal
from collections.abc import Callable

import paddock.kernel.files as kernel_files
import paddock.storage.disk as storage_disk

CALLS = ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "symlink", "fsync", "fdatasync",
         "write", "pwrite", "truncate", "ftruncate", "chmod", "fchmod", "remove")  # fmt: skip


class Counter:
    """Counts the steps of this process; at the one with the index `dies_at` it is killed."""

    def __init__(self, dies_at: int | None) -> None:
        self.dies_at = dies_at
        self.steps = 0

    def step(self) -> None:
        if self.steps == self.dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.steps += 1

    def watch(self) -> None:
        """From now on. There is no way back: for a child that ends."""
        for name in CALLS:
            if hasattr(os, name):
                setattr(os, name, self._counted(getattr(os, name)))
        for name in ("sync", "fdatasync", "pwrite", "ftruncate", "set_mode"):
            counted = self._counted(getattr(storage_disk.Disk, name))
            setattr(storage_disk.Disk, name, staticmethod(counted))
        for name in ("renameat2", "syncfs"):
            setattr(kernel_files, name, self._counted(getattr(kernel_files, name)))

    def _counted(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object, **named: object) -> object:
            self.step()
            return call(*arguments, **named)

        return counted


def run_until(dies_at: int | None, act: Callable[[], None]) -> int | None:
    """Do `act` in a child that dies at that step; how many it took, None where it died."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(reader)
            write = os.write
            counter = Counter(dies_at)
            counter.watch()
            act()
            write(writer, str(counter.steps).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader, "rb") as told:
        said = told.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return int(said) if code == 0 else None
