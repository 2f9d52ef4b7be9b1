"""A diff that is shown makes the old content into the new one."""

import re

from hypothesis import given
from hypothesis import strategies as st

from paddock.text.changes import unified_diff

LINES = st.lists(st.sampled_from(["a", "b", "c", "", "}", "- x", "+++ y", "@@ z"]), max_size=40)
HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


def content(lines: list[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def hunks(rows: list[str]) -> list[tuple[int, int, list[str], list[str]]]:
    """Of each hunk: where it begins on both sides, and the lines of both sides."""
    found: list[tuple[int, int, list[str], list[str]]] = []
    left = (0, 0)
    for row in rows:
        if left == (0, 0):
            head = HEAD.fullmatch(row)
            assert head is not None
            begins, counts = (int(head[1]), int(head[3])), (int(head[2] or 1), int(head[4] or 1))
            old_at, new_at = (at - (count > 0) for at, count in zip(begins, counts, strict=True))
            found.append((old_at, new_at, [], []))
            left = counts
            continue
        is_old, is_new = row[0] in " -", row[0] in " +"
        found[-1][2].extend([row[1:]] * is_old)
        found[-1][3].extend([row[1:]] * is_new)
        left = (left[0] - is_old, left[1] - is_new)
    assert left == (0, 0)
    return found


@given(old=LINES, new=LINES)
def test_a_diff_leads_from_the_old_content_to_the_new(old: list[str], new: list[str]):
    shown = unified_diff(content(old), content(new), "x", 1_000)
    rows = shown.split("\n") if shown else []

    made = list(old)
    for old_at, new_at, removed, added in reversed(hunks(rows[2:])):
        assert old[old_at : old_at + len(removed)] == removed
        assert new[new_at : new_at + len(added)] == added
        made[old_at : old_at + len(removed)] = added
    assert made == new
    assert rows[:2] == (["--- a/x", "+++ b/x"] if old != new else [])
