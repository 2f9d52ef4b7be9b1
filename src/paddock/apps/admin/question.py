"""Build the question before an approval, and remember what was always granted.

Each part of the request is shown after a gutter, escaped and whole. If a part is cut, the
question says how much is missing and does not offer `always`.

Threat: a model writes the arguments. They must not be able to imitate Paddock's own lines,
end early, or hide a part of themselves.
"""

import itertools
import json
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from msgspec import Struct, field

from paddock import limits
from paddock.apps.admin.plain import Choice, Keyboard, Question, Silence
from paddock.apps.admin.show import (
    Block,
    Row,
    ShownText,
    TextLook,
    TextSpan,
    diff_rows,
    dim,
    line,
    row,
)
from paddock.errors import ApprovalUnavailableError, HostError, ToolError
from paddock.pattern import lazy_pattern
from paddock.runtime.approvals import Approval, ApprovalRequest
from paddock.text.changes import is_whole_diff, unified_diff
from paddock.text.edit import require_content
from paddock.text.show import is_seen, show_name, show_unseen
from paddock.tools.effects import ABSENT
from paddock.tools.replace import Replacement, ReplacementOfAll, Wording
from paddock.values.calls import Json
from paddock.workspace import Workspace, version_of

_READ_BYTES_MAX: Final = 400_000
_WORDING: Final = Wording("the old text is not in the file", "the old text is ambiguous", "")


class Preview(Struct, frozen=True):
    """A unified diff, or the reason why there is none. `is_whole`: nothing is left out."""

    text: str
    is_diff: bool = True
    is_whole: bool = True


Previews = Callable[[ApprovalRequest, int], Preview | None]
"""Returns the changes of a request in at most that many lines; None if it changes no file."""


def preview_of(
    root_of: Callable[[str], str], request: ApprovalRequest, lines_max: int
) -> Preview | None:
    if request.diff:
        return Preview(request.diff, is_whole=is_whole_diff(request.diff))
    change = _CHANGES.get(request.tool)
    path = request.arguments.get("path")
    if change is None or not isinstance(path, str):
        return None
    before = b""
    try:
        if request.target_digest != ABSENT:
            with Workspace.open(root_of(request.agent)) as workspace:
                before = workspace.read_all(workspace.resolve_read(path), _READ_BYTES_MAX)
            # Threat: the file is replaced between the request and this read, so that a
            # harmless diff is shown for another change.
            if version_of(before) != request.target_digest:
                return _no_diff("the file has changed since the request")
        after = change(before, request.arguments)
    except (ToolError, HostError) as error:
        return _no_diff(error.message)
    return _compared(before, after, path, lines_max)


def _no_diff(why: str) -> Preview:
    return Preview(f"no diff: {why}", is_diff=False, is_whole=False)


def _compared(before: bytes, after: bytes, path: str, lines_max: int) -> Preview:
    if any(b"\0" in each[: limits.binary_probe_bytes] for each in (before, after)):
        return _no_diff(f"binary, {len(before)} bytes before, {len(after)} bytes after")
    if before == after:
        return Preview("no difference: the content stays the same", is_diff=False)
    text = unified_diff(before, after, show_name(path), lines_max)
    return Preview(text, is_whole=is_whole_diff(text))


def _written(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return require_content(str(arguments.get("content", "")), "content")


def _replaced(old: str, new: str, before: bytes, arguments: Mapping[str, Json]) -> bytes:
    sought, given = (require_content(str(arguments.get(each, "")), each) for each in (old, new))
    name = str(arguments.get("path", ""))
    kind = ReplacementOfAll if arguments.get("replace_all") is True else Replacement
    edit = kind(name=name, may_view=False, old=sought, new=given, wording=_WORDING)
    return b"".join(edit.apply(before))


_CHANGES: Final[Mapping[str, Callable[[bytes, Mapping[str, Json]], bytes]]] = {
    "create_file": _written,
    "write_file_dev": _written,
    "str_replace": partial(_replaced, "old_str", "new_str"),
    "edit_file_dev": partial(_replaced, "old_string", "new_string"),
    "delete_file": lambda before, arguments: b"",
}

_GUTTER: Final = "  │ "
_DIGEST_CHARS: Final = 23
_TARGET_CHARS_MAX: Final = 40
_IN_DIFF: Final = frozenset({"content", "old_str", "new_str", "old_string", "new_string"})
"""Arguments that a whole diff shows already."""


class Extent(Struct, frozen=True):
    lines_max: int
    chars_max: int


BRIEF: Final = Extent(60, 4_000)
WHOLE: Final = Extent(20_000, 1_000_000)


class _Draft(Struct):
    extent: Extent
    rows: list[Row] = field(default_factory=list[Row])
    notices: list[str] = field(default_factory=list[str])
    is_whole: bool = True

    def add(self, name: str, text: str, look: TextLook = TextLook.PLAIN) -> None:
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


def question_for(
    request: ApprovalRequest,
    question_id: str,
    preview: Preview | None,
    extent: Extent,
    timeout_s: float,
) -> Question:
    draft = _Draft(extent)
    has_diff = preview is not None and preview.is_diff and preview.is_whole
    for name, value in request.arguments.items():
        if not (has_diff and name in _IN_DIFF):
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=True)
            draft.add(name, text, TextLook.STRONG)
    for action in request.actions:
        draft.add("action", _brief(action, request))
    draft.add("why", request.reason)
    for warning in request.warnings:
        draft.add("warning", warning)
    if request.rule:
        draft.add("rule", request.rule)
    size = sum(len(str(value)) for value in request.arguments.values())
    call = f"{request.digest[:_DIGEST_CHARS]}…, {size} characters of arguments"
    draft.rows.append(row(TextSpan(f"{'call':<9}", TextLook.DIM), call))
    head = TextSpan(f"{question_id}: ", TextLook.WARN)
    tool = TextSpan(request.tool, TextLook.STRONG)
    blocks: list[Block] = [
        line(""),
        line(head, f"agent {request.agent} asks to run ", tool),
        ShownText(tuple(draft.rows), _GUTTER),
    ]
    is_whole = draft.is_whole
    if preview is not None:
        # `unified_diff` has escaped some characters; `reveal` shows the rest.
        revealed = reveal(preview.text, _WIDE)
        draft.notices += [f"diff: {notice}" for notice in revealed.notices]
        shown = "\n".join(revealed.rows)
        rows = diff_rows(shown) if preview.is_diff else (row(TextSpan(shown, TextLook.WARN)),)
        blocks.append(ShownText(rows, _GUTTER))
        is_whole = is_whole and preview.is_whole
    if draft.notices:
        mark = TextSpan("note: ", TextLook.WARN)
        blocks.append(ShownText(tuple(row(mark, each) for each in draft.notices), "  "))
    # A request that is not shown whole can be granted only once.
    third = Choice.ALWAYS if is_whole else Choice.EXPAND
    more = "a: always this same call, in this session" if is_whole else "e: show all of it"
    keys = dim(f"  y: once, n: no (the default), {more}")
    prompt = f"{question_id} allow {request.tool}? [y/N/{third.value[0]}] "
    choices = (Choice.YES, Choice.NO, third)
    return Question(question_id, tuple(blocks), keys, prompt, choices, timeout_s)


def _brief(action: str, request: ApprovalRequest) -> str:
    for name, value in request.arguments.items():
        if isinstance(value, str) and len(value) > _TARGET_CHARS_MAX and action.endswith(value):
            return f"{action.removesuffix(value)}(the {name})"
    return action


BY: Final = "terminal"


class TerminalApprover:
    """Asks on the keyboard; remembers `always` answers by session and digest of the call.

    Threat: `always` was granted for one session, and the shell may continue with another.
    Agents that run in parallel ask one after another.
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
        call = (request.session_id, request.digest)
        with self._lock:
            before = self._always.get(call)
            if before is not None:
                return Approval(True, f"{BY} (always, since {before})")
            said, question_id = self._ask(request, BRIEF)
            if said is Choice.EXPAND:
                said, question_id = self._ask(request, WHOLE)
            if said is Choice.ALWAYS:
                self._always[call] = question_id
        if isinstance(said, Silence):
            too_late = f"no answer within {self._timeout_s:g} s"
            note = too_late if said is Silence.TOO_LATE else said.value
            return Approval(False, BY, ApprovalUnavailableError.code, note)
        return Approval(said in {Choice.YES, Choice.ALWAYS}, BY)

    def _ask(self, request: ApprovalRequest, extent: Extent) -> tuple[Choice | Silence, str]:
        question_id = f"Q{next(self._numbers)}"
        preview = self._previews(request, extent.lines_max)
        question = question_for(request, question_id, preview, extent, self._timeout_s)
        answer = self._keyboard.answer(question)
        if isinstance(answer, Silence):
            return answer, question_id
        # Threat: an answer to an earlier question arrives while another one is shown.
        counts = answer.question_id == question_id and answer.choice in question.choices
        return answer.choice if counts else Choice.NO, question_id


# Threat: a command is padded until its end leaves the screen, hides a part behind invisible
# characters, reverses its order with direction overrides, or uses a look-alike letter of
# another alphabet. A person approves what they see, so all of it must be visible.

_SPACES: Final = lazy_pattern("(?<=[^ ]) {5,}| {41,}")
"""Runs of spaces that pad text; an indentation does not."""
_NAMED_MAX: Final = 6


_WIDE: Final = lazy_pattern(r"(?<=.\S) {41,}(?=\S)")
"""Runs of spaces in a diff that push the rest of a row out of sight; not its indentation."""


class Revealed(Struct, frozen=True):
    rows: tuple[str, ...]
    notices: tuple[str, ...]


def reveal(text: str, hiding: re.Pattern[str] = _SPACES) -> Revealed:
    """Escape `text` line by line for a question, with notices of unusual characters.

    `hiding` matches the runs of spaces to mark: `_WIDE` in a diff, where indentation matters.
    """
    found = [show_unseen(each) for each in text.split("\n")]
    marked = [hiding.subn(lambda run: f"⟨{len(run[0])} spaces⟩", each) for each, _ in found]
    escaped, padded = (sum(count for _, count in each) for each in (found, marked))
    notices: list[str] = []
    if escaped:
        who = "1 character is" if escaped == 1 else f"{escaped} characters are"
        notices.append(f"{who} invisible, and shown as \\xNN or \\uNNNN")
    foreign = _foreign(text)
    if foreign:
        notices.append(f"non-ASCII characters: {foreign}")
    if padded:
        said = "1 run of spaces is" if padded == 1 else f"{padded} runs of spaces are"
        notices.append(f"{said} shown as ⟨N spaces⟩")
    return Revealed(tuple(row for row, _ in marked), tuple(notices))


def _foreign(text: str) -> str:
    if text.isascii():
        return ""
    counts = Counter(each for each in text if not each.isascii() and is_seen(each))
    named = [
        f"{count} × U+{ord(each):04X} {unicodedata.name(each, 'without a name').lower()}"
        for each, count in counts.most_common(_NAMED_MAX)
    ]
    more = len(counts) - len(named)
    return ", ".join([*named, f"and {more} more kinds"] if more > 0 else named)
