"""The inbox: approval requests that no approver could answer, kept for an operator.

One private file per request, in the plane. Only operators answer; the next call with the
same digest uses the answer, once, or the kept changes are committed, once. A grant counts
only as the governance ledger has it. The file (mode 0600) has the full arguments, to
show and to repeat the call; ledgers hold the digest. An unused answer can be changed.

    waiting ── grant ──▶ granted ── used by one call or commit ──▶ (gone)
       ├───── refuse ──▶ refused, until it expires
       └── answered when the same call was repeated ──▶ (gone)
"""

import json
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, to_builtins
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
from paddock.plane.json_files import JsonFile, parse_file
from paddock.runtime.approvals import Approval, ApprovalRequest, shown_digest
from paddock.runtime.records import (
    GRANTED,
    KEPT,
    REFUSED,
    USED,
    answered_later,
    approval_answered,
)
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
from paddock.text.json import Strict
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.entries import Entry, digest_of_json

FORMAT: Final = 1
State = Literal["waiting", "granted", "refused"]
_TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999, the last of Python's calendar."""


_Time = Annotated[int, Meta(ge=0, le=_TIME_MAX)]


class Parked(Strict, frozen=True, kw_only=True):
    """A kept request, as its file has it; there `format` and `has_changes` are added."""

    id: str
    state: State = "waiting"
    agent: str
    tool: str
    actions: tuple[str, ...]
    reason: str
    rule: str
    # Files of older versions lack `warnings` and `filled`; no call has their digest any more.
    warnings: tuple[str, ...] = ()
    digest: str
    policy_digest: str
    target_digest: str
    call_id: str
    session_id: str
    parked_at: _Time
    expires_at: _Time
    """When a waiting request is removed, or a grant no longer counts."""
    answered_by: str
    note: str
    arguments: Mapping[str, Json]
    filled: Mapping[str, Json] = {}
    diff: str
    changes: Json = None
    """The changes of a command, to be committed once granted; None for any other call."""

    @property
    def request(self) -> ApprovalRequest:
        return ApprovalRequest(**{name: getattr(self, name) for name in _ASKED})

    @property
    def changes_digest(self) -> str:
        return "" if self.changes is None else digest_of_json(self.changes)

    @property
    def pin(self) -> str:
        return f"parked-{self.id}"

    def is_expired(self, now: float) -> bool:
        return now >= self.expires_at

    def as_json(self) -> dict[str, Json]:
        found: dict[str, Json] = to_builtins(self)
        has_changes = found.pop("changes") is not None
        return {**found, "has_changes": has_changes}

    def summary(self) -> dict[str, Json]:
        found = self.as_json()
        return {name: found[name] for name in found if name not in ("arguments", "filled", "diff")}


_ASKED: Final = tuple(
    name for name in ApprovalRequest.__struct_fields__ if name in Parked.__struct_fields__
)


def write_parked(parked: Parked) -> bytes:
    members = {"format": FORMAT, **parked.as_json(), "changes": parked.changes}
    # ASCII: an argument may hold text that UTF-8 cannot encode, such as a lone surrogate.
    return json.dumps(members, ensure_ascii=True, indent=1).encode("ascii") + b"\n"


def parse_parked(content: bytes, file: str) -> Parked:
    given = parse_file(content, file)
    number = given.members.get("format")
    if type(number) is not int or number != FORMAT:
        raise given.error("format", "this version does not know the format", "remove the file")
    # Only the values of the call may hold a lone surrogate.
    from_call = {name: given.members.get(name, {}) for name in ("arguments", "filled")}
    for name, each in from_call.items():
        if not isinstance(each, dict) or "arguments" not in given.members:
            raise given.error(name, f"{name}: expected an object", "remove the file")
    apart = {*from_call, "changes", "format", "has_changes"}
    rest = {name: each for name, each in given.members.items() if name not in apart}
    read = JsonFile(file, {**rest, "arguments": {}}, content).convert(Parked)
    return replace(read, **from_call, changes=given.members.get("changes"))


class Answers(Struct, frozen=True):
    rows: Sequence[Mapping[str, Json]]
    """Newest first: of two answers to one request the later one counts."""

    def is_kept(self, parked: Parked) -> bool:
        shown = shown_digest(parked.request)
        return any(
            answer.get("answer") == KEPT
            and answer.get("digest") == parked.digest
            and answer.get("changes", "") == parked.changes_digest
            # Earlier versions recorded no `shown`; such a request expires within a day.
            and answer.get("shown", shown) == shown
            for answer in self._to(parked)
        )

    def is_granted(self, parked: Parked, now: float) -> bool:
        # Threat: a grant was changed to a refusal, and its old file is put back.
        said = [row for row in self._to(parked) if row.get("answer") in (GRANTED, REFUSED)]
        if not said or said[0].get("answer") != GRANTED or self.is_used(parked):
            return False
        until = said[0].get("expires_at")
        is_for_it = said[0].get("digest") == parked.digest
        return is_for_it and type(until) is int and now < until

    def is_used(self, parked: Parked) -> bool:
        return any(answer.get("answer") == USED for answer in self._to(parked))

    def _to(self, parked: Parked) -> Sequence[Mapping[str, Json]]:
        return [row for row in self.rows if row.get("request") == parked.id]


class BrokenRequest(Struct, frozen=True):
    id: str
    file: Path
    why: str
    where: str

    def as_error(self) -> ConfigError:
        return ConfigError(
            f"the request {quote(self.id)} does not load: {self.why}",
            where=self.where,
            hint=f"move it away with paddock approvals refuse {self.id}; then its call asks again",
        )

    def summary(self) -> dict[str, Json]:
        return {"id": self.id, "state": "broken", "file": str(self.file), "error": self.why}


_NAME: Final = lazy_pattern(r"(APR-[0-9a-f]{16})\.([0-9a-f]{32})\.json")
_ID: Final = lazy_pattern(r"APR-[0-9a-f]{4,16}")


def _name_of(parked: Parked) -> str:
    return f"{parked.id}{_ending_for(parked.digest)}"


def _ending_for(digest: str) -> str:
    """Return the suffix of this request's file names; the full digest is in the file."""
    return f".{digest.removeprefix('sha256:')[:32]}.json"


_FILE_BYTES_MAX: Final = limits.approval_kept_bytes_max + 1_000_000
_ANSWER_THEM: Final = "ask a person to answer the waiting requests: paddock approvals list"


class Inbox(Struct, frozen=True):
    """The kept requests of one plane. Safe to use from several threads and processes.

    Raises, each method: HostError, ConfigError (others can write to the directory, or a
    file in it does not load), LedgerDamagedError (no grant counts).
    """

    directory: Path
    record: Callable[[Entry], None]
    """Appends an entry to the governance ledger, durably; if it raises, nothing counts."""
    answers: Callable[[str], Answers]
    """Reads that ledger's answers to the request with this id. Raises: LedgerDamagedError."""
    clock: Callable[[], float]
    randomness: Callable[[int], bytes]
    release: Callable[[str], None]
    """Releases the contents that the history keeps under a pin."""
    notify: Callable[[Parked], None] = lambda _: None
    """Announces a new waiting request."""

    def take(self, request: ApprovalRequest) -> Approval | None:
        """Return the kept answer to exactly this request, if any, and use up a grant.

        Threat: an agent repeats a call that was granted once, two processes do so at
        the same time, or an attacker adds a file to the directory, or puts a used one
        back. One process holds the lock; only a recorded grant counts.
        """
        if not self._named_after(request):
            return None
        is_late = False
        with self._lock():
            for name in self._named_after(request):
                parked = self._read(name)
                if parked is None or not _is_for(parked, request) or parked.state == "waiting":
                    continue
                if parked.is_expired(self.clock()):
                    self._forget(parked)
                    is_late = is_late or parked.state == GRANTED
                    continue
                if parked.state == REFUSED:
                    return Approval(
                        False, parked.answered_by, ApprovalRefusedError.code, parked.note, parked.id
                    )
                if not self.answers(parked.id).is_granted(parked, self.clock()):
                    self._forget(parked)
                    continue
                # Recorded before the lock is released, and removed before the call runs: a
                # lost grant is asked for again, a leftover one would count twice.
                granted = Approval(True, parked.answered_by, "", parked.note, parked.id)
                self.record(approval_answered(request, granted))
                self._forget(parked)
                return granted
        late = Approval(False, "inbox", ApprovalExpiredError.code, "the grant had expired")
        return late if is_late else None

    def settle(self, request: ApprovalRequest, approval: Approval) -> bool:
        """Remove the request that this answers; return True if the answer counts.

        For a client that answers a kept request by repeating its call: an answer counts
        once, however often it is sent, and a grant once even if the file is put back.
        """
        with self._lock():
            for parked in self._waiting_for(request):
                if parked.id != approval.request_id:
                    continue
                if parked.is_expired(self.clock()) or self.answers(parked.id).is_used(parked):
                    return False
                if approval.is_granted:
                    self.record(approval_answered(request, approval))
                self._forget(parked)
                return True
        return False

    def forget_waiting(self, request: ApprovalRequest) -> None:
        if not self._named_after(request):
            return
        with self._lock():
            for parked in self._waiting_for(request):
                self._forget(parked)

    def keep(self, request: ApprovalRequest) -> Parked:
        make_directories(self.directory)
        with self._lock():
            kept = self._sweep()
            for each in kept:
                # Threat: a file that was changed in the meantime would be recorded as kept.
                is_same = _is_for(each, request) and each.state == "waiting"
                if is_same and self.answers(each.id).is_kept(each):
                    return each
            self._require_room(kept, request)
            now = int(self.clock())
            until = now + int(limits.approval_kept_s)
            parked = Parked(
                id=f"APR-{self.randomness(8).hex()}",
                parked_at=now,
                expires_at=until,
                answered_by="",
                note="",
                **{name: getattr(request, name) for name in _ASKED},
            )
            if request.parking is not None:
                parked = replace(parked, changes=request.parking.park(parked.pin))
            try:
                self._write(parked)
            except BaseException:
                self._release(parked)
                raise
        self.notify(parked)
        return parked

    def list_all(self) -> list[Parked]:
        require_private(self.directory)
        now = self.clock()
        current = [parked for parked in self._readable() if not parked.is_expired(now)]
        return sorted(current, key=lambda parked: (parked.parked_at, parked.id))

    def list_broken(self, request: ApprovalRequest | None = None) -> list[BrokenRequest]:
        """Return the files that do not load; with `request`, only those that may be for it."""
        require_private(self.directory)
        names = self._names() if request is None else self._named_after(request)
        return [found for found in map(self._look, names) if isinstance(found, BrokenRequest)]

    def find(self, wanted: str) -> Parked:
        parked = self._read(self._found(wanted))
        if parked is None:
            raise _not_one("no request has", wanted)
        return parked

    def set_aside(self, wanted: str) -> Path | None:
        name = self._found(wanted)
        with self._lock():
            if not isinstance(self._look(name), BrokenRequest):
                return None
            aside = self.directory / f"{name}.broken"
            with host_errors("moving", self.directory / name):
                (self.directory / name).replace(aside)
                sync_directory(self.directory)
            return aside

    def grant(self, wanted: str, by: str, seen: Parked | None = None) -> Parked:
        """Grant the request; with `seen`, only if it is unchanged: of two answers one counts."""
        until = int(self.clock() + limits.approval_granted_s)
        return self._answer(wanted, seen, state=GRANTED, answered_by=by, expires_at=until)

    def refuse(self, wanted: str, by: str, note: str = "", seen: Parked | None = None) -> Parked:
        return self._answer(wanted, seen, state=REFUSED, answered_by=by, note=note)

    def take_changes(self, parked: Parked) -> bool:
        """Use up the grant for these changes; return True if they may be committed.

        If so, their contents are kept until `withdraw`.

        Threat: an attacker replaces the changes of a request after it was shown.
        """
        with self._lock():
            if self._read(_name_of(parked)) != parked:
                return False
            answers = self.answers(parked.id)
            counts = answers.is_kept(parked) and answers.is_granted(parked, self.clock())
            if counts:
                # Threat: the file is put back, and the grant counts for the same command again.
                self.record(answered_later(parked, USED))
            self._remove(parked)
            if not counts:
                self._release(parked)
            return counts

    def withdraw(self, parked: Parked) -> None:
        with self._lock():
            if _name_of(parked) in self._names():
                self._remove(parked)
            self._release(parked)

    @contextmanager
    def _lock(self) -> Generator[None]:
        require_private(self.directory)
        with locked(self.directory):
            yield

    def _answer(self, wanted: str, seen: Parked | None, **answer: str | int) -> Parked:
        found = self.find(wanted)
        with self._lock():
            parked = self._read(_name_of(found))
            if parked is None or parked.is_expired(self.clock()):
                raise ApprovalExpiredError(
                    f"the request {quote(found.id)} has expired, or was used",
                    hint="the agent has to make the call again",
                )
            if seen is not None and parked != seen:
                raise ApprovalExpiredError(
                    f"the request {quote(found.id)} was answered meanwhile: {parked.state}",
                    hint="the recorded answer counts",
                )
            answered = replace(parked, **answer)
            # The record first: an answer without one never counts.
            self.record(answered_later(answered, answered.state))
            replace_file(self._path(answered), write_parked(answered))
            if answered.state == REFUSED:
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
        ending = _ending_for(request.digest)
        return [name for name in self._names() if name.endswith(ending)]

    def _waiting_for(self, request: ApprovalRequest) -> Iterator[Parked]:
        for name in self._named_after(request):
            parked = self._read(name)
            if parked is not None and _is_for(parked, request) and parked.state == "waiting":
                yield parked

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
        """Read a request, or None if it was removed; a file that names another one is broken."""
        path, identity = self.directory / name, name.partition(".")[0]
        try:
            content = read_file(path, _FILE_BYTES_MAX)
            if content is None:
                return None
            parked = parse_parked(content, str(path))
        except ConfigError as error:
            return BrokenRequest(identity, path, error.message, error.where)
        if _name_of(parked) != name:
            said = f"its content is that of {quote(parked.id)}"
            return BrokenRequest(identity, path, said, str(path))
        return parked

    def _readable(self) -> list[Parked]:
        # A broken one must not hide the others.
        return [each for each in map(self._look, self._names()) if isinstance(each, Parked)]

    def _sweep(self) -> list[Parked]:
        now = self.clock()
        found = self._readable()
        for parked in found:
            if parked.is_expired(now):
                self._forget(parked)
        return [parked for parked in found if not parked.is_expired(now)]

    def _write(self, parked: Parked) -> None:
        content = write_parked(parked)
        if len(content) > limits.approval_kept_bytes_max:
            most = limits.approval_kept_bytes_max
            raise ApprovalUnavailableError(
                f"the call has {len(content)} bytes, and at most {most} are kept",
                hint="make smaller calls, or ask a person to be there for this one",
            )
        create_file(self._path(parked), content, 0o600)

    def _forget(self, parked: Parked) -> None:
        self._remove(parked)
        self._release(parked)

    def _release(self, parked: Parked) -> None:
        """Let the history prune its contents. A leftover pin expires."""
        if parked.changes is not None:
            self.release(parked.pin)

    def _remove(self, parked: Parked) -> None:
        path = self._path(parked)
        with host_errors("removing", path):
            path.unlink()
            sync_directory(self.directory)

    def _require_room(self, kept: list[Parked], request: ApprovalRequest) -> None:
        # Threat: an agent that asks without end would fill the disk, or crowd out the
        # requests of others.
        own = sum(each.agent == request.agent for each in kept)
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
    return parked.digest == request.digest and parked.agent == request.agent
