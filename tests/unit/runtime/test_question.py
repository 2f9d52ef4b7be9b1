"""What a person reads before an approval, at a terminal and in a client's form."""

from dataclasses import replace

from paddock.runtime.approvals import ApprovalRequest
from paddock.runtime.question import question_of

REQUEST = ApprovalRequest(
    "sha256:0", "delete_file", {"path": "a"}, ("tool:file:delete a",), "main", "a rule asks", "r"
)


def test_a_question_says_who_asks_for_what_why_and_by_which_rule():
    assert question_of(REQUEST).split("\n") == [
        'agent main asks to run delete_file {"path": "a"}',
        "  action: tool:file:delete a",
        "  why asked: a rule asks",
        "  rule: r",
    ]


def test_what_policy_warns_of_stands_after_why_it_is_asked_on_a_line_of_its_own():
    rows = question_of(replace(REQUEST, warnings=("one\n  rule: s", "two"))).split("\n")
    assert rows[2:] == [
        "  why asked: a rule asks",
        "  warning: one\\n  rule: s",
        "  warning: two",
        "  rule: r",
    ]
