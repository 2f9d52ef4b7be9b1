"""A V4A diff made from an edit does that edit, and any other text is a refusal at worst."""

from hypothesis import given
from hypothesis import strategies as st

from paddock.errors import ToolError
from paddock.text.v4a import created_content, patched_content

LINES = st.lists(
    st.sampled_from(["a", "b", " a", "a ", "", "\tb", "é", "@@ a", "*** x"]), max_size=8
)
PARTS = st.sampled_from(["@@", "@@ a", "+", "-", " ", "a", "\n", "\r\n", "*** End of File", "é"])
DIFFS = st.lists(PARTS, max_size=20).map("".join)
ENDS = st.sampled_from(["\n", "\r\n"])


@given(content=st.binary(max_size=40), diff=DIFFS)
def test_any_text_is_applied_or_refused(content: bytes, diff: str) -> None:
    for act in (lambda: patched_content(content, diff.encode()), lambda: created_content(diff)):
        try:
            act()
        except ToolError as error:
            assert error.message


@given(old=LINES.filter(bool), new=LINES, before=LINES, after=LINES, end=ENDS)
def test_an_edit_with_its_whole_context_leaves_the_other_lines(
    old: list[str], new: list[str], before: list[str], after: list[str], end: str
) -> None:
    content = "".join(f"{line}{end}" for line in (*before, *old, *after))
    # All of the file is context: so it stands at one place.
    diff = [*(f" {line}" for line in before), *(f"-{line}" for line in old)]
    diff += [*(f"+{line}" for line in new), *(f" {line}" for line in after), "*** End of File"]
    changed = patched_content(content.encode(), "\n".join(("@@", *diff, "")).encode())
    assert changed.decode() == "".join(f"{line}{end}" for line in (*before, *new, *after))


@given(lines=st.lists(st.text("ab é", max_size=4), min_size=1, max_size=6), end=ENDS)
def test_a_new_file_is_its_lines(lines: list[str], end: str) -> None:
    assert created_content("".join(f"+{line}{end}" for line in lines)) == end.join(lines)
