"""A grant that was used stays used, whatever happens to the files that could say otherwise."""

import json
import os
import shutil
from pathlib import Path

import pytest
from msgspec import Struct

from paddock.ledger.query import Filter, query
from paddock.runtime.approvals import shown_digest
from paddock.runtime.inbox import Answers, Parked
from tests.support.indexes import hide_all, index_all
from tests.unit.apps.conftest import User

POLICY = b"""
[profiles.standard]
allow = ["tool:file:*"]
ask = ["tool:file:create asked/**"]
"""


class Used(Struct, dict=True):
    """A grant that was used, and its file put back by whoever can write there."""

    user: User
    ledger: Path
    grant: Path
    granted: bytes
    before: Path
    """The ledger and all beside it, as they were before the use."""

    def ask(self):
        return self.user.call("create_file", "--no-input", path="asked/a", content="x")

    @property
    def beside(self) -> Path:
        return self.ledger.with_suffix(".d")

    def line_of_use(self) -> tuple[int, list[bytes]]:
        lines = self.ledger.read_bytes().splitlines(keepends=True)
        (at,) = [n for n, line in enumerate(lines) if b'"answer":"used"' in line]
        return at, lines

    def asked_again(self):
        """The same call, with the grant's file in its place again; nothing comes of it."""
        self.grant.write_bytes(self.granted)
        ran = self.ask()
        assert not (self.user.project / "asked/a").exists()
        return ran


@pytest.fixture
def used(user, tmp_path) -> Used:
    (user.project / "paddock.toml").write_bytes(POLICY)
    assert user.run("trust", "--yes").status == 0
    kept = user.call("create_file", "--no-input", path="asked/a", content="x").json["approval"]
    assert user.run("approvals", "grant", kept).status == 0
    (ledger,) = user.home.rglob("governance.jsonl")
    (grant,) = user.home.rglob(f"{kept}.*.json")
    content = grant.read_bytes()
    before = tmp_path / "before"
    before.mkdir()
    shutil.copy(ledger, before)
    shutil.copytree(ledger.with_suffix(".d"), before / "governance.d")
    made = Used(user, ledger, grant, content, before)
    assert made.ask().json["status"] == "ok"
    os.unlink(user.project / "asked/a")
    return made


def test_rows_of_the_index_that_say_something_else_hide_no_use(used):
    hide_all(used.ledger)
    # What a question is told, and why nothing that counts may ask so.
    assert query(str(used.ledger), Filter("APPROVAL_ANSWERED", agent="main")).entries == ()
    assert used.asked_again().json["code"] == "approval.unavailable"


@pytest.mark.parametrize("harm", ["deleted", "cut", "others"])
def test_an_index_that_is_deleted_or_edited_hides_no_use(used, harm):
    file = index_all(used.ledger)
    if harm == "deleted":
        file.unlink()
    else:
        content = file.read_bytes()
        file.write_bytes(content[:-4] if harm == "cut" else bytes(len(content)))
    assert used.asked_again().json["code"] == "approval.unavailable"


def unreadable(used: Used) -> None:
    at, lines = used.line_of_use()
    lines[at] = b"x" * (len(lines[at]) - 1) + b"\n"
    used.ledger.write_bytes(b"".join(lines))


def edited(used: Used) -> None:
    at, lines = used.line_of_use()
    lines[at] = lines[at].replace(b'"answer":"used"', b'"answer":"usex"')
    used.ledger.write_bytes(b"".join(lines))


def of_another_request(used: Used) -> None:
    at, lines = used.line_of_use()
    lines[at] = lines[at].replace(b'"request":"APR-', b'"request":"APX-')
    used.ledger.write_bytes(b"".join(lines))


def taken_out(used: Used) -> None:
    at, lines = used.line_of_use()
    used.ledger.write_bytes(b"".join([*lines[:at], *lines[at + 1 :]]))


def cut_off(used: Used) -> None:
    at, lines = used.line_of_use()
    used.ledger.write_bytes(b"".join(lines[:at]))


def restored(used: Used) -> None:
    used.ledger.unlink()
    shutil.copy(used.before / "governance.jsonl", used.ledger)


def removed(used: Used) -> None:
    used.ledger.unlink()


CHANGES = [unreadable, edited, of_another_request, taken_out, cut_off, restored, removed]


@pytest.mark.parametrize("beside", ["as it is", "removed", "restored"])
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_ledger_that_was_changed_grants_nothing(used, change, beside):
    # More entries follow it, so that the use is not the last line.
    used.user.run("agent", "create", "other", "--workspace", str(used.user.project))
    change(used)
    if beside != "as it is":
        shutil.rmtree(used.beside)
    if beside == "restored":
        shutil.copytree(used.before / "governance.d", used.beside)
    ran = used.asked_again()
    assert (ran.status, ran.err.startswith("error[ledger.damaged]")) == (4, True), ran


def test_what_was_granted_before_somebody_accepted_a_rollback_counts_no_more(used):
    restored(used)
    shutil.rmtree(used.beside)
    shutil.copytree(used.before / "governance.d", used.beside)
    assert used.user.run("ledger", "accept-rollback", "--yes").status == 0
    assert used.user.run("ledger", "verify").status == 0
    assert b'"answer":"granted"' in used.ledger.read_bytes()
    assert b'"answer":"used"' not in used.ledger.read_bytes()
    assert used.asked_again().json["code"] == "approval.unavailable"


def test_a_grant_counts_only_while_the_anchor_can_be_read(used, tmp_path):
    anchor, kept_there = tmp_path / "anchor", tmp_path / "kept"
    works = f'if [ "$1" = read ]; then cat {kept_there}; else cat > {kept_there}; fi'
    anchor.write_text(works)
    configuration = used.user.home / ".config/paddock/config.toml"
    configuration.parent.mkdir(parents=True, exist_ok=True)
    configuration.write_text(f'[ledger]\nanchor = {{ command = ["/bin/sh", "{anchor}"] }}\n')
    kept = used.ask().json["approval"]
    assert used.user.run("approvals", "grant", kept).status == 0
    anchor.write_text("exit 1")
    assert used.ask().json["code"] == "approval.unavailable"
    assert not (used.user.project / "asked/a").exists()
    anchor.write_text(works)
    assert used.ask().json["status"] == "ok"


def test_without_such_a_change_the_next_grant_counts(used):
    kept = used.ask().json["approval"]
    assert used.user.run("approvals", "grant", kept).status == 0
    assert used.ask().json["status"] == "ok"
    assert json.loads(used.granted)["id"] != kept


KEPT_REQUEST = Parked(
    id="APR-0123456789abcdef",
    agent="main",
    tool="create_file",
    actions=("x",),
    reason="why",
    rule="rule",
    digest="sha256:a",
    policy_digest="",
    target_digest="",
    call_id="",
    session_id="",
    parked_at=1,
    expires_at=2,
    answered_by="",
    note="",
    arguments={},
    diff="",
)
KEPT_ENTRY = {"request": KEPT_REQUEST.id, "answer": "kept", "digest": "sha256:a"}


@pytest.mark.parametrize(
    ("more", "is_kept"),
    [
        ({}, True),
        ({"shown": shown_digest(KEPT_REQUEST.request)}, True),
        ({"shown": "sha256:b"}, False),
        ({"changes": "sha256:b"}, False),
        ({"digest": "sha256:b"}, False),
        ({"request": "APR-1123456789abcdef"}, False),
    ],
    ids=["of an earlier version", "as it was", "shown otherwise", "changes", "call", "other"],
)
def test_a_request_is_the_one_that_was_kept_if_all_that_is_on_record_fits(more, is_kept):
    assert Answers([{**KEPT_ENTRY, **more}]).is_kept(KEPT_REQUEST) is is_kept
