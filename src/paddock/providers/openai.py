"""OpenAI's models, and any server that speaks one of OpenAI's APIs, by the official SDK."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from paddock import limits
from paddock.errors import ConfigError
from paddock.providers.answer_tool import Issue, issue_name
from paddock.providers.failures import missing_sdk
from paddock.providers.keys import Key
from paddock.providers.openai_chat import COMPATIBLE, OFFICIAL, ChatWire
from paddock.providers.openai_responses import ResponsesWire
from paddock.providers.sdk import SdkErrors
from paddock.providers.sdk_provider import ApiResponse, Client, SdkProvider
from paddock.text.show import quote
from paddock.values.calls import Json

if TYPE_CHECKING:
    import httpx2
    import openai

Api = Literal["responses", "chat"]
ADDRESS: Final = "https://api.openai.com/v1"
DEFAULT_MODEL: Final = "gpt-6.1-terra"


@dataclass(frozen=True, slots=True)
class _Server:
    """Where requests go, and by which way."""

    base_url: str
    transport: "httpx2.AsyncBaseTransport | None"

    def connect(self, key: Key, api: Api) -> Client:
        """Load the SDK and make its client. Raises: ConfigError."""
        try:
            import httpx2
            import openai
        except ImportError:
            raise missing_sdk("openai") from None
        errors = SdkErrors(
            status=openai.APIStatusError,
            timeout=openai.APITimeoutError,
            connection=openai.APIConnectionError,
            base=openai.OpenAIError,
            transport=httpx2.HTTPError,
        )
        # Threat: a server that answers with another address would be sent there the whole
        # conversation again.
        http = openai.DefaultAsyncHttpxClient(transport=self.transport, follow_redirects=False)
        try:
            sdk = openai.AsyncOpenAI(
                api_key=key.reveal(),
                base_url=self.base_url,
                timeout=openai.Timeout(limits.model_silence_timeout_s, connect=10.0),
                # The gateway retries, within a budget.
                max_retries=0,
                http_client=http,
            )
        except (ValueError, httpx2.InvalidURL) as error:
            raise ConfigError(
                f"base_url {quote(self.base_url)} is no address: {error}",
                hint="such as http://127.0.0.1:11434/v1",
            ) from None
        return _Client(sdk, errors, api)


class _Client:
    """The SDK's client, used for one call of it."""

    def __init__(self, sdk: "openai.AsyncOpenAI", errors: SdkErrors, api: Api) -> None:
        self.errors = errors
        self._sdk = sdk
        self._resource = sdk.responses if api == "responses" else sdk.chat.completions

    @asynccontextmanager
    async def send(self, body: Mapping[str, Json]) -> AsyncGenerator[ApiResponse]:
        """POST the body."""
        resource = cast("Any", self._resource.with_streaming_response)
        async with resource.create(**body) as response:
            yield response

    async def close(self) -> None:
        """Close the connections."""
        await self._sdk.close()


@dataclass(frozen=True, slots=True)
class _Responses(ResponsesWire):
    server: _Server

    def connect(self, key: Key) -> Client:
        """Raises: ConfigError."""
        return self.server.connect(key, "responses")


@dataclass(frozen=True, slots=True)
class _Chat(ChatWire):
    server: _Server

    def connect(self, key: Key) -> Client:
        """Raises: ConfigError."""
        return self.server.connect(key, "chat")


def openai_provider(
    model: str,
    key: Key,
    *,
    api: Api,
    base_url: str = "",
    issue: Issue = issue_name,
    transport: "httpx2.AsyncBaseTransport | None" = None,
) -> SdkProvider:
    """A provider for one model. `base_url` names a server of one's own."""
    wanted = model or DEFAULT_MODEL
    server = _Server(base_url or ADDRESS, transport)
    if api == "responses":
        return SdkProvider("openai", wanted, _Responses(wanted, server), key)
    form = COMPATIBLE if base_url else OFFICIAL
    return SdkProvider("openai", wanted, _Chat(wanted, form, issue, server), key)
