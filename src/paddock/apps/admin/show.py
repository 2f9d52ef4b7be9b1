"""Values to display, independent of terminal, width and colours; and their plain form.

Threat: displayed text may come from a model, a file or a package: every span passes
`shown_text` where it is drawn, and nothing else writes to a screen.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable
from enum import StrEnum
from typing import Final, NamedTuple

from msgspec import Struct

from paddock.agent.events import CallDecided, CallFinished
from paddock.errors import CallCancelledError
from paddock.sandbox.values import Enforcement
from paddock.text.show import show_line
from paddock.values.calls import Json


class TextLook(StrEnum):
    """Style of a piece of text, as rich names it. It adds no meaning: the words carry it."""

    PLAIN = ""
    DIM = "dim"
    STRONG = "bold"
    GOOD = "green"
    BAD = "bold red"
    WARN = "yellow"
    LOUD = "bold reverse red"
    ADDED = "green"
    REMOVED = "red"
    PLACE = "cyan"


class TextSpan(NamedTuple):
    text: str
    look: TextLook = TextLook.PLAIN


Row = tuple[TextSpan, ...]
SPOKEN: Final = "┃ "
"""Precedes every line that a model wrote."""


class ShownText(Struct, frozen=True):
    """Lines that wrap. `gutter` precedes each of them, and their continuations."""

    rows: tuple[Row, ...]
    gutter: str = ""


class ShownTable(Struct, frozen=True):
    rows: tuple[Row, ...]
    head: tuple[str, ...] = ()


class FittedLine(Struct, frozen=True):
    """One line that never wraps: if it is too long, `middle` is cut, with an ellipsis."""

    left: Row
    middle: TextSpan
    right: Row


Block = ShownText | ShownTable | FittedLine


def line(*parts: str | TextSpan, gutter: str = "") -> ShownText:
    return ShownText((row(*parts),), gutter)


def row(*parts: str | TextSpan) -> Row:
    return tuple(part if isinstance(part, TextSpan) else TextSpan(part) for part in parts)


def dim(text: str) -> ShownText:
    return line(TextSpan(text, TextLook.DIM))


def note(text: str) -> ShownText:
    return line(TextSpan("note: ", TextLook.WARN), text)


def lines(text: str, look: TextLook = TextLook.PLAIN, gutter: str = "") -> ShownText:
    return ShownText(tuple((TextSpan(each, look),) for each in text.split("\n")), gutter)


def spoken(text: str, look: TextLook = TextLook.PLAIN) -> ShownText:
    # Threat: a model can imitate Paddock's lines (a decided call, a note, a question), so each
    # of its lines begins with a mark that no line of Paddock begins with.
    return lines(text, look, SPOKEN)


def pairs(rows: Iterable[tuple[str, str | TextSpan]]) -> ShownTable:
    return ShownTable(tuple(row(TextSpan(name, TextLook.DIM), value) for name, value in rows))


def diff_rows(text: str) -> tuple[Row, ...]:
    looks = {"+": TextLook.ADDED, "-": TextLook.REMOVED, "@": TextLook.PLACE}
    return tuple(
        row(
            TextSpan(each, TextLook.DIM)
            if each.startswith(("--- ", "+++ "))
            else TextSpan(each, looks.get(each[:1], TextLook.PLAIN))
        )
        for each in text.split("\n")
    )


KEPT_MAX: Final = 100
"""Calls that `/expand` can show; older ones are in the ledger."""
_VALUE_CHARS_MAX: Final = 200


class ShownCall(Struct, frozen=True):
    number: int
    finished: CallFinished
    decided: CallDecided | None

    @property
    def _decision(self) -> str:
        if self.decided is not None:
            if self.decided.outcome == "ask":
                return f"ask: yes by {self.decided.by or 'unknown'}"
            if self.decided.outcome == "confine" and self.decided.by:
                return f"confine (here: ask): yes by {self.decided.by}"
            return self.decided.outcome
        refusal = self.finished.result.refusal
        code = "" if refusal is None else refusal.code
        if code.startswith("approval."):
            return "ask: no"
        return "deny" if code.startswith("policy.") else "not decided"

    @property
    def _duration(self) -> str:
        if not self.finished.ran:
            return "not run"
        milliseconds = self.finished.duration_us / 1000
        return f"{milliseconds:.0f} ms" if milliseconds < 10_000 else f"{milliseconds / 1000:.0f} s"

    def as_line(self) -> FittedLine:
        """`#1 ok list_files path=HOT/kernel · allow · 3 ms`."""
        mark, outcome = TextSpan("ok", TextLook.GOOD), ""
        refusal = self.finished.result.refusal
        if refusal is not None:
            mark, outcome = TextSpan("no", TextLook.BAD), refusal.code
            if refusal.code == CallCancelledError.code:
                mark = TextSpan("no", TextLook.WARN)
                outcome = f"cancelled: {refusal.hint or 'it changed nothing'}"
        parts = filter(None, (self._decision, outcome, self._duration))
        number = TextSpan(f"  #{self.number} ", TextLook.DIM)
        given = self.finished.arguments
        return FittedLine(
            row(number, mark, " ", TextSpan(self.finished.tool, TextLook.STRONG)),
            TextSpan("".join(f" {name}={_value_text(value)}" for name, value in given.items())),
            row(TextSpan(f" · {' · '.join(parts)}", TextLook.DIM)),
        )

    def in_full(self) -> tuple[Block, ...]:
        finished, decided, refusal = self.finished, self.decided, self.finished.result.refusal
        facts: list[tuple[str, str | TextSpan]] = [
            ("call", finished.call_id),
            ("tool", TextSpan(finished.tool, TextLook.STRONG)),
            ("decision", self._decision),
        ]
        if decided is not None and decided.rule:
            facts.append(("rule", decided.rule))
        facts.append(("status", finished.result.status))
        if refusal is not None:
            facts += [("code", TextSpan(refusal.code, TextLook.BAD)), ("error", refusal.error)]
            facts += [("hint", refusal.hint)] if refusal.hint else []
            if refusal.rule is not None:
                facts.append(("rule", json.dumps(dict(refusal.rule), ensure_ascii=False)))
        facts.append(("duration", self._duration))
        arguments = json.dumps(dict(finished.arguments), indent=2, ensure_ascii=False)
        content = lines(finished.result.content, gutter="  │ ")
        return pairs(facts), lines(arguments, gutter="  "), content


def _value_text(value: Json) -> str:
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)[:_VALUE_CHARS_MAX]
    cut = _cut(value, _VALUE_CHARS_MAX + 1)
    is_word = bool(cut) and not any(each.isspace() or each in "\"'=" for each in cut)
    return cut if is_word else json.dumps(cut, ensure_ascii=False)


class LastCalls:
    def __init__(self) -> None:
        self.last = 0
        """The number of the newest call."""
        self._decided: dict[str, CallDecided] = {}
        self._kept: OrderedDict[int, ShownCall] = OrderedDict()

    def decided(self, event: CallDecided) -> None:
        self._decided[event.call_id] = event

    def finished(self, event: CallFinished) -> ShownCall:
        self.last += 1
        shown = ShownCall(self.last, event, self._decided.pop(event.call_id, None))
        self._kept[self.last] = shown
        if len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        return shown

    def find(self, number: int) -> ShownCall | None:
        return self._kept.get(number)


_FREE: Final = frozenset({"builtin", "scripted"})
_MODEL_CHARS_MIN: Final = 7
_EXACT_BELOW: Final = 10_000
"""Tokens; larger counts are shortened to thousands if space is short."""


class Sandboxed(Struct, frozen=True):
    """How far the kernel confines commands on this host. `refused`: no command runs."""

    enforcement: Enforcement
    backend: str = ""
    refused: bool = False

    def __str__(self) -> str:
        return self.enforcement.value


class StatusLine(Struct, frozen=True):
    """The content of the status line. `tokens_left` None: no limit."""

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
        """Money: "none" or "unknown", since Paddock knows no prices."""
        return "none" if self.provider in _FREE or not self.tokens else "unknown"

    @property
    def badges(self) -> tuple[str, ...]:
        found = ["DEV PLANE"] if self.made_with_dev else []
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
    """Return the status, shortened to `width`; the model's name is cut first."""
    gate = f"dual gate {'open' if status.gate_is_open else 'closed'}"
    sandbox, tokens = f"sandbox {status.sandbox}", f"{status.tokens:,}"

    def full(left: str) -> str:
        model = f"model {status.provider}:{status.model}"
        who = f"agent {status.agent}  profile {status.profile}  {model}"
        return f"{who}  {gate}  {sandbox}  tokens {tokens}{left}  cost {status.cost}"

    def short(model: str) -> str:
        count = tokens if status.tokens < _EXACT_BELOW else f"{status.tokens // 1000:,}k"
        cost = "?" if status.cost == "unknown" else status.cost
        who = f"{status.agent}/{status.profile}  {model}"
        return f"{who}  {gate}  {sandbox}  tokens {count}  cost {cost}"

    left = "" if status.tokens_left is None else f" ({status.tokens_left:,} left)"
    if width is None:
        return full(left)
    room = max(len(status.model) + width - len(short(status.model)), _MODEL_CHARS_MIN)
    cut = short(f"{status.model[: room - 1]}…")
    # Gate and sandbox come first: the rest may be cut.
    last = f"{gate}  {sandbox}  {status.agent}  {status.provider}  {tokens} tokens"
    forms = (full(left), full(""), short(status.model), cut, last)
    return next((form for form in forms if len(form) <= width), last[:width])


_TAB: Final = "    "
_MIDDLE_CHARS_MAX: Final = 100
"""For the middle of a `FittedLine` if no width is known."""
COLUMN_GAP: Final = 2
TABLE_INDENT: Final = 2


def shown_text(text: str) -> str:
    """Return `text` on one line, escaped so that a terminal acts on nothing in it."""
    return show_line(text.replace("\t", _TAB))[0].replace("\n", "\\n")


def plain_lines(block: Block) -> list[str]:
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
    widths: list[int] = []
    for each in rows:
        widths += [0] * (len(each) - len(widths))
        widths[: len(each)] = map(max, widths, map(len, each))
    margin, gap = " " * TABLE_INDENT, " " * COLUMN_GAP
    return [(margin + gap.join(map(str.ljust, each, widths))).rstrip() for each in rows]
