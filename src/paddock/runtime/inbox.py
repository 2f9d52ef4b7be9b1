"""The inbox: questions that nobody could answer when they were put, kept for somebody.

One private file a request, in the plane. Only operators answer; the next call with the
same digest takes the answer, once. What counts is what the governance ledger says: the
file is where the call is kept and where two processes meet.

    waiting ── grant ──▶ granted ── taken by one call ──▶ (gone)
       ├───── refuse ──▶ refused, until it expires
       └── answered where the same call was made again ──▶ (gone)
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.errors import (
    ApprovalExpiredError,
    ApprovalRefusedError,
    ApprovalUnavailableError,
    ConfigError,
    UsageError,
)
from paddock.pattern import lazy_pattern
from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.runtime.parked import Answers, Parked, parse_parked, pin_name, write_parked
from paddock.runtime.records import GRANTED, REFUSED, USED, answered_later, approval_answered
from paddock.storage.atomic import (
    create_file,
    host_errors,
    make_directories,
    read_file,
    replace_file,
    require_private,
    sync_directory,
)
from paddock.storage.locks import locked
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import Entry


class BrokenRequest(Struct, frozen=True):
    id: str
    file: Path
    why: str
    where: str

    def as_error(self) -> ConfigError:
        return ConfigError(
            f"the request {quote(self.id)} does not load: {self.why}",
            where=self.where,
            hint=f"move it away with paddock approvals refuse {self.id}; then its call is "
            "asked about again",
        )

    def summary(self) -> dict[str, Json]:
        return {"id": self.id, "state": "broken", "file": str(self.file), "error": self.why}


_NAME: Final = lazy_pattern(r"(APR-[0-9a-f]{16})\.([0-9a-f]{32})\.json")
_ID: Final = lazy_pattern(r"APR-[0-9a-f]{4,16}")


def _name_of(parked: Parked) -> str:
    return f"{parked.id}{_ending_for(parked.request)}"


def _ending_for(request: ApprovalRequest) -> str:
    """How the names end of files that may be for exactly this: the whole digest is in the file."""
    return f".{request.digest.removeprefix('sha256:')[:32]}.json"


_FILE_BYTES_MAX: Final = limits.approval_kept_bytes_max + 1_000_000
_FILE_MODE: Final = 0o600
_ANSWER_THEM: Final = "ask a person to answer what waits: paddock approvals list"


class Inbox(Struct, frozen=True):
    """The kept requests of one plane. Safe to use from several threads and processes.

    Raises, each method: HostError, ConfigError (others can write to the directory, or a
    file in it does not load), LedgerDamagedError (no grant counts).
    """

    directory: Path
    record: Callable[[Entry], None]
    """Puts an entry into the governance ledger, durably; where it raises, nothing counts."""
    answers: Callable[[str], Answers]
    """What that ledger has on the request of this id. Raises: LedgerDamagedError."""
    clock: Callable[[], float]
    randomness: Callable[[int], bytes]
    release: Callable[[str], None]
    """Lets go of what the history holds under a pin."""
    tell: Callable[[Parked], None] = lambda _: None
    """Tells somebody of a request that waits from now on."""

    def take(self, request: ApprovalRequest) -> Approval | None:
        """The answer that somebody gave for exactly this, if any. A grant is used up by it.

        Threat: an agent repeats a call that was granted once, two processes do so at
        the same time, or somebody puts a file, or a used one again, into the
        directory. One process holds the lock; it counts only what is on record.
        """
        if not self._named_after(request):
            return None
        require_private(self.directory)
        is_late = False
        with locked(self.directory):
            for name in self._named_after(request):
                parked = self._read(name)
                if parked is None or not _is_for(parked, request) or parked.state == "waiting":
                    continue
                if parked.is_expired(self.clock()):
                    self._forget(name, parked)
                    is_late = is_late or parked.state == GRANTED
                    continue
                if parked.state == REFUSED:
                    return Approval(
                        False, parked.answered_by, ApprovalRefusedError.code, parked.note, parked.id
                    )
                if not self.answers(parked.id).is_granted(parked, self.clock()):
                    self._forget(name, parked)
                    continue
                # On record before the lock is free, and gone before the call runs: a grant
                # that is lost is asked for again, one that is left over would count twice.
                granted = Approval(True, parked.answered_by, "", parked.note, parked.id)
                self.record(approval_answered(request, granted))
                self._forget(name, parked)
                return granted
        return (
            Approval(False, "inbox", ApprovalExpiredError.code, "the grant had expired")
            if is_late
            else None
        )

    def settle(self, request: ApprovalRequest, approval: Approval) -> bool:
        """Whether exactly this was waiting under the answer's id until now; it is gone then.

        For a client that answers a kept request by making its call again: of any number of
        times that it sends one answer, one counts, also where the file was put back.
        """
        with locked(self.directory):
            for name, parked in self._waiting_for(request):
                if parked.id != approval.request_id:
                    continue
                if parked.is_expired(self.clock()) or self.answers(parked.id).is_used(parked):
                    return False
                if approval.is_granted:
                    self.record(approval_answered(request, approval))
                self._forget(name, parked)
                return True
        return False

    def forget_waiting(self, request: ApprovalRequest) -> None:
        if not self._named_after(request):
            return
        require_private(self.directory)
        with locked(self.directory):
            for name, parked in self._waiting_for(request):
                self._forget(name, parked)

    def keep(self, request: ApprovalRequest) -> Parked:
        make_directories(self.directory)
        require_private(self.directory)
        with locked(self.directory):
            kept = self._sweep()
            for each in kept:
                # Threat: a file that was changed meanwhile would get a record of its own here.
                is_same = _is_for(each, request) and each.state == "waiting"
                if is_same and self.answers(each.id).is_kept(each):
                    return each
            self._require_room(kept, request)
            now = int(self.clock())
            until = now + int(limits.approval_kept_s)
            identity = f"APR-{self.randomness(8).hex()}"
            parking = request.parking
            changes = None if parking is None else parking.park(pin_name(identity))
            parked = Parked(identity, request, now, until, changes=changes)
            try:
                self._write(parked)
            except BaseException:
                self._release(parked)
                raise
        self.tell(parked)
        return parked

    def list_all(self) -> list[Parked]:
        require_private(self.directory)
        found = [parked for _, parked in self._readable()]
        now = self.clock()
        current = [parked for parked in found if not parked.is_expired(now)]
        return sorted(current, key=lambda parked: (parked.parked_at, parked.id))

    def list_broken(self) -> list[BrokenRequest]:
        require_private(self.directory)
        return self._broken(self._names())

    def broken_for(self, request: ApprovalRequest) -> list[BrokenRequest]:
        return self._broken(self._named_after(request))

    def find(self, wanted: str) -> Parked:
        parked = self._read(self._found(wanted))
        if parked is None:
            raise _not_one("no request has", wanted)
        return parked

    def set_aside(self, wanted: str) -> Path | None:
        require_private(self.directory)
        name = self._found(wanted)
        with locked(self.directory):
            if not isinstance(self._look(name), BrokenRequest):
                return None
            aside = self.directory / f"{name}.broken"
            with host_errors("moving", self.directory / name):
                (self.directory / name).replace(aside)
                sync_directory(self.directory)
            return aside

    def grant(self, wanted: str, by: str, seen: Parked | None = None) -> Parked:
        """Answer yes; `seen`: only if it still is as it was then, for of two answers one counts."""
        until = int(self.clock() + limits.approval_granted_s)
        return self._answer(wanted, by, "", GRANTED, until, seen)

    def refuse(self, wanted: str, by: str, note: str = "", seen: Parked | None = None) -> Parked:
        return self._answer(wanted, by, note, REFUSED, None, seen)

    def take_changes(self, parked: Parked) -> bool:
        """Whether these changes may be committed now; the grant is used up by asking.

        After a yes their contents stay until `withdraw`.

        Threat: somebody exchanges the changes of a request that was shown before.
        """
        with locked(self.directory):
            name = _name_of(parked)
            if self._read(name) != parked:
                return False
            answers = self.answers(parked.id)
            counts = answers.is_kept(parked) and answers.is_granted(parked, self.clock())
            if counts:
                # Threat: the file put back, and the same command again, which this grant is for.
                self.record(answered_later(parked, USED))
            self._remove(name)
            if not counts:
                self._release(parked)
            return counts

    def withdraw(self, parked: Parked) -> None:
        with locked(self.directory):
            if _name_of(parked) in self._names():
                self._remove(_name_of(parked))
            self._release(parked)

    def _answer(
        self,
        wanted: str,
        by: str,
        note: str,
        answer: str,
        until: int | None,
        seen: Parked | None,
    ) -> Parked:
        require_private(self.directory)
        found = self.find(wanted)
        with locked(self.directory):
            parked = self._read(self._path(found).name)
            if parked is None or parked.is_expired(self.clock()):
                raise ApprovalExpiredError(
                    f"the request {quote(found.id)} has expired, or was used",
                    hint="the agent has to make the call again",
                )
            if seen is not None and parked != seen:
                raise ApprovalExpiredError(
                    f"the request {quote(found.id)} was answered meanwhile: {parked.state}",
                    hint="what stands there now counts",
                )
            state = GRANTED if answer == GRANTED else REFUSED
            answered = replace(
                parked,
                state=state,
                answered_by=by,
                note=note,
                expires_at=parked.expires_at if until is None else until,
            )
            # The record first: an answer that nobody can check never counts.
            self.record(answered_later(answered, answer))
            replace_file(self._path(answered), write_parked(answered))
            if state == REFUSED:
                self._release(answered)
            return answered

    def _path(self, parked: Parked) -> Path:
        return self.directory / _name_of(parked)

    def _names(self) -> list[str]:
        with host_errors("looking into", self.directory):
            found = self.directory.iterdir() if self.directory.is_dir() else ()
            names = [path.name for path in found]
        return sorted(name for name in names if _NAME.fullmatch(name))

    def _named_after(self, request: ApprovalRequest) -> list[str]:
        ending = _ending_for(request)
        return [name for name in self._names() if name.endswith(ending)]

    def _waiting_for(self, request: ApprovalRequest) -> Iterator[tuple[str, Parked]]:
        for name in self._named_after(request):
            parked = self._read(name)
            if parked is not None and _is_for(parked, request) and parked.state == "waiting":
                yield name, parked

    def _found(self, wanted: str) -> str:
        names = [n for n in self._names() if _ID.fullmatch(wanted) and n.startswith(wanted)]
        if len(names) != 1:
            several = f"{len(names)} requests begin with" if names else "no request has"
            raise _not_one(several, wanted)
        return names[0]

    def _read(self, name: str) -> Parked | None:
        found = self._look(name)
        if isinstance(found, BrokenRequest):
            raise found.as_error()
        return found

    def _look(self, name: str) -> Parked | BrokenRequest | None:
        """None where it is gone; a file that says it is another one counts for nothing."""
        path, identity = self.directory / name, name.partition(".")[0]
        try:
            content = read_file(path, _FILE_BYTES_MAX)
            if content is None:
                return None
            parked = parse_parked(content, str(path))
        except ConfigError as error:
            return BrokenRequest(identity, path, error.message, error.where)
        if _name_of(parked) != name:
            said = f"it says that it is {quote(parked.id)}"
            return BrokenRequest(identity, path, said, str(path))
        return parked

    def _broken(self, names: list[str]) -> list[BrokenRequest]:
        looked = [self._look(name) for name in names]
        return [found for found in looked if isinstance(found, BrokenRequest)]

    def _readable(self) -> Iterator[tuple[str, Parked]]:
        for name in self._names():
            # One that is broken counts for nothing, and must not hide the others.
            found = self._look(name)
            if isinstance(found, Parked):
                yield name, found

    def _sweep(self) -> list[Parked]:
        now = self.clock()
        kept: list[Parked] = []
        for name, parked in self._readable():
            if parked.is_expired(now):
                self._forget(name, parked)
            else:
                kept.append(parked)
        return kept

    def _write(self, parked: Parked) -> None:
        content = write_parked(parked)
        if len(content) > limits.approval_kept_bytes_max:
            most = limits.approval_kept_bytes_max
            raise ApprovalUnavailableError(
                f"the call has {len(content)} bytes, and at most {most} are kept",
                hint="make smaller calls, or ask a person to be there for this one",
            )
        create_file(self._path(parked), content, _FILE_MODE)

    def _forget(self, name: str, parked: Parked) -> None:
        self._remove(name)
        self._release(parked)

    def _release(self, parked: Parked) -> None:
        """Nobody can ask for its contents any more. A pin that is left over ends by itself."""
        if parked.changes is not None:
            self.release(parked.pin)

    def _remove(self, name: str) -> None:
        with host_errors("removing", self.directory / name):
            (self.directory / name).unlink()
            sync_directory(self.directory)

    def _require_room(self, kept: list[Parked], request: ApprovalRequest) -> None:
        # Threat: an agent that asks without end would fill the disk, or crowd out the
        # requests of others.
        own = sum(each.request.agent == request.agent for each in kept)
        if own >= limits.approvals_of_agent_max or len(kept) >= limits.approvals_max:
            said = f"{own} requests of this agent wait already, {len(kept)} in all"
            raise ApprovalUnavailableError(said, hint=_ANSWER_THEM)
        with host_errors("looking into", self.directory):
            held = sum(self._path(each).lstat().st_size for each in kept)
        if held >= limits.approvals_bytes_max:
            raise ApprovalUnavailableError(
                f"the requests that wait have {held} bytes already", hint=_ANSWER_THEM
            )


def _not_one(several: str, wanted: str) -> UsageError:
    hint = "paddock approvals list shows them all"
    return UsageError(f"{several} the id {quote(wanted)}", hint=hint)


def _is_for(parked: Parked, request: ApprovalRequest) -> bool:
    return parked.request.digest == request.digest and parked.request.agent == request.agent


POLICY_CHANGED: Final = "the policy has changed since it was asked about"
AGENT_CHANGED: Final = (
    "the agent, its permissions, the tool or the kept request has changed since it was asked about"
)
ACTIONS_CHANGED: Final = "what the call comes to has changed since it was asked about"
TARGET_CHANGED: Final = "what stands at its target has changed since it was asked about"
SANDBOX_CHANGED: Final = "what its sandbox would let it do has changed since it was asked about"


class ChangedSince:
    __slots__ = ("_kept",)

    def __init__(self, kept: ApprovalRequest) -> None:
        self._kept = kept

    def answer(self, request: ApprovalRequest) -> Approval:
        return Approval(False, "inbox", ApprovalExpiredError.code, _change(self._kept, request))


def _change(kept: ApprovalRequest, now: ApprovalRequest) -> str:
    if now.policy_digest != kept.policy_digest:
        return POLICY_CHANGED
    if now.actions != kept.actions:
        return ACTIONS_CHANGED
    if now.target_digest != kept.target_digest:
        is_command = any(action.startswith("tool:shell:") for action in kept.actions)
        return SANDBOX_CHANGED if is_command else TARGET_CHANGED
    if now.digest != kept.digest:
        return AGENT_CHANGED
    return "its grant was used, or withdrawn, meanwhile"
