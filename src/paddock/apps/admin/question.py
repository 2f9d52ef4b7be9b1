"""What somebody is asked before an approval. Pure.

Every piece of the request stands behind a gutter, escaped and whole, or it is said how
much of it is missing; then there is no `always`.

Threat: arguments are written by a model. Whatever they hold, they cannot begin a line
as we do, end before their end, or look like less than they are.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from paddock.apps.admin.blocks import Block, Look, Row, Span, Text, diff_rows, line, row
from paddock.apps.admin.ports import Choice, Question
from paddock.apps.admin.preview import Preview
from paddock.apps.admin.reveal import reveal, reveal_diff
from paddock.runtime.approvals import ApprovalRequest

GUTTER: Final = "  │ "
LINES_MAX: Final = 60
"""Of one argument, or of the diff, when the question is put first."""
CHARS_MAX: Final = 4_000
EXPANDED_LINES_MAX: Final = 20_000
EXPANDED_CHARS_MAX: Final = 1_000_000
_DIGEST_CHARS: Final = 23
_TARGET_CHARS_MAX: Final = 40
_IN_DIFF: Final = frozenset({"content", "old_str", "new_str", "old_string", "new_string"})
"""Arguments that the diff shows, where there is one that is whole."""


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of each piece is shown."""

    lines_max: int = LINES_MAX
    chars_max: int = CHARS_MAX


BRIEF: Final = Extent()
WHOLE: Final = Extent(EXPANDED_LINES_MAX, EXPANDED_CHARS_MAX)


@dataclass(slots=True)
class _Draft:
    """The question while it is put together."""

    extent: Extent
    rows: list[Row] = field(default_factory=list[Row])
    notices: list[str] = field(default_factory=list[str])
    is_whole: bool = True

    def add(self, name: str, text: str, look: Look) -> None:
        """One piece: its name, then its lines."""
        shown = text[: self.extent.chars_max]
        revealed = reveal(shown)
        kept = revealed.rows[: self.extent.lines_max]
        missing_lines = len(revealed.rows) - len(kept)
        missing_chars = len(text) - len(shown)
        label = Span(f"{name:<9}", Look.DIM)
        if len(kept) == 1:
            self.rows.append((label, Span(kept[0], look)))
        else:
            self.rows.append(row(label, Span(f"{len(kept)} lines", Look.DIM)))
            self.rows += [row(Span("  ┊ ", Look.DIM), each) for each in kept]
        if missing_lines or missing_chars:
            self.is_whole = False
            cut = [f"{missing_lines} more lines"] if missing_lines else []
            cut += [f"{missing_chars} more characters"] if missing_chars else []
            self.rows.append((Span(f"         … {', '.join(cut)}: e shows all", Look.WARN),))
        self.notices += [f"{name}: {notice}" for notice in revealed.notices]

    def add_own(self, name: str, text: str) -> None:
        """One piece that nobody else wrote."""
        self.rows.append(row(Span(f"{name:<9}", Look.DIM), text))


def question_for(
    request: ApprovalRequest,
    question_id: str,
    preview: Preview | None,
    extent: Extent,
    timeout_s: float,
) -> Question:
    draft = _Draft(extent)
    for name, text in _arguments(request, preview):
        draft.add(name, text, Look.STRONG)
    for name, text in _reasons(request):
        draft.add(name, text, Look.PLAIN)
    size = sum(len(str(value)) for value in request.arguments.values())
    draft.add_own("call", f"{request.digest[:_DIGEST_CHARS]}…, {size} characters of arguments")
    blocks: list[Block] = [
        line(""),
        line(
            Span(f"{question_id}: ", Look.WARN),
            f"agent {request.agent} asks to run ",
            Span(request.tool, Look.STRONG),
        ),
        Text(tuple(draft.rows), GUTTER),
    ]
    is_whole = draft.is_whole
    if preview is not None:
        # What `unified_diff` escaped is plain text by now; the rest is not to be overlooked.
        revealed = reveal_diff(preview.text)
        draft.notices += [f"diff: {notice}" for notice in revealed.notices]
        blocks.append(_preview_block(preview, "\n".join(revealed.rows)))
        is_whole = is_whole and preview.is_whole
    notices = tuple(row(Span("note: ", Look.WARN), notice) for notice in draft.notices)
    if notices:
        blocks.append(Text(notices, "  "))
    choices = [Choice.YES, Choice.NO]
    # What was not shown whole is agreed to at most once.
    choices.append(Choice.ALWAYS if is_whole else Choice.EXPAND)
    letters = "y/N/a" if is_whole else "y/N/e"
    more = "a: always exactly this, in this session" if is_whole else "e: show all of it"
    keys = line(Span(f"  y: once, n: no (the default), {more}", Look.DIM))
    prompt = f"{question_id} allow {request.tool}? [{letters}] "
    return Question(question_id, tuple(blocks), keys, prompt, tuple(choices), timeout_s)


def _arguments(request: ApprovalRequest, preview: Preview | None) -> Iterator[tuple[str, str]]:
    has_diff = preview is not None and preview.is_diff and preview.is_whole
    for name, value in request.arguments.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
        if has_diff and name in _IN_DIFF:
            continue
        yield name, text


def _reasons(request: ApprovalRequest) -> Iterator[tuple[str, str]]:
    for action in request.actions:
        yield "action", _brief(action, request)
    yield "why", request.reason
    for warning in request.warnings:
        yield "warning", warning
    if request.rule:
        yield "rule", request.rule


def _brief(action: str, request: ApprovalRequest) -> str:
    """An action without what stands above it, whole and long."""
    for name, value in request.arguments.items():
        if isinstance(value, str) and len(value) > _TARGET_CHARS_MAX and action.endswith(value):
            return f"{action.removesuffix(value)}(the {name})"
    return action


def _preview_block(preview: Preview, shown: str) -> Text:
    if preview.is_diff:
        return Text(diff_rows(shown), GUTTER)
    return Text((row(Span(shown, Look.WARN)),), GUTTER)
