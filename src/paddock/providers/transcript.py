"""Conversations as JSON and back: for sessions that are resumed, for digests and scripts."""

from msgspec import ValidationError, convert, to_builtins

from paddock.errors import ConfigError
from paddock.text.json import canonical_json
from paddock.values.calls import Json
from paddock.values.entries import digest_of
from paddock.values.models import Message, ModelRequest


def message_as_json(message: Message) -> dict[str, Json]:
    """One message: `role` is `user`, `assistant` or `tools`."""
    return to_builtins(message, enc_hook=dict)


def message_from_json(value: Json, where: str) -> Message:
    """`where` is file and line, for messages. Raises: ConfigError."""
    try:
        return convert(value, Message)
    except (ValidationError, UnicodeEncodeError) as error:
        raise ConfigError(
            f"this is no message of a conversation: {error}",
            where=where,
            hint="it was written by something else, or changed",
        ) from None


def request_text(request: ModelRequest) -> str:
    return canonical_json(to_builtins(request, enc_hook=dict))


def request_digest(request: ModelRequest) -> str:
    """`sha256:…` of the request: equal exactly for equal requests."""
    return digest_of(request_text(request).encode("utf-8", "surrogatepass"))
