"""What a person reads before an approval, at a terminal and in a client's form."""

import pytest
from msgspec.structs import replace

from paddock.apps.admin.question import reveal
from paddock.runtime.approvals import ApprovalRequest, question_of
from paddock.text.show import show_unseen

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


UNSEEN = "\u00ad\u034f\u115f\u1160\u17b4\u180e\u200b\u2060\u206a\u2800\u3164\ufe0f\uffa0\U000e0041\U000e0100"


@pytest.mark.parametrize("character", UNSEEN, ids=lambda each: f"U+{ord(each):04X}")
def test_nothing_that_nobody_sees_reaches_who_decides(character):
    text = f"a{character}b"
    asked = replace(
        REQUEST, agent=text, actions=(text,), reason=text, rule=text, warnings=(text,), diff=text
    )
    assert character not in question_of(asked)
    assert character not in "".join(reveal(text).rows)
    assert show_unseen(text)[1] == 1


@pytest.mark.parametrize("text", ["caf\u00e9", "\u6f22\u5b57", "\U0001f600", "a b"])
def test_what_is_seen_is_shown_as_it_is(text):
    assert text in question_of(replace(REQUEST, actions=(text,)))
    assert show_unseen(text) == (text, 0)
