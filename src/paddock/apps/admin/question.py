"""What somebody is asked before an approval. Pure.

Every piece of the request stands behind a gutter, escaped and whole, or it is said how
much of it is missing; then there is no `always`.

Threat: arguments are written by a model. Whatever they hold, they cannot begin a line
as we do, end before their end, or look like less than they are.
"""

import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

from msgspec import Struct, field

from paddock import limits
from paddock.apps.admin.plain import Choice, Keyboard, PersonsAnswer, Question, Silence
from paddock.apps.admin.reveal import reveal, reveal_diff
from paddock.apps.admin.show import Block, Row, ShownText, TextLook, TextSpan, diff_rows, line, row
from paddock.errors import ApprovalUnavailableError, HostError, ToolError
from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.text.changes import is_whole_diff, unified_diff
from paddock.text.edit import require_content
from paddock.text.show import show_name
from paddock.tools.effects import ABSENT
from paddock.tools.replace import Replacement, ReplacementOfAll, Wording
from paddock.values.calls import Json
from paddock.workspace import Workspace, version_of

# It is made from the same content that the approval is bound to: what stands there is
# read here, and shown only where its digest is the one in the request.

_READ_BYTES_MAX: Final = 400_000
_WORDING: Final = Wording("the old text does not stand there", "it is ambiguous", "")


class Preview(Struct, frozen=True):
    """A unified diff, or a word about why there is none. `is_whole`: nothing is left out."""

    text: str
    is_diff: bool = True
    is_whole: bool = True


class Previews(Protocol):
    def of(self, request: ApprovalRequest, lines_max: int) -> Preview | None:
        """What it would change; None for a call that changes no file by its arguments."""
        ...


class WorkspacePreviews(Struct, frozen=True):
    root_of: Callable[[str], str]

    def of(self, request: ApprovalRequest, lines_max: int) -> Preview | None:
        if request.diff:
            return Preview(request.diff, is_whole=is_whole_diff(request.diff))
        change = _CHANGES.get(request.tool)
        path = request.arguments.get("path")
        if change is None or not isinstance(path, str):
            return None
        try:
            before = self._before(request, path)
            after = change(before or b"", request.arguments)
        except (ToolError, HostError) as error:
            return Preview(f"no diff: {error.message}", is_diff=False, is_whole=False)
        if before is None and request.target_digest != ABSENT:
            said = "no diff: what stands there is not what the question is bound to"
            return Preview(said, is_diff=False, is_whole=False)
        return _compared(before or b"", after, path, lines_max)

    def _before(self, request: ApprovalRequest, path: str) -> bytes | None:
        """The content that the request is bound to; None where nothing stands there."""
        if request.target_digest == ABSENT:
            return None
        with Workspace.open(self.root_of(request.agent)) as workspace:
            content = workspace.read_all(workspace.resolve_read(path), _READ_BYTES_MAX)
        # Threat: the file is exchanged between the question and this look at it, and a
        # harmless difference is shown for another change.
        return content if version_of(content) == request.target_digest else None


def _compared(before: bytes, after: bytes, path: str, lines_max: int) -> Preview:
    if any(b"\0" in each[: limits.binary_probe_bytes] for each in (before, after)):
        said = f"no diff: binary, {len(before)} bytes before, {len(after)} bytes after"
        return Preview(said, is_diff=False, is_whole=False)
    if before == after:
        return Preview("no difference: the content stays the same", is_diff=False)
    text = unified_diff(before, after, show_name(path), lines_max)
    return Preview(text, is_whole=is_whole_diff(text))


def _written(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return require_content(str(arguments.get("content", "")), "content")


def _replaced(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return _replace(before, arguments, "old_str", "new_str")


def _replaced_dev(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return _replace(before, arguments, "old_string", "new_string")


def _replace(before: bytes, arguments: Mapping[str, Json], old: str, new: str) -> bytes:
    sought = require_content(str(arguments.get(old, "")), old)
    given = require_content(str(arguments.get(new, "")), new)
    name = str(arguments.get("path", ""))
    kind = ReplacementOfAll if arguments.get("replace_all") is True else Replacement
    return b"".join(kind(name, sought, given, _WORDING, may_view=False).apply(before))


def _deleted(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return b""


_CHANGES: Final[Mapping[str, Callable[[bytes, Mapping[str, Json]], bytes]]] = {
    "create_file": _written,
    "write_file_dev": _written,
    "str_replace": _replaced,
    "edit_file_dev": _replaced_dev,
    "delete_file": _deleted,
}

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


class Extent(Struct, frozen=True):
    lines_max: int = LINES_MAX
    chars_max: int = CHARS_MAX


BRIEF: Final = Extent()
WHOLE: Final = Extent(EXPANDED_LINES_MAX, EXPANDED_CHARS_MAX)


class _Draft(Struct):
    extent: Extent
    rows: list[Row] = field(default_factory=list[Row])
    notices: list[str] = field(default_factory=list[str])
    is_whole: bool = True

    def add(self, name: str, text: str, look: TextLook) -> None:
        shown = text[: self.extent.chars_max]
        revealed = reveal(shown)
        kept = revealed.rows[: self.extent.lines_max]
        missing_lines = len(revealed.rows) - len(kept)
        missing_chars = len(text) - len(shown)
        label = TextSpan(f"{name:<9}", TextLook.DIM)
        if len(kept) == 1:
            self.rows.append((label, TextSpan(kept[0], look)))
        else:
            self.rows.append(row(label, TextSpan(f"{len(kept)} lines", TextLook.DIM)))
            self.rows += [row(TextSpan("  ┊ ", TextLook.DIM), each) for each in kept]
        if missing_lines or missing_chars:
            self.is_whole = False
            cut = [f"{missing_lines} more lines"] if missing_lines else []
            cut += [f"{missing_chars} more characters"] if missing_chars else []
            self.rows.append(
                (TextSpan(f"         … {', '.join(cut)}: e shows all", TextLook.WARN),)
            )
        self.notices += [f"{name}: {notice}" for notice in revealed.notices]

    def add_own(self, name: str, text: str) -> None:
        self.rows.append(row(TextSpan(f"{name:<9}", TextLook.DIM), text))


def question_for(
    request: ApprovalRequest,
    question_id: str,
    preview: Preview | None,
    extent: Extent,
    timeout_s: float,
) -> Question:
    draft = _Draft(extent)
    for name, text in _arguments(request, preview):
        draft.add(name, text, TextLook.STRONG)
    for name, text in _reasons(request):
        draft.add(name, text, TextLook.PLAIN)
    size = sum(len(str(value)) for value in request.arguments.values())
    draft.add_own("call", f"{request.digest[:_DIGEST_CHARS]}…, {size} characters of arguments")
    blocks: list[Block] = [
        line(""),
        line(
            TextSpan(f"{question_id}: ", TextLook.WARN),
            f"agent {request.agent} asks to run ",
            TextSpan(request.tool, TextLook.STRONG),
        ),
        ShownText(tuple(draft.rows), GUTTER),
    ]
    is_whole = draft.is_whole
    if preview is not None:
        # What `unified_diff` escaped is plain text by now; the rest is not to be overlooked.
        revealed = reveal_diff(preview.text)
        draft.notices += [f"diff: {notice}" for notice in revealed.notices]
        blocks.append(_preview_block(preview, "\n".join(revealed.rows)))
        is_whole = is_whole and preview.is_whole
    notices = tuple(row(TextSpan("note: ", TextLook.WARN), notice) for notice in draft.notices)
    if notices:
        blocks.append(ShownText(notices, "  "))
    choices = [Choice.YES, Choice.NO]
    # What was not shown whole is agreed to at most once.
    choices.append(Choice.ALWAYS if is_whole else Choice.EXPAND)
    letters = "y/N/a" if is_whole else "y/N/e"
    more = "a: always exactly this, in this session" if is_whole else "e: show all of it"
    keys = line(TextSpan(f"  y: once, n: no (the default), {more}", TextLook.DIM))
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


def _preview_block(preview: Preview, shown: str) -> ShownText:
    if preview.is_diff:
        return ShownText(diff_rows(shown), GUTTER)
    return ShownText((row(TextSpan(shown, TextLook.WARN)),), GUTTER)


BY: Final = "terminal"


class TerminalApprover:
    """Remembers what is always granted, by session and digest: nothing but exactly the same call.

    Threat: "in this session" is what was agreed to, and the shell goes on with another one. Agents
    that work side by side ask one after another.
    """

    def __init__(
        self, keyboard: Keyboard, previews: Previews, timeout_s: float = limits.approval_timeout_s
    ) -> None:
        self._keyboard = keyboard
        self._previews = previews
        self._timeout_s = timeout_s
        self._numbers = itertools.count(1)
        self._always: dict[tuple[str, str], str] = {}
        self._lock = threading.Lock()

    def answer(self, request: ApprovalRequest) -> Approval:
        with self._lock:
            return self._answer(request)

    def _answer(self, request: ApprovalRequest) -> Approval:
        call = (request.session_id, request.digest)
        before = self._always.get(call)
        if before is not None:
            return Approval(True, f"{BY} (always, since {before})")
        said, question_id = self._ask(request, BRIEF)
        if said is Choice.EXPAND:
            said, question_id = self._ask(request, WHOLE)
        if isinstance(said, Silence):
            note = said.value
            if said is Silence.TOO_LATE:
                note = f"no answer within {self._timeout_s:g} s"
            return Approval(False, BY, ApprovalUnavailableError.code, note)
        if said is Choice.ALWAYS:
            self._always[call] = question_id
        return Approval(said in {Choice.YES, Choice.ALWAYS}, BY)

    def _ask(self, request: ApprovalRequest, extent: Extent) -> tuple[Choice | Silence, str]:
        question_id = f"Q{next(self._numbers)}"
        preview = self._previews.of(request, extent.lines_max)
        question = question_for(request, question_id, preview, extent, self._timeout_s)
        answer = self._keyboard.answer(question)
        if isinstance(answer, Silence):
            return answer, question_id
        return _counted(answer, question_id, question.choices), question_id


def _counted(answer: PersonsAnswer, question_id: str, choices: tuple[Choice, ...]) -> Choice:
    # Threat: an answer to an earlier question arrives when another one stands there.
    if answer.question_id != question_id or answer.choice not in choices:
        return Choice.NO
    return answer.choice
