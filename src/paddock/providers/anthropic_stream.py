"""A streamed message of the Messages API, put together event by event.

Blocks are kept as they came: thinking and its signature go back unchanged. The
arguments of a call are kept as the text that arrived; the SDK's helper would
complete a cut one silently.
"""

from collections.abc import Mapping
from typing import Final

from paddock.providers.failures import FailureKind, ProviderError
from paddock.providers.wire_json import as_map, as_text
from paddock.text.show import quote
from paddock.values.calls import Json

RAW_INPUT: Final = "raw_input"
"""Our member of an assembled tool_use block: its arguments as text, or, where a piece was
not understood, what came."""

_TEXT_DELTAS: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
}
_EVENTS: Final = frozenset(
    {
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    }
)


def _out_of_order(what: str) -> ProviderError:
    return ProviderError(f"anthropic sent {what}", kind=FailureKind.BROKEN)


class MessageAssembly:
    """message_start, then blocks one after another or beside each other, then the end."""

    def __init__(self) -> None:
        self._message: dict[str, Json] | None = None
        self._usage: dict[str, Json] = {}
        self._blocks: dict[int, dict[str, Json]] = {}
        self._parts: dict[int, dict[str, list[str]]] = {}
        """Of the open blocks: member → the pieces of its text so far."""
        self._inputs: dict[int, list[Json]] = {}
        """Of the open blocks with arguments: their pieces so far, each of which should be text."""
        self._is_complete = False
        self._is_exact = True

    def done(self) -> None:
        """Not a word of this API: its last event says that it is the last."""

    @property
    def is_complete(self) -> bool:
        return self._is_complete

    def feed(self, event: Mapping[str, Json]) -> str:
        """Take one event; the text in it.

        Raises: ProviderError for an event that cannot come now.
        """
        kind = as_text(event.get("type"))
        if kind not in _EVENTS:
            return ""  # New kinds may be added to the API; none of them ends a message.
        if self._is_complete or (self._message is None) != (kind == "message_start"):
            raise _out_of_order(f"{kind} out of order")
        if kind == "message_start":
            self._start(as_map(event.get("message")))
        elif kind == "content_block_start":
            return self._open(event)
        elif kind == "content_block_delta":
            return self._extend(event)
        elif kind == "content_block_stop":
            self._close(self._index(event))
        elif kind == "message_delta":
            self._end(event)
        elif self._parts:
            raise _out_of_order("message_stop before the end of a block")
        else:
            self._is_complete = True
        return ""

    def message(self) -> Mapping[str, Json]:
        """The whole message. `is_exact` false: a piece was not understood and is missing."""
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        return {
            **(self._message or {}),
            "content": blocks,
            "usage": self._usage or None,
            "is_exact": self._is_exact,
        }

    def _start(self, message: Mapping[str, Json]) -> None:
        self._message = dict(message)
        self._usage.update(as_map(message.get("usage")))

    def _index(self, event: Mapping[str, Json]) -> int:
        index = event.get("index")
        if not isinstance(index, int) or index not in self._parts:
            raise _out_of_order(f"a part of block {quote(index)}, which is not open")
        return index

    def _open(self, event: Mapping[str, Json]) -> str:
        index = event.get("index")
        if not isinstance(index, int) or index in self._blocks:
            raise _out_of_order(f"block {quote(index)} twice")
        block = dict(as_map(event.get("content_block")))
        self._blocks[index] = block
        self._parts[index] = {}
        for member in _TEXT_DELTAS.values():
            if as_text(block.get(member)):
                self._parts[index][member] = [as_text(block[member])]
        return as_text(block.get("text")) if block.get("type") == "text" else ""

    def _extend(self, event: Mapping[str, Json]) -> str:
        index = self._index(event)
        delta = as_map(event.get("delta"))
        kind = as_text(delta.get("type"))
        if kind == "input_json_delta":
            piece = delta.get("partial_json")
            self._inputs.setdefault(index, []).append("" if piece is None else piece)
        elif self._blocks[index].get("type") == "tool_use":
            # Threat: a call whose arguments came in words that nobody knows would run
            # without them.
            self._inputs.setdefault(index, []).append(dict(delta))
            self._is_exact = False
        elif kind in _TEXT_DELTAS:
            member = _TEXT_DELTAS[kind]
            text = as_text(delta.get(member))
            self._parts[index].setdefault(member, []).append(text)
            return text if kind == "text_delta" else ""
        elif kind == "citations_delta":
            block = self._blocks[index]
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        else:
            self._is_exact = False
        return ""

    def _close(self, index: int) -> None:
        for member, pieces in self._parts.pop(index).items():
            self._blocks[index][member] = "".join(pieces)
        if index in self._inputs:
            given = self._inputs.pop(index)
            texts = [piece for piece in given if isinstance(piece, str)]
            self._blocks[index][RAW_INPUT] = "".join(texts) if len(texts) == len(given) else given

    def _end(self, event: Mapping[str, Json]) -> None:
        if self._message is not None:
            self._message.update(as_map(event.get("delta")))
        given = as_map(event.get("usage"))
        self._usage.update({name: count for name, count in given.items() if count is not None})
