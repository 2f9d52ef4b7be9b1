"""What a provider is, and what a caller may hand to it."""

from typing import Protocol

from paddock.values.calls import Cancel
from paddock.values.models import ModelRequest, ModelTurn


class TextSink(Protocol):
    """Where text goes while it arrives. Called in the thread that called `route`."""

    def text(self, piece: str) -> None:
        """The next piece of the answer, never empty."""
        ...

    def restarted(self) -> None:
        """What came so far is void: the request is sent again from the start."""
        ...


class Router(Protocol):
    """Answers requests, from several threads at once if need be."""

    @property
    def name(self) -> str:
        """The kind of provider: `builtin`, `scripted`, `anthropic`, `openai`."""
        ...

    @property
    def model(self) -> str: ...

    def route(
        self,
        request: ModelRequest,
        *,
        on_text: TextSink | None = None,
        cancel: Cancel | None = None,
    ) -> ModelTurn:
        """The model's turn. Cancelled: a turn with `Stop.CANCELLED` and the text so far.

        Raises: ProviderError where there is no turn.
        """
        ...


class Provider(Router, Protocol):
    """One that has connections or threads of its own."""

    def close(self) -> None:
        """Let go of connections and threads. Twice is harmless."""
        ...
