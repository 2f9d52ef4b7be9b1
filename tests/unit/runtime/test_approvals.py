"""A yes counts for exactly what was shown; everything unclear is a no."""

import json
import threading

import pytest

from paddock.runtime import approvals
from paddock.runtime.approvals import (
    Approval,
    ApprovalRequest,
    CallbackApprover,
    NoApprover,
    YesApprover,
    approval_digest,
    filled_in,
)

REQUEST = ApprovalRequest("sha256:0", "delete_file", {"path": "a"}, ("x",), "main", "why", "rule")
SAME = {
    "tool": "create_file",
    "arguments": {"path": "a", "content": "x"},
    "agents": ("main",),
    "policy_digest": "sha256:1",
    "target_digest": "absent",
    "actions": ("tool:file:create a", "tool:file:create b"),
}


def test_nobody_is_a_no() -> None:
    assert NoApprover().answer(REQUEST) == Approval(
        False, "nobody", "approval.unavailable", "there is no approver"
    )


def test_a_yes_given_beforehand_says_who_gave_it() -> None:
    assert YesApprover("--yes").answer(REQUEST) == Approval(True, "--yes")


def test_a_callback_that_says_true_is_a_yes() -> None:
    seen: list[ApprovalRequest] = []

    def ask(request: ApprovalRequest) -> bool:
        seen.append(request)
        return True

    assert CallbackApprover(ask).answer(REQUEST) == Approval(True, "callback")
    assert seen == [REQUEST]


def test_a_callback_that_says_false_is_a_no() -> None:
    assert CallbackApprover(lambda _: False).answer(REQUEST) == Approval(False, "callback")


@pytest.mark.parametrize("said", [None, 1, "yes", Approval(True, "me")])
def test_anything_but_true_or_false_is_a_no_and_says_so(said: object) -> None:
    assert CallbackApprover(lambda _: said).answer(REQUEST) == Approval(
        False,
        "callback",
        "approval.unavailable",
        "the approver gave no clear answer: True is yes, False is no",
        hint="a person has to mend the program's approver: it must return True or False",
    )


def test_a_callback_that_raises_is_a_no() -> None:
    def ask(request: ApprovalRequest) -> bool:
        raise RuntimeError(request.tool)

    assert CallbackApprover(ask).answer(REQUEST) == Approval(
        False,
        "callback",
        "approval.unavailable",
        "the approver raised RuntimeError",
        hint="a person has to mend the program's approver: "
        "it must return True or False, and not raise",
    )


def test_a_callback_that_is_too_slow_is_a_no_and_its_late_yes_counts_for_nothing() -> None:
    release = threading.Event()

    def ask(request: ApprovalRequest) -> bool:
        release.wait(30)
        return True

    approval = CallbackApprover(ask, timeout_s=0.01).answer(REQUEST)
    release.set()
    assert approval == Approval(
        False, "callback", "approval.unavailable", "no answer within 0.01 s"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"tool": "str_replace"},
        {"arguments": {"path": "a", "content": "y"}},
        {"agents": ("main", "parent")},
        {"policy_digest": "sha256:2"},
        {"target_digest": "sha256:3"},
        {"actions": ("tool:file:create a", "tool:file:create c")},
        {"actions": ("tool:file:create a",)},
        {"actions": ("tool:file:create b", "tool:file:create a")},
    ],
)
def test_whatever_changes_gives_another_digest(other: dict[str, object]) -> None:
    assert approval_digest(**{**SAME, **other}) != approval_digest(**SAME)


def test_another_form_of_the_tools_arguments_gives_another_digest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = approval_digest(**SAME)
    monkeypatch.setattr(approvals, "SCHEMA_VERSION", "another")
    assert approval_digest(**SAME) != before


def test_the_order_of_arguments_does_not_matter() -> None:
    turned = {"content": "x", "path": "a"}
    assert approval_digest(**{**SAME, "arguments": turned}) == approval_digest(**SAME)


@pytest.mark.parametrize(
    ("given", "bound", "filled"),
    [
        ({"path": "a"}, {"path": "a"}, {}),
        ({"path": "a"}, {"path": "a", "depth": None}, {"depth": None}),
        ({"limit": 5.0}, {"limit": 5}, {"limit": 5}),
        ({"flag": 1}, {"flag": True}, {"flag": True}),
    ],
    ids=["whole", "default", "typed", "flag"],
)
def test_what_is_filled_in_makes_the_given_arguments_the_bound_ones(given, bound, filled):
    found = filled_in(given, bound)
    assert json.dumps(found) == json.dumps(filled)
    assert json.dumps({**given, **found}) == json.dumps(bound)
