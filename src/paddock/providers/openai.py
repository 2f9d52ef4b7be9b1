"""OpenAI's models, and any server that speaks one of OpenAI's APIs, by the official SDK."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from paddock import limits
from paddock.providers.answer_tool import Issue, issue_name
from paddock.providers.failures import no_address
from paddock.providers.keys import Key
from paddock.providers.openai_chat import COMPATIBLE, OFFICIAL, ChatWire
from paddock.providers.openai_responses import ResponsesWire
from paddock.providers.own_headers import OwnHeaders
from paddock.providers.sdk import SdkErrors
from paddock.providers.sdk_provider import Client, SdkProvider

if TYPE_CHECKING:
    import httpx2

Api = Literal["responses", "chat"]
ADDRESS: Final = "https://api.openai.com/v1"
DEFAULT_MODEL: Final = "gpt-6.1-terra"


@dataclass(frozen=True, slots=True)
class _Server:
    """Where requests go, and by which way."""

    base_url: str
    transport: "httpx2.AsyncBaseTransport | None"
    takes_ambient: bool

    def connect(self, key: Key, api: Api) -> Client:
        """Load the SDK and make its client. Raises: ConfigError."""
        import httpx2
        import openai

        from paddock.providers.error_bodies import cut_error

        errors = SdkErrors(
            status=openai.APIStatusError,
            timeout=openai.APITimeoutError,
            connection=openai.APIConnectionError,
            base=openai.OpenAIError,
            transport=httpx2.HTTPError,
        )
        # Threat: a server that answers with another address would be sent there the whole
        # conversation again.
        credential = {"authorization": f"Bearer {key.reveal()}"}
        own = () if self.takes_ambient else (OwnHeaders(credential),)
        http = openai.DefaultAsyncHttpxClient(
            transport=self.transport,
            follow_redirects=False,
            event_hooks={"request": [*own], "response": [cut_error]},
        )
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
            raise no_address(self.base_url, error, "http://127.0.0.1:11434/v1") from None
        return Client(sdk, sdk.responses if api == "responses" else sdk.chat.completions, errors)


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
    takes_ambient: bool = False,
) -> SdkProvider:
    """A provider for one model. `base_url` names a server of one's own.

    `takes_ambient` sends there too what the SDK finds in the environment besides the key.
    """
    wanted = model or DEFAULT_MODEL
    server = _Server(base_url or ADDRESS, transport, takes_ambient)
    if api == "responses":
        return SdkProvider("openai", wanted, _Responses(wanted, server), key)
    form = COMPATIBLE if base_url else OFFICIAL
    return SdkProvider("openai", wanted, _Chat(wanted, form, issue, server), key)
