"""Open a plane's store of replaced contents, its journal and its inbox.

Find and erase the contents that ledger entries name by digest.
"""

import json
import os
import re
import time
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct

from paddock.assembly.ledgers import ledger_of, record_in_governance
from paddock.assembly.project import Project
from paddock.errors import ConfigError, HostError, IntegrityError, LedgerDamagedError, UsageError
from paddock.ledger.format.lines import StoredEntry
from paddock.ledger.query import (
    BadRow,
    Filter,
    FoundEffects,
    find_decided,
    find_declarations,
    query,
    query_lines,
)
from paddock.ledger.read import stands
from paddock.pattern import lazy_pattern
from paddock.plane.agents import AgentRecord, require_as_declared
from paddock.plane.layout import LedgerName
from paddock.storage.disk import Disk
from paddock.storage.history import BlobStore, History, Keeper
from paddock.text.show import quote
from paddock.values import entries as events
from paddock.values.calls import Json
from paddock.workspace import Workspace
from paddock.workspace.workspace import detect_resolution

if TYPE_CHECKING:
    from paddock.runtime.inbox import Answers, Inbox, Parked
    from paddock.storage.journal import Journal
    from paddock.storage.objects import StoreReader

JOURNAL: Final = "journal"


def open_history(project: Project) -> History:
    bytes_max = project.policy.settings.history.bytes_max
    return History(str(project.layout.objects), bytes_max=bytes_max)


def read_history(project: Project) -> "StoreReader":
    from paddock.storage.objects import StoreReader  # noqa: PLC0415 - few calls look back

    return StoreReader(str(project.layout.objects))


def settle_sets(project: Project) -> tuple[str, ...]:
    """Complete or undo every set of changes that a killed process left; return notices."""
    directory = project.layout.objects / JOURNAL
    if not directory.is_dir() or not any(directory.iterdir()):
        return ()
    from paddock.workspace.apply import recover  # noqa: PLC0415 - only after a crash

    with open_journal(project) as journal:
        found = recover(journal, Disk(), detect_resolution())
    return tuple(each.notice for each in found if each.why)


def open_journal(project: Project) -> "Journal":
    from paddock.storage.journal import Journal  # noqa: PLC0415 - only to change many paths

    return Journal(str(project.layout.objects / JOURNAL), Disk())


_CHANGES_SEARCHED_MAX: Final = 100
"""Newest changes of a path that are searched for a version."""


class PlaneEarlier(Struct, frozen=True):
    project: Project
    agent: str

    def content(self, path: str, version: str, bytes_max: int) -> bytes | None:
        try:
            with read_history(self.project) as store:
                # Checked first: a version that is not stored needs no ledger query.
                if not store.has(version) or store.stored_bytes(version) > bytes_max:
                    return None
                if not self._was_at(path, version):
                    return None
                content = store.read(version)
        except (ConfigError, HostError, IntegrityError):
            return None  # what cannot be read, or is damaged, is not shown
        return content if len(content) <= bytes_max else None

    def _was_at(self, path: str, version: str) -> bool:
        """Return True if a call on this workspace found or left that version at that path.

        Threat: the store identifies contents only by digest, and holds those of every agent.
        An agent that knows the digest of a file it may not view could name it as the version
        of a file that it may view, and read the content in the diff.
        """
        from paddock.runtime.changes import past_calls  # noqa: PLC0415 - rarely needed

        paths = self.project.layout.ledger_paths()
        wanted = Filter(event_type=events.TOOL_RESULT, path=path)
        rows = query(str(paths[LedgerName.HO1M]), wanted, last=_CHANGES_SEARCHED_MAX).entries
        calls = past_calls(FoundEffects(rows, (), ()), ())
        agents = {
            call.agent
            for call in calls
            if any(
                (path, version) in ((c.path, c.before), (c.to or c.path, c.after))
                for c in call.changes
            )
        }
        if not agents:
            return False
        declared = find_declarations(str(paths[LedgerName.GOVERNANCE]))
        return any(self._shares_workspace(agent, declared) for agent in agents)

    def _shares_workspace(self, agent: str, declared: tuple[StoredEntry, ...]) -> bool:
        """Return True if both agents worked in the same workspace, and never in another.

        Threat: the same path is another file in another workspace.
        """
        ours, theirs = _workspaces(self.agent, declared), _workspaces(agent, declared)
        # The admin agent of a bare plane has no declaration, and one workspace.
        return ours == theirs and (len(ours) == 1 or (not ours and agent == self.agent))


def _workspaces(agent: str, declared: tuple[StoredEntry, ...]) -> frozenset[str]:
    return frozenset(
        str(row.entry.metadata.get("workspace")) for row in declared if row.entry.agent == agent
    )


def open_workspace_of(
    record: AgentRecord, keeper: Keeper | None = None, name: str | None = None
) -> Workspace:
    """Open the workspace that a record declares; `keeper` and `name` as in `Workspace.open`.

    Threat: a symlink is put in its path after the record was read. So the real path of the open
    directory is compared, and from then on its descriptor is used. Raises: ConfigError, HostError.
    """
    workspace = Workspace.open(str(record.workspace), keeper=keeper, name=name)
    try:
        require_as_declared(record, Path(workspace.real_root))
    except BaseException:
        workspace.close()
        raise
    return workspace


@contextmanager
def workspace_with_git(record: AgentRecord, keeper: Keeper) -> Generator[Workspace]:
    from paddock.sandbox.host.git import open_git_outside  # noqa: PLC0415 - only for commands

    with open_workspace_of(record, keeper) as workspace:
        held = open_git_outside(workspace.real_root)
        if held is None:
            yield workspace
            return
        try:
            with workspace.with_beside(held.beside) as both:
                yield both
        finally:
            held.close()


BLOBS: Final = "blobs"
_DIGEST: Final = lazy_pattern(r"[0-9a-f]{64}", re.ASCII)


class NamedContent(Struct, frozen=True):
    call_id: str
    seq: int
    argument: str
    digest: str
    size_bytes: int
    is_output: bool = False
    """True if it is kept in the history, and cannot be erased separately."""


def open_blobs(project: Project) -> BlobStore:
    return BlobStore(project.layout.objects / BLOBS, os.urandom)


def contents_of_call(project: Project, call_id: str) -> tuple[NamedContent, ...]:
    path = project.layout.ledger_paths()[LedgerName.HO1M]
    if not stands(path):
        return ()
    return tuple(
        named
        for row in query_lines(str(path), Filter(call_id=call_id)).entries
        for named in named_contents(row.entry, row.seq)
    )


def read_output(project: Project, digest: str) -> bytes | None:
    with read_history(project) as store:
        return store.find(f"sha256:{digest}")


def has_output(project: Project, digest: str) -> bool:
    with read_history(project) as store:
        return store.has(f"sha256:{digest}")


def require_digest(text: str) -> str:
    digest = text.removeprefix(events.DIGEST_PREFIX)
    if _DIGEST.fullmatch(digest) is None:
        raise UsageError(
            f"invalid content digest {quote(text)}",
            hint="64 hexadecimal digits, as salted_sha256 or output_kept of an entry; or --call ID",
        )
    return digest


def erase_contents(project: Project, digests: Sequence[str], reason: str) -> tuple[str, ...]:
    """Erase contents and their salts, and record it; return the digests of those that existed.

    Sequence: the entry is durable → the contents are erased. After a kill, erase them again.
    """
    with closing(open_blobs(project)) as blobs:
        found = tuple(digest for digest in dict.fromkeys(digests) if blobs.has(digest))
        if not found:
            return ()
        said = reason or "an operator erased contents"
        entry = events.Entry(events.CONTENT_ERASED, reason=said, metadata={"digests": list(found)})
        record_in_governance(project, entry)
        for digest in found:
            blobs.erase(digest)
    return found


def find_erasure(project: Project, digest: str) -> int | None:
    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not stands(path):
        return None
    for row in reversed(query(str(path), Filter(event_type=events.CONTENT_ERASED)).entries):
        if digest in cast("list[Json]", row.entry.metadata.get("digests", [])):
            return row.seq
    return None


def named_contents(entry: events.Entry, seq: int) -> list[NamedContent]:
    found: list[NamedContent] = []
    for member, of_digest in (("output_kept", "digest"), ("arguments", "salted_sha256")):
        rows = entry.metadata.get(member)
        for name, value in cast("dict[str, Json]", rows if isinstance(rows, dict) else {}).items():
            kept = cast("dict[str, Json]", value if isinstance(value, dict) else {})
            digest, size = kept.get(of_digest), kept.get("bytes")
            # A content whose salt is in the entry was never kept.
            if isinstance(digest, str) and type(size) is int and "salt" not in kept:
                text, is_output = digest.removeprefix(events.DIGEST_PREFIX), member == "output_kept"
                found.append(NamedContent(entry.call_id, seq, name, text, size, is_output))
    return found


# The inbox of a plane; its requests pin contents in the store.

_ANSWERS: Final = (events.APPROVAL_ANSWERED, events.ROLLBACK_ACCEPTED)


def open_inbox(project: Project) -> "Inbox":
    from paddock.runtime.inbox import Inbox  # noqa: PLC0415 - only for a request

    def release(pin: str) -> None:
        with closing(open_history(project)) as history:
            history.store.unpin(pin)

    return Inbox(
        project.layout.registries / "approvals" / "calls",
        partial(record_in_governance, project),
        lambda request: read_answers(project, [request]),
        time.time,
        os.urandom,
        release,
        partial(_notify, project.policy.settings.approvals.notify),
    )


_DETACHED: Final = ("sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh")
"""Run a program and do not wait; POSIX gives `&` no stdin, so descriptor 3 passes it on."""


def _notify(command: tuple[str, ...], parked: "Parked") -> None:
    """Start the user's notification command. The call neither waits for it nor fails with it."""
    if not command:
        return
    import subprocess  # noqa: PLC0415 - slow to load, and rarely needed
    import tempfile  # noqa: PLC0415 - as above

    with tempfile.TemporaryFile() as request, suppress(OSError):
        request.write(json.dumps(parked.as_json()).encode())
        request.seek(0)
        quiet = subprocess.DEVNULL
        line = (*_DETACHED, *command)
        subprocess.run(line, stdin=request, stdout=quiet, stderr=quiet, check=False)


# Threat: editing, cutting or restoring away the record of its use makes a used grant valid again.
# So answers are read from the lines, never from the index, and only if the whole ledger is as it
# was signed, by the key's last checkpoint and the anchor, which are outside the plane. Answers
# from before an accepted rollback of the ledger do not count.


def read_answers(project: Project, requests: Collection[str]) -> "Answers":
    """Read the answers to these requests. Raises: LedgerDamagedError, HostError, ConfigError."""
    from paddock.assembly.audit import audit_ledger  # noqa: PLC0415 - only for a request
    from paddock.runtime.inbox import Answers  # noqa: PLC0415 - as above

    path = project.layout.ledger_paths()[LedgerName.GOVERNANCE]
    if not path.exists():
        return Answers(())
    if not audit_ledger(ledger_of(project, LedgerName.GOVERNANCE)).is_whole:
        raise _unverified(path)
    found: list[Mapping[str, Json]] = []
    for row in find_decided(str(path), _ANSWERS, Filter()):
        if isinstance(row, BadRow):
            raise _unverified(path)
        metadata = row.entry.metadata
        if row.entry.event_type == events.APPROVAL_ANSWERED:
            found += [metadata] if metadata.get("request") in requests else []
        elif metadata.get("ledger") == LedgerName.GOVERNANCE:
            break
    return Answers(found)


def _unverified(path: Path) -> LedgerDamagedError:
    return LedgerDamagedError(
        "the governance ledger does not verify: which grants were used is unknown",
        where=str(path),
        hint="paddock ledger verify --ledger governance",
    )
