"""An approval counts for what was shown, once, in its time: whatever happens to its file."""

import json
import os
import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from paddock import limits
from paddock.errors import ApprovalExpiredError, ConfigError, UsageError
from paddock.runtime.approvals import Approval, ApprovalRequest, approval_digest
from paddock.runtime.inbox import Inbox
from paddock.runtime.records import GRANTED, USED
from tests.support.books import Book

NAMES = st.sampled_from("abc")


def request(name: str) -> ApprovalRequest:
    arguments = {"path": name, "content": f"of {name}"}
    digest = approval_digest(
        tool="create_file",
        arguments=arguments,
        agents=["main"],
        policy_digest="sha256:1",
        target_digest="absent",
        actions=(name,),
    )
    return ApprovalRequest(digest, "create_file", arguments, (name,), "main", "why", "rule")


def released(pin: str) -> None:
    raise AssertionError(f"no request here brings changes: {pin}")


class Approvals(RuleBasedStateMachine):
    """Agents ask, operators answer, time passes, and somebody plays with the files."""

    @initialize()
    def begin(self) -> None:
        self.base = Path(tempfile.mkdtemp())
        self.book, self.now, self.count = Book(), 1_000_000.0, 0
        self.inbox = Inbox(
            self.base / "calls",
            self.book.record,
            self.book.answers,
            lambda: self.now,
            self.randomness,
            released,
        )
        self.copies: dict[str, bytes] = {}
        self.runs: list[tuple[str, str]] = []

    def teardown(self) -> None:
        if hasattr(self, "base"):
            shutil.rmtree(self.base)

    def randomness(self, size: int) -> bytes:
        self.count += 1
        return self.count.to_bytes(size, "big")

    def files(self) -> list[Path]:
        return sorted(self.inbox.directory.glob("*.json")) if self.inbox.directory.exists() else []

    @rule(name=NAMES)
    def asks(self, name: str) -> None:
        asked = request(name)
        try:
            taken = self.inbox.take(asked)
        except ConfigError:
            return  # A file that does not load: the door makes that a no.
        if taken is None or not taken.is_granted:
            self.inbox.keep(asked)
            return
        rows = [row for row in self.book.rows if row["request"] == taken.request_id]
        grants = [row for row in rows if row["answer"] == GRANTED]
        assert taken == Approval(True, taken.by, "", "", taken.request_id)
        assert any(row["digest"] == asked.digest and self.now < row["expires_at"] for row in grants)
        assert any(row["answer"] == USED for row in rows)
        self.runs.append((taken.request_id, asked.digest))

    @rule(position=st.integers(0, 3), yes=st.booleans())
    def answers(self, position: int, *, yes: bool) -> None:
        waiting = self.inbox.list_all()
        if not waiting:
            return
        wanted = waiting[position % len(waiting)].id
        try:
            (self.inbox.grant if yes else self.inbox.refuse)(wanted, "operator")
        except (ApprovalExpiredError, ConfigError, UsageError):
            return

    @rule(seconds=st.sampled_from([60.0, limits.approval_granted_s, limits.approval_kept_s]))
    def waits(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def copies_files(self) -> None:
        self.copies.update({path.name: path.read_bytes() for path in self.files()})

    @rule()
    def puts_copies_back(self) -> None:
        for name, content in self.copies.items():
            self.inbox.directory.mkdir(mode=0o700, exist_ok=True)
            (self.inbox.directory / name).write_bytes(content)

    @rule(
        position=st.integers(0, 3),
        changes=st.dictionaries(
            st.sampled_from(["state", "expires_at", "digest", "agent", "id"]), NAMES, min_size=1
        ),
    )
    def changes_a_file(self, position: int, changes: dict[str, str]) -> None:
        files = self.files()
        if not files:
            return
        path = files[position % len(files)]
        members = json.loads(path.read_bytes())
        forged = {
            "state": "granted",
            "expires_at": int(self.now) + 10**6,
            "agent": "main",
            "id": "APR-" + "0" * 15 + "1",
        }
        for name, which in changes.items():
            members[name] = request(which).digest if name == "digest" else forged[name]
        short = members["digest"].removeprefix("sha256:")[:32]
        os.unlink(path)
        (path.parent / f"{members['id']}.{short}.json").write_text(json.dumps(members))

    @invariant()
    def nothing_ran_twice_on_one_grant(self) -> None:
        used = [identity for identity, _ in getattr(self, "runs", [])]
        assert len(used) == len(set(used))


TestApprovals = Approvals.TestCase
TestApprovals.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
