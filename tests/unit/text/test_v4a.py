"""V4A diffs give what their public reference gives, and leave every other byte alone."""

import json
from pathlib import Path

import pytest

from paddock.errors import InvalidArgumentsError, StringNotFoundError, ToolError
from paddock.text.v4a import created_content, patched_content

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "v4a.json").read_text())["cases"]
ELSEWHERE = "*** Update File: x\n"
"""Another file in the same diff: the reference leaves out what is behind it, we refuse it."""


@pytest.mark.parametrize("case", VECTORS)
def test_the_reference_and_ours_accept_and_refuse_the_same(case: dict[str, str]) -> None:
    try:
        found = (
            created_content(case["diff"])
            if case["mode"] == "create"
            else patched_content(case["content"].encode(), case["diff"].encode()).decode()
        )
    except ToolError:
        found = None
    expected = None if case["diff"].startswith(ELSEWHERE) else case["result"]
    assert found == expected


@pytest.mark.parametrize(
    ("diff", "error", "said"),
    [
        ("", InvalidArgumentsError, "Nothing in this section: ''"),
        ("@@\nx\n", InvalidArgumentsError, "Invalid Line: 'x'"),
        ("@@\n-a\n+b\n*** Add File: y\n+b\n", InvalidArgumentsError, "Invalid Line: '*** Add F"),
        ("@@\n-a\n+b\n*** End Patch\n@@\n-c\n", InvalidArgumentsError, "Invalid Line after the"),
        ("*** End of File\n", InvalidArgumentsError, "Invalid Line: '*** End of File'"),
        ("@@\n-z\n+b\n", StringNotFoundError, "Invalid Context 0: 'z'"),
        ("@@\n-z\n*** End of File\n", StringNotFoundError, "Invalid EOF Context 0: 'z'"),
        ("@@ a\n@@ z\n-a\n", StringNotFoundError, "Invalid Anchor 1: 'z'"),
        # The first hunk has a place: it is not applied either.
        ("@@\n-a\n+b\n@@\n-z\n", StringNotFoundError, "Invalid Context 1: 'z'"),
    ],
)
def test_what_is_no_diff_or_has_no_place_is_refused_whole(
    diff: str, error: type[ToolError], said: str
) -> None:
    with pytest.raises(error) as caught:
        patched_content(b"a\nc\n", diff.encode())
    assert caught.value.message.startswith(said)
    assert "nothing was changed" in caught.value.hint


@pytest.mark.parametrize(
    ("content", "diff", "expected"),
    [
        (b"a\r\nb\nc\r\n", b"@@\n-b\n+B\n", b"a\r\nB\nc\r\n"),
        (b"a\r\nb\nc\r\n", b"@@\n a\n+x\n", b"a\r\nx\nb\nc\r\n"),
        (b"a\r\nb", b"@@\n b\n+c\n", b"a\r\nb\r\nc"),
        (b"a", b"@@\r\n a\r\n+b\r\n", b"a\r\nb"),
        (b"a\rb\nc\n", b"@@\n-c\n+d\n", b"a\rb\nd\n"),
        (b"x \ny\n", b"@@\n x\n-y\n+z\n", b"x \nz\n"),
        (b"\xff\na\n", b"@@\n-a\n+b\n", b"\xff\nb\n"),
    ],
)
def test_lines_that_are_not_named_keep_their_bytes(
    content: bytes, diff: bytes, expected: bytes
) -> None:
    assert patched_content(content, diff) == expected


@pytest.mark.parametrize(
    ("content", "diff"),
    [
        (b" x\n" * 200_000, b"@@ x\n-x\n" * 100_000),
        (b"a\nb\n" * 200_000, b"@@ q\n-a\n" * 100_000),
        (b"a\n" * 1_000_001, b"@@\n-a\n+b\n"),
    ],
)
def test_a_diff_that_would_take_minutes_is_refused(content: bytes, diff: bytes) -> None:
    with pytest.raises(ToolError) as caught:
        patched_content(content, diff)
    assert caught.value.code == "text.too_large"
