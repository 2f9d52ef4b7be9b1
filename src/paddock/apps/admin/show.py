"""What can be shown, as values: no colours, no widths, no terminal."""

import json
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from paddock.agent.events import CallDecided, CallFinished
from paddock.errors import CallCancelledError
from paddock.sandbox.values import Enforcement
from paddock.text.show import show_line
from paddock.values.calls import Json, Refusal


class TextLook(StrEnum):
    """What a piece of text is. A look never carries meaning of its own: the words do."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    GOOD = "good"
    BAD = "bad"
    WARN = "warn"
    LOUD = "loud"
    ADDED = "added"
    REMOVED = "removed"
    PLACE = "place"


class TextSpan(NamedTuple):
    """Whatever stands in `text` is escaped when it is drawn."""

    text: str
    look: TextLook = TextLook.PLAIN


Row = tuple[TextSpan, ...]
SPOKEN: Final = "┃ "
"""Before every line of a model's."""


class ShownText(Struct, frozen=True):
    """Lines that wrap. `gutter` stands before each of them, and where they go on."""

    rows: tuple[Row, ...]
    gutter: str = ""


class ShownTable(Struct, frozen=True):
    rows: tuple[Row, ...]
    head: tuple[str, ...] = ()


class FittedLine(Struct, frozen=True):
    """One line that never wraps: where it is too long, `middle` is cut and says so."""

    left: Row
    middle: TextSpan
    right: Row


Block = ShownText | ShownTable | FittedLine


def line(*parts: str | TextSpan, gutter: str = "") -> ShownText:
    return ShownText((row(*parts),), gutter)


def row(*parts: str | TextSpan) -> Row:
    return tuple(part if isinstance(part, TextSpan) else TextSpan(part) for part in parts)


def lines(text: str, look: TextLook = TextLook.PLAIN, gutter: str = "") -> ShownText:
    return ShownText(tuple((TextSpan(each, look),) for each in text.split("\n")), gutter)


def spoken(text: str, look: TextLook = TextLook.PLAIN) -> ShownText:
    """What a model says.

    Threat: it can write lines like ours, a call with its decision, a note, a question; so
    each line of it stands behind a mark that no row of ours begins with.
    """
    return lines(text, look, SPOKEN)


def pairs(rows: Iterable[tuple[str, str | TextSpan]]) -> ShownTable:
    found = (row(TextSpan(name, TextLook.DIM), value) for name, value in rows)
    return ShownTable(tuple(found))


def diff_rows(text: str) -> tuple[Row, ...]:
    """The lines of a unified diff, each with its look; the marks stand there anyway."""
    return tuple((TextSpan(each, _look_of(each)),) for each in text.split("\n"))


def _look_of(diff_line: str) -> TextLook:
    if diff_line.startswith(("--- ", "+++ ")):
        return TextLook.DIM
    looks = {"+": TextLook.ADDED, "-": TextLook.REMOVED, "@": TextLook.PLACE}
    return looks.get(diff_line[:1], TextLook.PLAIN)


KEPT_MAX: Final = 100
"""Calls that `/expand` can show; older ones stand in the ledger."""
_VALUE_CHARS_MAX: Final = 200
_MARKS: Final = {TextLook.GOOD: "ok", TextLook.WARN: "no", TextLook.BAD: "no"}


class ShownCall(Struct, frozen=True):
    number: int
    finished: CallFinished
    decided: CallDecided | None

    @property
    def decision(self) -> str:
        refusal = self.finished.result.refusal
        if self.decided is not None:
            if self.decided.outcome == "ask":
                return f"ask: yes by {self.decided.by or 'nobody'}"
            if self.decided.outcome == "confine" and self.decided.by:
                return f"confine (here: ask): yes by {self.decided.by}"
            return self.decided.outcome
        code = "" if refusal is None else refusal.code
        if code.startswith("approval."):
            return "ask: no"
        return "deny" if code.startswith("policy.") else "not decided"

    @property
    def outcome(self) -> str:
        refusal = self.finished.result.refusal
        if refusal is None:
            return ""
        if refusal.code == CallCancelledError.code:
            return f"cancelled: {refusal.hint or 'it changed nothing'}"
        return refusal.code

    @property
    def duration(self) -> str:
        if not self.finished.ran:
            return "not run"
        milliseconds = self.finished.duration_us / 1000
        return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.0f} s"

    def as_line(self) -> FittedLine:
        """`#1 ok list_files path=HOT/kernel · allow · 3 ms`."""
        look = self._look
        parts = [part for part in (self.decision, self.outcome, self.duration) if part]
        return FittedLine(
            row(
                TextSpan(f"  #{self.number} ", TextLook.DIM),
                TextSpan(_MARKS[look], look),
                " ",
                TextSpan(self.finished.tool, TextLook.STRONG),
            ),
            TextSpan(arguments_text(self.finished.arguments)),
            row(TextSpan(f" · {' · '.join(parts)}", TextLook.DIM)),
        )

    @property
    def _look(self) -> TextLook:
        refusal = self.finished.result.refusal
        if refusal is None:
            return TextLook.GOOD
        return TextLook.WARN if refusal.code == CallCancelledError.code else TextLook.BAD

    def in_full(self) -> tuple[Block, ...]:
        finished, decided = self.finished, self.decided
        facts: list[tuple[str, str | TextSpan]] = [
            ("call", finished.call_id),
            ("tool", TextSpan(finished.tool, TextLook.STRONG)),
            ("decision", self.decision),
        ]
        if decided is not None and decided.rule:
            facts.append(("rule", decided.rule))
        facts += _refusal_facts(finished.result.refusal)
        facts.append(("duration", self.duration))
        arguments = json.dumps(dict(finished.arguments), indent=2, ensure_ascii=False)
        return (
            pairs(facts),
            lines(arguments, gutter="  "),
            lines(finished.result.content, gutter="  │ "),
        )


def _refusal_facts(refusal: Refusal | None) -> list[tuple[str, str | TextSpan]]:
    if refusal is None:
        return [("status", "ok")]
    found: list[tuple[str, str | TextSpan]] = [
        ("status", "error"),
        ("code", TextSpan(refusal.code, TextLook.BAD)),
        ("error", refusal.error),
    ]
    if refusal.hint:
        found.append(("hint", refusal.hint))
    if refusal.rule is not None:
        found.append(("rule", json.dumps(dict(refusal.rule), ensure_ascii=False)))
    return found


def arguments_text(arguments: Mapping[str, Json]) -> str:
    """` path=HOT/kernel depth=2`: a leading space, and a value in quotes where it has spaces."""
    return "".join(f" {name}={_value_text(value)}" for name, value in arguments.items())


def _value_text(value: Json) -> str:
    if isinstance(value, str):
        cut = value if len(value) <= _VALUE_CHARS_MAX else f"{value[:_VALUE_CHARS_MAX]}…"
        is_word = bool(cut) and not any(each.isspace() or each in "\"'=" for each in cut)
        return cut if is_word else json.dumps(cut, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False)[:_VALUE_CHARS_MAX]


class LastCalls:
    def __init__(self) -> None:
        self._decided: dict[str, CallDecided] = {}
        self._kept: OrderedDict[int, ShownCall] = OrderedDict()
        self._count = 0

    def decided(self, event: CallDecided) -> None:
        self._decided[event.call_id] = event

    def finished(self, event: CallFinished) -> ShownCall:
        self._count += 1
        shown = ShownCall(self._count, event, self._decided.pop(event.call_id, None))
        self._kept[self._count] = shown
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return shown

    @property
    def last(self) -> int:
        return self._count

    def find(self, number: int) -> ShownCall | None:
        return self._kept.get(number)


_FREE: Final = frozenset({"builtin", "scripted"})
_GAP: Final = "  "
_UNKNOWN: Final = "unknown"
_MODEL_CHARS_MIN: Final = 7
_EXACT_BELOW: Final = 10_000
"""Tokens; more are counted in thousands where there is little room."""


class Sandboxed(Struct, frozen=True):
    """How far the kernel holds commands on this host. `refused`: none runs at all."""

    enforcement: Enforcement
    backend: str = ""
    refused: bool = False

    def __str__(self) -> str:
        return self.enforcement.value


class StatusLine(Struct, frozen=True):
    """Everything that the status line says. `tokens_left` None: there is no limit."""

    agent: str
    profile: str
    provider: str
    model: str
    gate_is_open: bool
    sandbox: Sandboxed
    tokens: int = 0
    tokens_left: int | None = None
    made_with_dev: bool = False

    @property
    def cost(self) -> str:
        """Money. No prices are known, so it is either nothing or not known."""
        return "none" if self.provider in _FREE or not self.tokens else _UNKNOWN

    @property
    def badges(self) -> tuple[str, ...]:
        found: list[str] = []
        if self.made_with_dev:
            found.append("DEV PLANE")
        if self.gate_is_open:
            found.append("DEVELOPMENT TOOLS ARE ON")
        sandbox = self.sandbox
        if sandbox.enforcement is not Enforcement.FULL:
            said = "commands are refused" if sandbox.refused else f"held by {sandbox.backend}"
            if sandbox.enforcement is Enforcement.NONE and not sandbox.refused:
                said = "commands run unconfined"
            found.append(f"SANDBOX {sandbox.enforcement.value.upper()}: {said}")
        return tuple(found)


def status_text(status: StatusLine, width: int | None = None) -> str:
    left = "" if status.tokens_left is None else f" ({status.tokens_left:,} left)"
    forms = (_long(status, left), _long(status, ""), _short(status, status.model))
    texts = [_GAP.join(form) for form in forms]
    if width is None:
        return texts[0]
    # The model's name gives way before anything else does, but not all of it.
    room = max(len(status.model) + width - len(texts[-1]), _MODEL_CHARS_MIN)
    cut = _GAP.join(_short(status, f"{status.model[: room - 1]}…"))
    texts += [cut, _GAP.join(_shortest(status))]
    return next((text for text in texts if len(text) <= width), texts[-1][:width])


def _long(status: StatusLine, left: str) -> Sequence[str]:
    return (
        f"agent {status.agent}",
        f"profile {status.profile}",
        f"model {status.provider}:{status.model}",
        f"dual gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        f"tokens {status.tokens:,}{left}",
        f"cost {status.cost}",
    )


def _short(status: StatusLine, model: str) -> Sequence[str]:
    return (
        f"{status.agent}/{status.profile}",
        model,
        f"dual gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        f"tokens {_brief(status.tokens)}",
        f"cost {'?' if status.cost == _UNKNOWN else status.cost}",
    )


def _shortest(status: StatusLine) -> Sequence[str]:
    # What is held and what is not comes first: the rest may be cut.
    return (
        f"dual gate {_gate(status)}",
        f"sandbox {status.sandbox}",
        status.agent,
        status.provider,
        f"{status.tokens:,} tokens",
    )


def _brief(tokens: int) -> str:
    return f"{tokens:,}" if tokens < _EXACT_BELOW else f"{tokens // 1000:,}k"


def _gate(status: StatusLine) -> str:
    return "open" if status.gate_is_open else "closed"


# Threat: whatever is shown may have been written by a model, a file or a package: every
# span passes `shown_text` here, and nothing else writes to a screen.

_TAB: Final = "    "
_MIDDLE_CHARS_MAX: Final = 100
"""Of a line that is fitted, where no width is known."""
COLUMN_GAP: Final = 2
TABLE_INDENT: Final = 2


def shown_text(text: str) -> str:
    """`text` on one line, with nothing in it that a terminal would act upon."""
    return show_line(text.replace("\t", _TAB))[0].replace("\n", "\\n")


class PlainDrawing:
    def lines(self, block: Block, width: int = 0) -> list[str]:
        match block:
            case ShownText():
                return [f"{block.gutter}{_plain(each)}".rstrip() for each in block.rows]
            case ShownTable():
                return _columns(block)
            case FittedLine():
                middle = _cut(shown_text(block.middle.text), _MIDDLE_CHARS_MAX)
                return [f"{_plain(block.left)}{middle}{_plain(block.right)}".rstrip()]


def _plain(row: Row) -> str:
    return "".join(shown_text(span.text) for span in row)


def _cut(text: str, chars_max: int) -> str:
    return text if len(text) <= chars_max else f"{text[: chars_max - 1]}…"


def _columns(table: ShownTable) -> list[str]:
    rows = [[shown_text(span.text) for span in each] for each in table.rows]
    if table.head:
        rows.insert(0, list(table.head))
    count = max((len(each) for each in rows), default=0)
    widths = [
        max((len(each[place]) for each in rows if place < len(each)), default=0)
        for place in range(count)
    ]
    margin = " " * TABLE_INDENT
    return [
        (margin + (" " * COLUMN_GAP).join(map(str.ljust, each, widths))).rstrip() for each in rows
    ]
