"""What is asked shows everything, or says what is missing and offers no `always`."""

from hypothesis import given
from hypothesis import strategies as st

from paddock.apps.admin.plain import Choice, PersonsAnswer, Silence, parse_choice
from paddock.apps.admin.question import BRIEF, WHOLE, Preview, TerminalApprover, question_for
from paddock.apps.admin.show import plain_lines
from paddock.runtime.approvals import Approval, ApprovalRequest


def request(
    tool="run_shell",
    digest="sha256:" + "0" * 64,
    diff="",
    session="SES-1",
    warnings=(),
    **arguments,
) -> ApprovalRequest:
    return ApprovalRequest(
        digest=digest,
        tool=tool,
        arguments=arguments,
        actions=(f"tool:shell:run {arguments.get('command', '')}",),
        agent="main",
        reason="a rule asks",
        rule="tool:shell:* (paddock.toml:3)",
        diff=diff,
        warnings=warnings,
        session_id=session,
    )


def shown(asked, preview=None, extent=BRIEF) -> tuple[str, tuple[Choice, ...]]:
    question = question_for(asked, "Q7", preview, extent, 30.0)
    rows = [row for block in question.blocks for row in plain_lines(block)]
    return "\n".join(rows), question.choices


def test_a_question_says_who_asks_for_what_and_why():
    text, choices = shown(request(command="git push", timeout=30))
    assert text.split("\n") == [
        "",
        "Q7: agent main asks to run run_shell",
        "  │ command  git push",
        "  │ timeout  30",
        "  │ action   tool:shell:run git push",
        "  │ why      a rule asks",
        "  │ rule     tool:shell:* (paddock.toml:3)",
        "  │ call     sha256:0000000000000000…, 10 characters of arguments",
    ]
    assert choices == (Choice.YES, Choice.NO, Choice.ALWAYS)


def test_what_policy_warns_of_stands_after_why_it_is_asked():
    text, _ = shown(request(command="git push", warnings=("it matters",)))
    rows = text.split("\n")
    assert rows[rows.index("  │ why      a rule asks") + 1] == "  │ warning  it matters"


def test_what_is_cut_is_counted_and_has_no_always():
    text, choices = shown(request(command="x" * 4_001))
    assert "… 1 more characters: e shows all" in text
    assert choices == (Choice.YES, Choice.NO, Choice.EXPAND)
    text, choices = shown(request(command="x\n" * 61))
    assert "… 2 more lines: e shows all" in text
    assert Choice.ALWAYS not in choices
    text, choices = shown(request(command="x" * 4_001), extent=WHOLE)
    assert ("x" * 4_001 in text, Choice.ALWAYS in choices) == (True, True)


def test_a_diff_that_is_not_whole_has_no_always():
    asked = request(command="make")
    assert Choice.ALWAYS in shown(asked, Preview("+x"))[1]
    assert Choice.ALWAYS not in shown(asked, Preview("+x", is_whole=False))[1]
    assert Choice.ALWAYS not in shown(asked, Preview("no diff: x", False, False))[1]


def test_a_gap_in_a_row_of_a_diff_is_told_and_an_indentation_stays():
    gap = " " * 60
    text, _ = shown(request(command="make"), Preview(f"+{gap}deep\n+echo{gap}; rm -r ~"))
    assert f"  │ +{gap}deep" in text
    assert "  │ +echo⟨60 spaces⟩; rm -r ~" in text
    assert "note: diff: 1 run of spaces is shown as ⟨N spaces⟩" in text


def test_what_a_diff_that_is_not_whole_leaves_out_stands_in_the_argument():
    asked = request("create_file", path="a", content="x\ny")
    assert "content" not in shown(asked, Preview("+x\n+y"))[0]
    assert "content" in shown(asked, Preview("+x\n[... 1 more", is_whole=False))[0]


def test_what_a_diff_hides_is_shown_in_it():
    text, _ = shown(request(command="make"), Preview("+a\u200bb\n+    \u0430"))
    assert "  │ +a\\u200bb\n  │ +    \u0430" in text
    assert "note: diff: 1 character is invisible" in text
    assert "note: diff: non-ASCII characters: 1 × U+0430" in text


@given(st.text(max_size=300), st.text(max_size=100))
def test_no_argument_begins_a_line_as_we_do(command, reason):
    asked = request(command=command, path=reason)
    text, _ = shown(asked)
    for row in text.split("\n")[2:]:
        assert row.startswith(("  │ ", "  note: ")), text
        assert row.isprintable()


# The approver


class Typist:
    """A keyboard that answers as it was told, and remembers the questions."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.questions = []

    def answer(self, question):
        self.questions.append(question)
        said = self.answers.pop(0)
        return PersonsAnswer(question.id, said) if isinstance(said, Choice) else said


def approver(*answers) -> tuple[TerminalApprover, Typist]:
    typist = Typist(*answers)
    return TerminalApprover(typist, lambda asked, lines_max: None, 30.0), typist


def test_a_yes_counts_once_and_a_no_is_a_no():
    asking, typist = approver(Choice.YES, Choice.NO)
    assert asking.answer(request(command="a")) == Approval(True, "terminal")
    assert asking.answer(request(command="a")) == Approval(False, "terminal")
    assert [question.id for question in typist.questions] == ["Q1", "Q2"]


def test_always_holds_for_the_same_digest_and_no_other():
    asking, typist = approver(Choice.ALWAYS, Choice.NO)
    assert asking.answer(request(command="a")) == Approval(True, "terminal")
    again = asking.answer(request(command="a"))
    assert again == Approval(True, "terminal (always, since Q1)")
    assert asking.answer(request(command="a", digest="sha256:1")).is_granted is False
    assert len(typist.questions) == 2


def test_always_holds_in_its_session_and_in_no_other():
    asking, typist = approver(Choice.ALWAYS, Choice.NO, Choice.ALWAYS)
    first, other = request(command="a"), request(command="a", session="SES-2")
    assert asking.answer(first) == Approval(True, "terminal")
    assert asking.answer(other) == Approval(False, "terminal")
    assert asking.answer(first) == Approval(True, "terminal (always, since Q1)")
    assert asking.answer(other) == Approval(True, "terminal")
    assert asking.answer(other) == Approval(True, "terminal (always, since Q3)")
    assert [question.id for question in typist.questions] == ["Q1", "Q2", "Q3"]


def test_an_answer_to_another_question_is_a_no():
    asking, _ = approver(PersonsAnswer("Q0", Choice.YES), Choice.YES)
    assert asking.answer(request(command="a")).is_granted is False
    assert asking.answer(request(command="a")).is_granted is True


def test_an_always_that_was_not_offered_is_a_no():
    long = request(command="x" * 9_000)
    asking, _ = approver(PersonsAnswer("Q1", Choice.ALWAYS))
    assert asking.answer(long).is_granted is False


def test_all_of_it_is_shown_before_it_is_asked_again():
    asking, typist = approver(Choice.EXPAND, Choice.YES)
    assert asking.answer(request(command="x" * 9_000)).is_granted is True
    first, second = typist.questions
    assert (Choice.EXPAND in first.choices, Choice.ALWAYS in second.choices) == (True, True)


def test_silence_is_a_no_that_can_be_answered_later():
    for silence, note in (
        (Silence.NO_TERMINAL, "no terminal to ask on"),
        (Silence.TOO_LATE, "no answer within 30 s"),
        (Silence.CLOSED, "the terminal was closed"),
    ):
        asking, _ = approver(silence)
        said = asking.answer(request(command="a"))
        assert said == Approval(False, "terminal", "approval.unavailable", note)


def test_only_a_word_or_its_letter_is_a_choice():
    offered = (Choice.YES, Choice.NO, Choice.ALWAYS)
    words = {" y ": Choice.YES, "YES": Choice.YES, "a": Choice.ALWAYS, "always": Choice.ALWAYS}
    assert {word: parse_choice(word, offered) for word in words} == words
    for word in ("", "n", "e", "expand", "ye", "y y", "yesyes", "ja", "1", "\x1by"):
        assert parse_choice(word, offered) is Choice.NO
