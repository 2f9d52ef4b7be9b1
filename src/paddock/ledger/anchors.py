"""Where the highest checkpoints go, outside the plane: a directory, a git repository, a command.

Which one, the user's own configuration says and nothing else: whoever could name
it from a project could run a program, or send the proof where nobody looks.

An anchor keeps for each log the newest note, and what a person accepted as going
back. It is read when a ledger is verified: what it holds has to be in the ledger.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from paddock import limits
from paddock.ledger.checkpoints import read_notes, set_aside_notes, store_note
from paddock.ledger.format_notes import SignedCheckpoint
from paddock.ledger.programs import failed, run_command
from paddock.plane.files import make_directories, read_file, replace_file

_HINT: Final = "the user's configuration names it: [ledger] anchor"
_GIT: Final = (
    "git",
    # Nothing of the repository's own runs: no hook, no signing program, no pager.
    *("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false"),
    *("-c", "user.name=paddock", "-c", "user.email=paddock@localhost"),
)


class Anchor(Protocol):
    """Keeps the checkpoints of one log. `where` is for people."""

    @property
    def where(self) -> str:
        """What it is, in words."""
        ...

    def read(self) -> list[str]:
        """The notes that it holds, the newest last; none before the first.

        Raises: HostError where it cannot be read.
        """
        ...

    def store(self, signed: SignedCheckpoint) -> None:
        """Keep a note, durably. Raises: HostError."""
        ...

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        """Keep a note of a log that went back; what it held of more entries counts no more.

        Raises: HostError.
        """
        ...


class DirectoryAnchor:
    """A directory of notes, each named by its size."""

    __slots__ = ("_folder",)

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def where(self) -> str:
        """See `Anchor`."""
        return f"the directory {str(self._folder)!a}"

    def read(self) -> list[str]:
        """See `Anchor`."""
        return [note for _, note in read_notes(self._folder)]

    def store(self, signed: SignedCheckpoint) -> None:
        """See `Anchor`."""
        make_directories(self._folder)
        store_note(self._folder, signed)

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        """See `Anchor`; the notes of what is no more stay under another name."""
        make_directories(self._folder)
        set_aside_notes(self._folder, 0)
        store_note(self._folder, signed)


class GitAnchor:
    """A file in a git repository, committed at each checkpoint; its history keeps them all."""

    __slots__ = ("_environment", "_file", "_repository")

    def __init__(self, repository: Path, name: str, environment: Sequence[tuple[str, str]]) -> None:
        """`name` is the file's, below `paddock/`; `environment` is what git gets."""
        self._repository = repository
        self._file = repository / "paddock" / f"{name}.checkpoint"
        self._environment = dict(environment)

    @property
    def where(self) -> str:
        """See `Anchor`."""
        return f"the git repository {str(self._repository)!a}"

    def read(self) -> list[str]:
        """See `Anchor`: what is committed, not what lies in the work tree."""
        place = f"HEAD:{self._file.relative_to(self._repository).as_posix()}"
        if self._git("rev-parse", "--verify", "--quiet", "HEAD", may_fail=True) is None:
            return []
        if self._git("cat-file", "-e", place, may_fail=True) is None:
            return []
        return [self._git("cat-file", "blob", place) or ""]

    def store(self, signed: SignedCheckpoint) -> None:
        """See `Anchor`."""
        self._commit(signed, f"Checkpoint {signed.checkpoint.size} of {signed.checkpoint.origin}")

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        """See `Anchor`."""
        origin, size = signed.checkpoint.origin, signed.checkpoint.size
        self._commit(signed, f"Accept that {origin} went back to {size}")

    def _commit(self, signed: SignedCheckpoint, message: str) -> None:
        note = signed.note.encode()
        make_directories(self._file.parent)
        if read_file(self._file, limits.checkpoint_note_bytes_max) != note:
            replace_file(self._file, note)
        path = str(self._file)
        self._git("add", "--force", "--", path)
        if self._git("diff", "--cached", "--quiet", "--", path, may_fail=True) is None:
            # This path alone: what else is staged is somebody else's work.
            self._git(
                "commit", "--quiet", "--no-verify", "--message", message, "--only", "--", path
            )

    def _git(self, *arguments: str, may_fail: bool = False) -> str | None:
        """What git prints; None where it fails and may."""
        command = (*_GIT, "-C", str(self._repository), *arguments)
        done = run_command(command, b"", self._environment, self.where)
        if done.returncode == 0:
            return done.stdout.decode(errors="replace")
        if may_fail and done.returncode == 1:
            return None
        if may_fail and arguments[0] == "cat-file" and done.returncode == 128:
            return None
        raise failed(self.where, done, _HINT)


class CommandAnchor:
    """A program of the user's: `PROGRAM… store|accept-rollback|read ORIGIN`.

    The note comes on its standard input; `read` prints the newest note, or nothing.
    """

    __slots__ = ("_command", "_environment", "_origin")

    def __init__(
        self, command: Sequence[str], origin: str, environment: Sequence[tuple[str, str]]
    ) -> None:
        self._command = tuple(command)
        self._origin = origin
        self._environment = dict(environment)

    @property
    def where(self) -> str:
        """See `Anchor`."""
        return f"the command {self._command[0]!a}"

    def read(self) -> list[str]:
        """See `Anchor`."""
        note = self._ask("read", b"")
        return [note] if note else []

    def store(self, signed: SignedCheckpoint) -> None:
        """See `Anchor`."""
        self._ask("store", signed.note.encode())

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        """See `Anchor`."""
        self._ask("accept-rollback", signed.note.encode())

    def _ask(self, what: str, given: bytes) -> str:
        command = (*self._command, what, self._origin)
        done = run_command(command, given, self._environment, self.where)
        if done.returncode != 0:
            raise failed(self.where, done, _HINT)
        return done.stdout[: limits.checkpoint_note_bytes_max + 1].decode(errors="replace")
