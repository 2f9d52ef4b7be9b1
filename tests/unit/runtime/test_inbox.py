"""The inbox: bounded, private, and no file in it counts for more than the record of it."""

import json
import os
import stat
import threading

import pytest
from msgspec import Struct, field
from msgspec.structs import replace

from paddock import limits
from paddock.assembly.inbox_answers import (
    ACTIONS_CHANGED,
    AGENT_CHANGED,
    POLICY_CHANGED,
    SANDBOX_CHANGED,
    TARGET_CHANGED,
    ChangedSince,
)
from paddock.errors import (
    ApprovalExpiredError,
    ApprovalUnavailableError,
    ConfigError,
    LedgerFullError,
    UsageError,
)
from paddock.providers.failures import CancelToken
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    Limited,
    NoApprover,
    YesApprover,
)
from paddock.runtime.inbox import Inbox, Parked
from paddock.runtime.question import CANCELLED, InboxApprover
from paddock.values.entries import Entry
from tests.support.books import Book


class Contents(Struct, dict=True):
    """The history: what is kept for changes that wait."""

    pins: set[str] = field(default_factory=set)

    def release(self, pin: str) -> None:
        self.pins.discard(pin)


class Changes(Struct, dict=True):
    """What a command left."""

    contents: Contents
    size: int = 1

    def park(self, name: str) -> list[str]:
        self.contents.pins.add(name)
        return ["x" * self.size]


class Place(Struct, dict=True):
    inbox: Inbox
    book: Book
    contents: Contents = field(default_factory=Contents)
    now: float = 1_000_000.0

    def names(self) -> list[str]:
        return sorted(os.listdir(self.inbox.directory))


@pytest.fixture
def place(tmp_path) -> Place:
    book, count = Book(), iter(range(1, 10_000))
    made = Place(None, book)
    made.inbox = Inbox(
        tmp_path / "calls",
        book.record,
        book.answers,
        lambda: made.now,
        lambda size: next(count).to_bytes(size, "big"),
        made.contents.release,
    )
    return made


def request(number: int = 1, agent: str = "main", content: str = "x") -> ApprovalRequest:
    digest = f"sha256:{number:064x}"
    arguments = {"path": "a", "content": content}
    return ApprovalRequest(digest, "create_file", arguments, ("x",), agent, "why", "rule")


def test_a_kept_request_is_read_back_whole(place):
    odd = replace(request(), arguments={"content": "\udcff\u202e\0é", "n": 1, "flag": None})
    kept = place.inbox.keep(odd)
    assert place.inbox.find(kept.id) == kept
    assert place.inbox.list_all() == [kept]
    (name,) = place.names()
    assert stat.S_IMODE(os.stat(place.inbox.directory / name).st_mode) == 0o600
    assert stat.S_IMODE(os.stat(place.inbox.directory).st_mode) == 0o700


def test_one_agent_cannot_crowd_out_the_others(place, monkeypatch):
    monkeypatch.setattr(limits, "approvals_of_agent_max", 3)
    for number in range(3):
        place.inbox.keep(request(number))
    with pytest.raises(ApprovalUnavailableError, match="wait already"):
        place.inbox.keep(request(9))
    assert place.inbox.keep(request(9, "other")).request.agent == "other"
    place.now += limits.approval_kept_s
    assert place.inbox.keep(request(9)).request.agent == "main"


@pytest.mark.parametrize("bound", ["approvals_max", "approvals_bytes_max"])
def test_all_requests_together_are_bounded(place, monkeypatch, bound):
    monkeypatch.setattr(limits, bound, 1)
    place.inbox.keep(request(1))
    with pytest.raises(ApprovalUnavailableError):
        place.inbox.keep(request(2, "other"))


def test_a_call_that_is_too_large_is_not_kept_and_the_refusal_says_so(place):
    large = request(content="x" * limits.approval_kept_bytes_max)
    said = InboxApprover(NoApprover(), lambda: place.inbox).answer(large)
    assert (said.is_granted, said.code, said.request_id) == (False, "approval.unavailable", "")
    assert "it is not kept" in said.note
    assert said.hint == "make smaller calls, or ask a person to be there for this one"
    assert place.names() == []


def test_what_somebody_else_could_have_put_there_is_not_looked_at(place):
    kept = place.inbox.keep(request())
    place.inbox.grant(kept.id, "operator")
    os.chmod(place.inbox.directory, 0o777)
    with pytest.raises(ConfigError, match="written by others"):
        place.inbox.take(request())


def test_a_broken_file_hides_no_other_and_counts_for_nothing(place):
    broken, kept = place.inbox.keep(request(1)), place.inbox.keep(request(2))
    (file,) = place.inbox.directory.glob(f"{broken.id}.*")
    file.write_bytes(b"{")
    assert place.inbox.list_all() == [kept]
    (found,) = place.inbox.list_broken()
    assert (found.id, found.file) == (broken.id, file)
    with pytest.raises(ConfigError, match=f"'{broken.id}' does not load"):
        place.inbox.take(request(1))
    said = InboxApprover(YesApprover("me"), lambda: place.inbox)
    assert said.answer(request(1)) == Approval(
        False,
        "inbox",
        "approval.unavailable",
        f"the request {broken.id}, which may be for this call, does not load",
        hint=f"ask a person to move it away: paddock approvals refuse {broken.id}; then call again",
    )
    # The name of its file says that it is for another call.
    assert said.answer(request(16**63)) == Approval(True, "me")


def test_only_a_broken_file_is_moved_away_and_then_its_call_is_asked_about(place):
    broken, kept = place.inbox.keep(request(1)), place.inbox.keep(request(2))
    file = file_of(place, broken)
    file.write_bytes(b"")
    assert place.inbox.set_aside(broken.id) == file.with_name(f"{file.name}.broken")
    assert place.inbox.set_aside(kept.id) is None
    assert (place.inbox.list_broken(), place.inbox.list_all()) == ([], [kept])
    assert InboxApprover(YesApprover("me"), lambda: place.inbox).answer(request(1)).is_granted
    with pytest.raises(UsageError, match="no request has the id"):
        place.inbox.set_aside(broken.id)


TIMES = {
    "negative": (-1, True),
    "first": (0, False),
    "last": (253_402_300_799, False),
    "late": (253_402_300_800, True),
    "beyond": (10**400, True),
}


@pytest.mark.parametrize("member", ["parked_at", "expires_at"])
@pytest.mark.parametrize("name", TIMES)
def test_a_time_that_cannot_be_shown_does_not_load(place, member, name):
    seconds, is_broken = TIMES[name]
    kept = place.inbox.keep(request())
    file = file_of(place, kept)
    file.write_text(json.dumps({**json.loads(file.read_bytes()), member: seconds}))
    assert [each.id for each in place.inbox.list_broken()] == ([kept.id] if is_broken else [])


@pytest.mark.parametrize(("said", "is_broken"), [(1, False), (True, True), (1.0, True), (2, True)])
def test_only_a_file_of_the_known_format_loads(place, said, is_broken):
    kept = place.inbox.keep(request())
    file = file_of(place, kept)
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "format": said}))
    assert [each.id for each in place.inbox.list_broken()] == ([kept.id] if is_broken else [])


def test_a_call_that_brings_one_action_twice_is_read_back(place):
    kept = place.inbox.keep(replace(request(), actions=("x", "x"), filled={"depth": None}))
    assert place.inbox.list_all() == [kept]


def test_what_policy_warned_of_is_kept_and_a_request_from_before_has_none(place):
    kept = place.inbox.keep(replace(request(), warnings=("it matters",)))
    assert place.inbox.list_all() == [kept]
    file = file_of(place, kept)
    members = json.loads(file.read_bytes())
    assert members.pop("warnings") == ["it matters"]
    file.write_text(json.dumps(members))
    assert place.inbox.list_all() == [replace(kept, warnings=())]


@pytest.mark.parametrize("kind", ["link", "directory", "fifo"])
def test_only_files_are_read(place, tmp_path, kind):
    kept = place.inbox.keep(request())
    (file,) = place.inbox.directory.glob(f"{kept.id}.*")
    os.rename(file, tmp_path / "elsewhere")
    {
        "link": lambda: os.symlink(tmp_path / "elsewhere", file),
        "directory": lambda: os.mkdir(file),
        "fifo": lambda: os.mkfifo(file),
    }[kind]()
    assert place.inbox.list_all() == []
    assert [each.id for each in place.inbox.list_broken()] == [kept.id]
    assert place.inbox.set_aside(kept.id) is not None
    assert place.inbox.list_broken() == []


def test_a_request_that_has_expired_is_not_answered(place):
    kept = place.inbox.keep(request())
    place.now += limits.approval_kept_s
    for answer in (place.inbox.grant, place.inbox.refuse):
        with pytest.raises(ApprovalExpiredError):
            answer(kept.id, "operator")
    assert place.inbox.list_all() == []


def test_a_grant_that_came_too_late_is_said_to_be_late_and_is_kept_anew(place):
    kept = place.inbox.keep(request())
    place.inbox.grant(kept.id, "operator")
    place.now += limits.approval_granted_s
    said = InboxApprover(NoApprover(), lambda: place.inbox).answer(request())
    assert (said.is_granted, said.code) == (False, "approval.expired")
    assert said.request_id not in {"", kept.id}


def test_whoever_can_be_asked_is_asked_and_nothing_is_kept(place):
    assert InboxApprover(YesApprover("me"), lambda: place.inbox).answer(request()) == Approval(
        True, "me"
    )
    assert not place.inbox.directory.exists()


def test_a_kept_request_is_settled_once_and_only_while_it_waits(place):
    kept = place.inbox.keep(request())
    assert not place.inbox.settle(request(), yes_to("APR-0"))
    assert not place.inbox.settle(request(2), yes_to(kept.id))
    assert place.inbox.settle(request(), yes_to(kept.id))
    assert not place.inbox.settle(request(), yes_to(kept.id))
    refused = place.inbox.keep(request())
    place.inbox.refuse(refused.id, "operator")
    assert not place.inbox.settle(request(), yes_to(refused.id))


def yes_to(identity: str) -> Approval:
    return Approval(True, "client", request_id=identity)


def file_of(place: Place, kept: Parked):
    (name,) = [name for name in place.names() if name.startswith(kept.id)]
    return place.inbox.directory / name


def test_an_answer_that_was_settled_does_not_count_again_when_its_file_is_put_back(place):
    kept = place.inbox.keep(request())
    file = file_of(place, kept)
    content = file.read_bytes()
    assert place.inbox.settle(request(), yes_to(kept.id))
    file.write_bytes(content)
    assert not place.inbox.settle(request(), yes_to(kept.id))


def test_a_grant_whose_file_is_put_back_while_it_is_taken_counts_once(place):
    kept = place.inbox.keep(request())
    place.inbox.grant(kept.id, "operator")
    file = file_of(place, kept)
    content = file.read_bytes()

    def put_back(wanted: str):
        file.write_bytes(content)
        return place.book.answers(wanted)

    inbox = replace(place.inbox, answers=put_back)
    assert inbox.take(request()).is_granted
    # Before the call that took it has come to anything.
    file.write_bytes(content)
    assert inbox.take(request()) is None


def test_a_use_that_cannot_be_put_on_record_is_none(place):
    kept = place.inbox.keep(request())
    place.inbox.grant(kept.id, "operator")

    def fail(entry: Entry) -> None:
        raise LedgerFullError("no space for the ledger")

    with pytest.raises(LedgerFullError):
        replace(place.inbox, record=fail).take(request())
    assert place.inbox.take(request()).is_granted


class Says:
    def __init__(self, is_granted: bool, code: str = "") -> None:
        self.approval = Approval(is_granted, "me", code)

    def answer(self, asked: ApprovalRequest) -> Approval:
        return self.approval


@pytest.mark.parametrize("said", [Says(True), Says(False, "approval.refused")])
def test_what_somebody_answers_at_a_door_waits_for_nobody_any_more(place, said):
    asked, other, agents = request(1), request(2), request(1, "other")
    kept = [place.inbox.keep(each) for each in (asked, other, agents)]
    assert InboxApprover(said, lambda: place.inbox).answer(asked) == said.approval
    assert [each.id for each in place.inbox.list_all()] == [kept[1].id, kept[2].id]
    with pytest.raises(UsageError, match="no request"):
        place.inbox.grant(kept[0].id, "operator")
    assert place.inbox.take(asked) is None


class Leaves:
    """Is asked, and meanwhile the call is cancelled."""

    def __init__(self, token: CancelToken) -> None:
        self.token = token

    def answer(self, asked: ApprovalRequest) -> Approval:
        self.token.cancel()
        return Approval(False, "client", "approval.unavailable", "it could not be asked")


def test_what_was_cancelled_while_it_was_asked_about_is_not_kept(place):
    token = CancelToken()
    asked = replace(request(), cancel=token)
    assert InboxApprover(NoApprover(), lambda: place.inbox).answer(asked).request_id
    place.inbox.forget_waiting(asked)
    said = InboxApprover(Leaves(token), lambda: place.inbox).answer(asked)
    assert said == Approval(False, "client", "call.cancelled", CANCELLED)
    assert place.inbox.list_all() == []


@pytest.mark.parametrize("code", ["approval.unavailable", "approval.expired"])
def test_what_nobody_answered_waits_on(place, code):
    kept = place.inbox.keep(request())
    InboxApprover(Says(False, code), lambda: place.inbox).answer(request())
    assert place.inbox.list_all() == [kept]


@pytest.mark.parametrize("answer", ["grant", "refuse"])
def test_what_an_operator_has_answered_stays_answered(place, answer):
    kept = place.inbox.keep(request())
    answered = getattr(place.inbox, answer)(kept.id, "operator")
    place.inbox.forget_waiting(request())
    assert place.inbox.list_all() == [answered]


def changes_kept(place: Place, size: int = 1) -> tuple[ApprovalRequest, Parked]:
    asked = replace(request(), parking=Changes(place.contents, size))
    return asked, place.inbox.keep(asked)


def granted_and_used(place: Place, asked: ApprovalRequest, kept: Parked) -> None:
    place.inbox.grant(kept.id, "operator")
    assert place.inbox.take(asked).is_granted


def granted_too_late(place: Place, asked: ApprovalRequest, kept: Parked) -> None:
    place.inbox.grant(kept.id, "operator")
    place.now += limits.approval_granted_s
    assert not place.inbox.take(asked).is_granted


def swept_with_the_next(place: Place, asked: ApprovalRequest, kept: Parked) -> None:
    del asked, kept
    place.now += limits.approval_kept_s
    place.inbox.keep(request(2))


def committed_without_a_record(place: Place, asked: ApprovalRequest, kept: Parked) -> None:
    del asked
    granted = place.inbox.grant(kept.id, "operator")
    place.book.rows.clear()
    assert not place.inbox.take_changes(granted)


@pytest.mark.parametrize(
    "end",
    [
        granted_and_used,
        granted_too_late,
        swept_with_the_next,
        committed_without_a_record,
        lambda place, asked, kept: place.inbox.refuse(kept.id, "operator"),
        lambda place, asked, kept: place.inbox.withdraw(kept),
        lambda place, asked, kept: place.inbox.settle(asked, yes_to(kept.id)),
        lambda place, asked, kept: place.inbox.forget_waiting(asked),
    ],
    ids=["used", "late", "swept", "no record", "refused", "withdrawn", "settled", "forgotten"],
)
def test_the_contents_of_changes_are_kept_while_they_wait_and_let_go_after(place, end):
    asked, kept = changes_kept(place)
    assert place.contents.pins == {f"parked-{kept.id}"}
    end(place, asked, kept)
    assert place.contents.pins == set()


def test_the_contents_of_granted_changes_stay_until_these_were_committed(place):
    _, kept = changes_kept(place)
    granted = place.inbox.grant(kept.id, "operator")
    assert place.inbox.take_changes(granted)
    assert (place.names(), place.contents.pins) == ([], {kept.pin})
    place.inbox.withdraw(granted)
    assert place.contents.pins == set()


def test_of_two_who_commit_the_same_changes_one_does_and_the_other_lets_nothing_go(place):
    _, kept = changes_kept(place)
    granted = place.inbox.grant(kept.id, "operator")
    assert place.inbox.take_changes(granted)
    assert not place.inbox.take_changes(granted)
    assert place.contents.pins == {kept.pin}


def test_changes_that_were_committed_use_the_grant_up_for_calls_too(place):
    asked, kept = changes_kept(place)
    granted = place.inbox.grant(kept.id, "operator")
    file = file_of(place, kept)
    content = file.read_bytes()
    assert place.inbox.take_changes(granted)
    file.write_bytes(content)
    assert place.inbox.take(asked) is None


def test_changes_that_are_too_large_to_be_kept_leave_no_contents_behind(place):
    with pytest.raises(ApprovalUnavailableError, match="at most"):
        changes_kept(place, limits.approval_kept_bytes_max)
    assert (place.names(), place.contents.pins) == ([], set())


def test_somebody_elses_approver_has_no_more_than_its_time():
    release = threading.Event()

    class Slow:
        def answer(self, asked: ApprovalRequest) -> Approval:
            release.wait(30)
            return Approval(True, "late")

    said = Limited(Slow(), 0.01).answer(request())
    release.set()
    assert (said.is_granted, said.code) == (False, "approval.unavailable")
    assert Limited(YesApprover("me"), 10.0).answer(request()) == Approval(True, "me")


COMMAND = {"actions": ("tool:shell:run make",)}
GONE = "its grant was used, or withdrawn, meanwhile"


@pytest.mark.parametrize(
    ("kept", "now", "why"),
    [
        ({}, {"policy_digest": "p2", "target_digest": "t2", "digest": "d2"}, POLICY_CHANGED),
        ({}, {"actions": ("y",), "target_digest": "t2", "digest": "d2"}, ACTIONS_CHANGED),
        ({}, {"target_digest": "t2", "digest": "d2"}, TARGET_CHANGED),
        (COMMAND, {"target_digest": "t2", "digest": "d2"}, SANDBOX_CHANGED),
        ({}, {"digest": "d2"}, AGENT_CHANGED),
        ({}, {}, GONE),
    ],
    ids=["policy", "actions", "target", "sandbox", "agent", "nothing"],
)
def test_a_call_that_is_resumed_and_is_another_one_by_now_is_told_what_has_changed(kept, now, why):
    before = replace(request(), **kept)
    said = ChangedSince(before).answer(replace(before, **now))
    assert said == Approval(False, "inbox", "approval.expired", why)
