"""Stores whose disk lacks something, or of which a chosen step fails."""

import errno
import os

from paddock.history.disk import StoreDisk

_FAILING = (
    "make_directory",
    "open_unnamed",
    "create",
    "write",
    "copy",
    "sync",
    "link_open",
    "replace",
    "unlink",
    "set_mode",
    "touch",
)


class NamedOnlyStoreDisk(StoreDisk):
    """A file system without O_TMPFILE."""

    def open_unnamed(self, dir_fd: int) -> int | None:
        return None


class NoSyncStoreDisk(StoreDisk):
    """One that is never waited for: tests of what is kept, not of durability."""

    def sync(self, fd: int) -> None:
        pass

    def sync_all(self, dir_fd: int, fds: list[int]) -> None:
        pass


STORE_DISKS = {"whole": StoreDisk, "named-only": NamedOnlyStoreDisk}


class FailingStoreDisk(StoreDisk):
    """Counts its steps; the one with the index `fails_at` fails with `code`."""

    def __init__(self, fails_at: int | None = None, code: int = errno.ENOSPC) -> None:
        self.fails_at = fails_at
        self.code = code
        self.steps: list[str] = []

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if self.fails_at == len(self.steps) - 1:
            raise OSError(self.code, os.strerror(self.code))


def _failing(name: str):
    def method(self, *arguments):
        self._step(name)
        return getattr(StoreDisk, name)(self, *arguments)

    return method


for _name in _FAILING:
    setattr(FailingStoreDisk, _name, _failing(_name))


def objects_in(directory) -> list[str]:
    """The names of the objects, packed ones with their ending."""
    return sorted(name for name in os.listdir(directory) if len(name) >= 64)


WORKSPACE_STEPS = (
    "open_unnamed",
    "create",
    "write",
    "sync",
    "link_unnamed",
    "move_new",
    "exchange",
    "replace",
    "unlink",
    "make_directory",
    "remove_directory",
    "make_link",
    "set_mode",
)
STORE_STEPS = (*_FAILING, "link")


class Steps:
    """Counts what two disks do together; at the step with the index `at`, `strike` is called."""

    def __init__(self, at: int | None = None, strike=None, *, is_after: bool = False) -> None:
        self.at = at
        self.strike = strike
        self.is_after = is_after
        self.taken: list[str] = []

    def disk(self, base: type, names: tuple[str, ...]):
        """A disk of that type, of which these methods are steps."""
        methods = {name: self._counted(base, name) for name in names}
        return type(f"Counted{base.__name__}", (base,), methods)()

    def _counted(self, base: type, name: str):
        steps = self

        def method(self, *arguments):
            is_struck = steps.at == len(steps.taken)
            steps.taken.append(name)
            if is_struck and not steps.is_after:
                steps.strike()
            try:
                done = getattr(base, name)(self, *arguments)
            except OSError:
                # As where nothing stands that is to be removed, which is how most names end.
                if is_struck and steps.is_after:
                    steps.strike()
                raise
            if is_struck and steps.is_after:
                if name in {"open_unnamed", "create"} and done is not None:
                    os.close(done)
                steps.strike()
            return done

        return method
