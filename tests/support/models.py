"""What tests of models have in common: requests, a sink that listens, time that does not pass."""

from paddock.policy.settings import ProviderSettings
from paddock.providers.choice import open_provider
from paddock.providers.gateway import Gateway, RetryLimits
from paddock.values.models import (
    ModelRequest,
    OutputSchema,
    ToolAnswer,
    ToolAnswers,
    ToolSchema,
    UserMessage,
)

KEY = "sk-test-0123456789abcdef"

LIST_FILES = ToolSchema(
    "list_files",
    "List the files of a directory.",
    {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Where."}},
        "required": [],
        "additionalProperties": False,
    },
)
READ_FILE = ToolSchema(
    "read_file",
    "Read a file.",
    {
        "type": "object",
        "properties": {"path": {"type": "string", "description": "Which."}},
        "required": ["path"],
        "additionalProperties": False,
    },
)
CLASSIFY = OutputSchema(
    "classify",
    {
        "type": "object",
        "properties": {
            "speech_act": {"type": "string", "enum": ["question", "command"]},
            "ambiguity": {"type": "number", "minimum": 0, "maximum": 1},
        },
        "required": ["speech_act", "ambiguity"],
        "additionalProperties": False,
    },
)


def asking(text: str = "what is here?", *, tools=(LIST_FILES, READ_FILE), **more) -> ModelRequest:
    """A conversation of one question."""
    return ModelRequest((UserMessage(text),), tools=tools, **more)


def answered(
    turn,
    content: str = "a.txt",
    *,
    asked: str = "what is here?",
    is_error: bool = False,
    **more,
) -> ModelRequest:
    """The conversation after `turn`, each of its calls answered with `content`."""
    answers = tuple(ToolAnswer(call.id, call.name, content, is_error) for call in turn.tool_calls)
    return ModelRequest(
        (UserMessage(asked), turn.message, ToolAnswers(answers)),
        tools=(LIST_FILES, READ_FILE),
        **more,
    )


class Listener:
    """A sink that remembers: the text since the last restart, and everything."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.all_pieces: list[str] = []
        self.restarts = 0

    def text(self, piece: str) -> None:
        self.pieces.append(piece)
        self.all_pieces.append(piece)

    def restarted(self) -> None:
        self.pieces.clear()
        self.restarts += 1


class Waits:
    """Waiting that takes no time. `cancels_at`: the wait of that number is cancelled."""

    def __init__(self, cancels_at: int | None = None) -> None:
        self.seconds: list[float] = []
        self._cancels_at = cancels_at

    def __call__(self, seconds: float, cancel) -> bool:
        self.seconds.append(seconds)
        return len(self.seconds) == self._cancels_at


def middle() -> float:
    """A draw that is always in the middle."""
    return 0.5


def gateway(provider, waits: Waits | None = None, **limits) -> Gateway:
    """A gateway on which no time passes and nothing is random."""
    return Gateway(provider, waits or Waits(), middle, RetryLimits(**limits))


def settings_for(wire: str, url: str) -> ProviderSettings:
    """Settings for a server on this machine that speaks this API."""
    if wire == "anthropic":
        return ProviderSettings("local", "anthropic", "test-model", url, api_key_env="TEST_KEY")
    return ProviderSettings(
        "local", "openai", "test-model", f"{url}/v1", wire, api_key_env="TEST_KEY"
    )


def provider_for(wire: str, url: str):
    """A provider that asks the server at `url` in this API."""
    return open_provider(settings_for(wire, url), {"TEST_KEY": KEY})
