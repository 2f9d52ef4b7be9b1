"""What happens in a turn, shown while it happens."""

from typing import Final

from paddock.agent.events import (
    CallDecided,
    CallFinished,
    CallPrinted,
    CallStarted,
    Event,
    Noticed,
    TextPiece,
    TextVoid,
)
from paddock.agent.results import TurnOutcome, TurnResult
from paddock.apps.admin.blocks import SPOKEN, Look, Span, line, spoken
from paddock.apps.admin.calls import Calls
from paddock.apps.admin.ports import Screen

_PARTIAL_CHARS_MAX: Final = 4_000
"""Of a line that does not end; then what is there is shown for good."""
WORKING: Final = "… working; Ctrl-C cancels"


class TurnView:
    """Hears the events of a session. Text comes line by line, the last one as it grows."""

    def __init__(self, screen: Screen, calls: Calls) -> None:
        self._screen = screen
        self._calls = calls
        self._partial = ""
        self._said = ""
        """The text of the model turn that is coming in, or came in last."""

    def begin(self) -> None:
        self._partial = self._said = ""
        self._screen.live(WORKING)

    def heard(self, event: Event) -> None:
        match event:
            case TextPiece():
                self._piece(event.text)
            case TextVoid():
                self._void()
            case CallDecided():
                self._calls.decided(event)
            case CallStarted():
                self._flush()
                self._said = ""
                self._screen.live(f"… {event.tool} runs; Ctrl-C cancels")
            case CallPrinted():
                self._screen.live(f"… {event.line}")
            case CallFinished():
                self._flush()
                self._said = ""
                self._screen.show(self._calls.finished(event).as_line())
                self._screen.live(WORKING)
            case Noticed():
                self._flush()
                self._screen.show(line(Span("note: ", Look.WARN), event.text))
            case _:
                return

    def end(self, result: TurnResult) -> None:
        """A turn is over: what was not shown of its answer, and how it ended."""
        self._flush()
        self._screen.live("")
        if result.was_cancelled:
            self._screen.show(line(Span("cancelled", Look.WARN)))
        elif result.outcome is not TurnOutcome.SUCCESS:
            self._screen.show(spoken(result.response, Look.WARN))
            self._screen.show(line(Span(f"[{result.outcome.value}]", Look.WARN)))
        elif self._said.strip() != result.response.strip():
            self._screen.show(spoken(result.response))
        if result.tools_withheld:
            self._screen.show(line(Span("note: ", Look.WARN), result.note))

    def give_up(self) -> None:
        """A turn ended in an error."""
        self._flush()
        self._screen.live("")

    # Text

    def _piece(self, piece: str) -> None:
        self._said += piece
        # A line end may come in two pieces.
        text = (self._partial + piece).replace("\r\n", "\n")
        *whole, partial = text.split("\n")
        for each in whole:
            self._screen.show(spoken(each))
        if len(partial) > _PARTIAL_CHARS_MAX:
            self._screen.show(spoken(partial))
            partial = ""
        self._partial = partial
        self._screen.live(f"{SPOKEN}{partial}" if partial else WORKING)

    def _void(self) -> None:
        was_shown = bool(self._said.strip())
        self._flush()
        self._said = ""
        if was_shown:
            said = "what came above is void: the connection broke, and the model is asked again"
            self._screen.show(line(Span("note: ", Look.WARN), said))

    def _flush(self) -> None:
        """What stands in the last line is all of it."""
        if self._partial.strip():
            self._screen.show(spoken(self._partial))
        self._partial = ""
