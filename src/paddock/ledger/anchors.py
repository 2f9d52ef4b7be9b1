"""Store the topmost ledger's checkpoints outside the plane: directory, git or command.

Only the user's configuration names the anchor: a project that could name one could run a program,
or send the proof to a place that no one checks.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from paddock import limits
from paddock.errors import HostError
from paddock.ledger.checkpoint import set_aside_notes, store_note
from paddock.ledger.format.notes import SignedCheckpoint
from paddock.ledger.signing import NoteProgram, failed, run_command
from paddock.ledger.tree import read_notes
from paddock.storage.atomic import make_directories, read_file, replace_file

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_HINT: Final = "the user's configuration names it: [ledger] anchor"
_GIT: Final = (
    "git",
    # Run no hook of the repository, signing program or pager. A filter may run, but never on a
    # note: only on other files, which git compares if they were added just before.
    *("-c", "core.hooksPath=/dev/null", "-c", "commit.gpgSign=false", "-c", "core.fsmonitor=false"),
    *("-c", "user.name=paddock", "-c", "user.email=paddock@localhost"),
)


class Anchor(Protocol):
    @property
    def where(self) -> str: ...

    def read(self) -> list[str]: ...  # the stored notes, the newest last

    def store(self, signed: SignedCheckpoint) -> None: ...

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        """Store the note of a ledger whose rollback was accepted; earlier notes no longer count."""


class DirectoryAnchor:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.where = f"the directory {str(folder)!a}"

    def read(self) -> list[str]:
        return [note for _, note in read_notes(self._folder)]

    def store(self, signed: SignedCheckpoint) -> None:
        make_directories(self._folder)
        store_note(self._folder, signed)

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        set_aside_notes(self._folder, 0)
        self.store(signed)


class GitAnchor:
    """A file in a git repository, committed at each checkpoint; git keeps all versions."""

    def __init__(self, repository: Path, name: str, environment: Sequence[tuple[str, str]]) -> None:
        """`repository` may be any directory in it; `name` is a file below its `paddock/`."""
        self._repository, self._environment = repository, dict(environment)
        self._name = f"paddock/{name}.checkpoint"
        self._file = repository / self._name
        self.where = f"the git repository {str(repository)!a}"

    def read(self) -> list[str]:
        # Threat: with a lost branch or object git fails; that must not pass for an anchor without
        # notes, which only a successful listing proves.
        if not self._newest_commit() or not self._committed():
            return []
        return [self._git("cat-file", "blob", f"HEAD:./{self._name}")]

    def store(self, signed: SignedCheckpoint) -> None:
        self._commit(signed, f"Checkpoint {signed.checkpoint.size} of {signed.checkpoint.origin}")

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        origin, size = signed.checkpoint.origin, signed.checkpoint.size
        self._commit(signed, f"Accept the rollback of {origin} to {size}")

    def _commit(self, signed: SignedCheckpoint, message: str) -> None:
        from tempfile import TemporaryDirectory  # noqa: PLC0415 - only for git anchors

        note = signed.note.encode()
        before = self._newest_commit()
        # Not `git add`: it runs filters, which may change the note and invalidate it.
        stored = self._git("hash-object", "-w", "--stdin", given=note)
        if before and f" {stored}\t" in self._committed():
            return
        entry = f"100644,{stored},{self._git('rev-parse', '--show-prefix')}{self._name}"
        # Also in the user's index: otherwise their next commit would remove the note.
        self._git("update-index", "--add", "--cacheinfo", entry)
        make_directories(self._file.parent)
        if read_file(self._file, limits.checkpoint_note_bytes_max) != note:
            replace_file(self._file, note)
        with TemporaryDirectory(prefix="paddock-anchor-") as folder:
            own = {"GIT_INDEX_FILE": os.path.join(folder, "index")}
            if before:
                self._git("read-tree", before, more=own)
            self._git("update-index", "--add", "--cacheinfo", entry, more=own)
            tree = self._git("write-tree", more=own)
        parent = ("-p", before) if before else ()
        commit = self._git("commit-tree", *parent, "-m", message, tree)
        self._git("update-ref", "-m", message, "HEAD", commit, before)

    def _newest_commit(self) -> str:
        done = self._run("rev-parse", "--verify", "--quiet", "HEAD")
        if done.returncode == 0:
            return os.fsdecode(done.stdout).removesuffix("\n")
        if done.returncode != 1:
            raise failed(self.where, done, _HINT)
        if self._git("rev-list", "--all", "--reflog", "--max-count=1"):
            said = "the checked-out branch has no commit, and the repository has some"
            hint = f"check out the branch that holds the checkpoints; {_HINT}"
            raise HostError(said, where=self.where, hint=hint)
        return ""

    def _committed(self) -> str:
        return self._git("ls-tree", "HEAD", "--", self._name)

    def _git(
        self, *arguments: str, given: bytes = b"", more: Mapping[str, str] | None = None
    ) -> str:
        done = self._run(*arguments, given=given, more=more)
        if done.returncode != 0:
            raise failed(self.where, done, _HINT)
        # Keep a note byte for byte; of other answers strip the last line feed.
        if arguments[0] == "cat-file":
            return done.stdout.decode(errors="replace")
        return os.fsdecode(done.stdout).removesuffix("\n")

    def _run(
        self, *arguments: str, given: bytes = b"", more: Mapping[str, str] | None = None
    ) -> "CompletedProcess[bytes]":
        command = (*_GIT, "-C", str(self._repository), *arguments)
        return run_command(command, given, {**self._environment, **(more or {})}, self.where)


class CommandAnchor:
    """Runs `PROGRAM… store|accept-rollback|read ORIGIN`; notes go to stdin and come from `read`."""

    def __init__(
        self, command: Sequence[str], origin: str, environment: Sequence[tuple[str, str]]
    ) -> None:
        self.where = f"the command {command[0]!a}"
        self._program = NoteProgram(command, origin, dict(environment), self.where, _HINT)

    def read(self) -> list[str]:
        note = self._program.ask("read")
        return [note] if note else []

    def store(self, signed: SignedCheckpoint) -> None:
        self._program.ask("store", signed.note)

    def accept_rollback(self, signed: SignedCheckpoint) -> None:
        self._program.ask("accept-rollback", signed.note)
