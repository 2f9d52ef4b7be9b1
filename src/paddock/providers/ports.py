"""What a provider is, what a caller may hand to it, and what is asked of it as JSON."""

from typing import Protocol

from msgspec import to_builtins

from paddock.text.json import canonical_json
from paddock.values.calls import Cancel, Json
from paddock.values.entries import digest_of
from paddock.values.models import Message, ModelRequest, ModelTurn


class TextSink(Protocol):
    """Where text goes while it arrives. Called in the thread that called `route`."""

    def text(self, piece: str) -> None:
        """The next piece of the answer, never empty."""
        ...

    def restarted(self) -> None:
        """What came so far is void: the request is sent again from the start."""
        ...


class Provider(Protocol):
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

    def close(self) -> None:
        """Let go of connections and threads. Twice is harmless."""
        ...


# For sessions that are resumed, for digests and scripts.


def message_as_json(message: Message) -> dict[str, Json]:
    """One message: `role` is `user`, `assistant` or `tools`."""
    return to_builtins(message, enc_hook=dict)


def request_text(request: ModelRequest) -> str:
    return canonical_json(to_builtins(request, enc_hook=dict))


def request_digest(request: ModelRequest) -> str:
    """`sha256:…` of the request: equal exactly for equal requests."""
    return digest_of(request_text(request).encode("utf-8", "surrogatepass"))
