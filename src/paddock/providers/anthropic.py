"""Anthropic's models, by the Messages API and the official SDK."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from paddock import limits
from paddock.providers.answer_tool import issue_name
from paddock.providers.anthropic_wire import AnthropicWire
from paddock.providers.failures import no_address
from paddock.providers.keys import Key
from paddock.providers.own_headers import OwnHeaders
from paddock.providers.sdk import SdkErrors
from paddock.providers.sdk_provider import Client, SdkProvider
from paddock.values.calls import Json

if TYPE_CHECKING:
    import httpx2

ADDRESS: Final = "https://api.anthropic.com"
DEFAULT_MODEL: Final = "claude-opus-5-5"
# The conversation so far is read from the service's cache in the next request.
_CACHED: Final[Mapping[str, Json]] = {"cache_control": {"type": "ephemeral"}}


@dataclass(frozen=True, slots=True)
class _Wire(AnthropicWire):
    """The API's words, and where they are sent."""

    base_url: str
    transport: "httpx2.AsyncBaseTransport | None"
    takes_ambient: bool

    def connect(self, key: Key) -> Client:
        """Load the SDK and make its client. Raises: ConfigError."""
        import anthropic
        import httpx2

        from paddock.providers.error_bodies import cut_error

        errors = SdkErrors(
            status=anthropic.APIStatusError,
            timeout=anthropic.APITimeoutError,
            connection=anthropic.APIConnectionError,
            base=anthropic.AnthropicError,
            transport=httpx2.HTTPError,
        )
        # Threat: a server that answers with another address would be sent there the whole
        # conversation again.
        own = () if self.takes_ambient else (OwnHeaders({"x-api-key": key.reveal()}),)
        http = anthropic.DefaultAsyncHttpxClient(
            transport=self.transport,
            follow_redirects=False,
            event_hooks={"request": [*own], "response": [cut_error]},
        )
        try:
            sdk = anthropic.AsyncAnthropic(
                api_key=key.reveal(),
                base_url=self.base_url,
                timeout=anthropic.Timeout(limits.model_silence_timeout_s, connect=10.0),
                # The gateway retries, within a budget; the SDK would wait as long as it is told.
                max_retries=0,
                http_client=http,
                # What is said goes to the provider and into the ledger, and to no collector.
                open_telemetry=False,
            )
        except (ValueError, httpx2.InvalidURL) as error:
            raise no_address(self.base_url, error, "http://127.0.0.1:8080") from None
        return Client(sdk, sdk.messages, errors)


def anthropic_provider(
    model: str,
    key: Key,
    *,
    base_url: str = "",
    transport: "httpx2.AsyncBaseTransport | None" = None,
    takes_ambient: bool = False,
) -> SdkProvider:
    """A provider for one model. `base_url` names a server of one's own.

    `takes_ambient` sends there too what the SDK finds in the environment besides the key.
    """
    wanted = model or DEFAULT_MODEL
    always = {} if base_url else _CACHED
    wire = _Wire(wanted, issue_name, always, base_url or ADDRESS, transport, takes_ambient)
    return SdkProvider("anthropic", wanted, wire, key)
