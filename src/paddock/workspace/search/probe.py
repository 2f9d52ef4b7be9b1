"""Looking for a frequent plain text without ripgrep.

Until ripgrep has started and found its way, the few files can be read in which a frequent
text is found often enough. So for a plain text the first files are looked through here
meanwhile, in their order, for as long as it looks as if they had as many matches as are
shown. Then that is the answer, and ripgrep is not waited for.

What a line, a match and a binary file are is the same as elsewhere: a plain text is in a
line if its bytes are.
"""

import re
from collections.abc import Iterator
from typing import Final

from paddock.errors import HostError, ToolError
from paddock.workspace.names import unchecked_path
from paddock.workspace.search.asked import FileLines, Regex
from paddock.workspace.search.confirm import Content, SplitLines
from paddock.workspace.search.engine import Engine
from paddock.workspace.workspace import Workspace

_PLAIN: Final = re.compile(r"[\w \"'/:;,<>=@!%&~`-]+")
"""Texts that stand for themselves in any regular expression."""
_PLAIN_BYTES_MAX: Final = 8
"""Long texts are seldom frequent."""
_TRIED_FILES: Final = 16
"""So many files without a match are looked through at least."""
_LIKELY_FILES: Final = 48
"""It has to look as if so many files were enough."""
_MATCHES_MAX: Final = 10_000
"""More are not in so few files."""
_FILE_BYTES_MAX: Final = 1_048_576
"""A larger file ends it: ripgrep is quicker there."""


def short_text(regex: Regex) -> bytes | None:
    """The bytes of a pattern that is a short plain text; None for any other."""
    if regex.ignore_case or not regex.pattern.isprintable():
        return None
    is_plain = regex.literal or _PLAIN.fullmatch(regex.pattern) is not None
    text = regex.pattern.encode() if is_plain else b""
    return text if 0 < len(text) <= _PLAIN_BYTES_MAX else None


def probe(
    workspace: Workspace, engine: Engine, text: bytes, paths: Iterator[str]
) -> list[FileLines] | None:
    """The files with the first matches, if there are more than are shown; None if that is unlikely.

    Raises: HostError where the disk fails.
    """
    left = engine.wanted.matches_max
    if left > _MATCHES_MAX:
        return None
    found: list[FileLines] = []
    for count, path in enumerate(paths, 1):
        lines = _lines_with(workspace, path, text)
        if lines is None or engine.until.is_over:
            return None
        split, numbers = lines
        # Asked of few files alone: a decision of policy costs more than reading a file.
        if numbers and engine.may_show(path):
            shown = numbers[:left]
            columns = split.around(shown, engine.wanted.context)
            has_more = len(numbers) > left
            found.append(FileLines(path, *columns, shown, has_more))
            left -= len(shown)
            if has_more:
                return found
        so_far = engine.wanted.matches_max - left
        if count >= _TRIED_FILES and so_far * _LIKELY_FILES < engine.wanted.matches_max * count:
            return None
    return None


def _lines_with(
    workspace: Workspace, path: str, text: bytes
) -> tuple[SplitLines, list[int]] | None:
    """A file's lines, and the numbers of those that hold `text`; None for a large file."""
    try:
        with workspace.open_file(unchecked_path(path)) as file:
            if file.size_bytes > _FILE_BYTES_MAX:
                return None
            whole = Content(file).whole or b""
    except HostError:
        raise
    except ToolError:
        whole = b""  # gone, or not readable
    if text not in whole or b"\0" in whole:
        return SplitLines(b""), []
    split = SplitLines(whole)
    return split, split.with_text(text)
