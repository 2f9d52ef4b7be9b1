"""What was said in a session, turn by turn, for the requests of the next turn."""

from dataclasses import dataclass

from paddock import limits
from paddock.providers.estimate import MESSAGE_TOKENS
from paddock.providers.transcript import message_as_json
from paddock.values.models import AssistantMessage, Message, UserMessage


@dataclass(frozen=True, slots=True)
class Fitted:
    """Messages that fit, and how many of the oldest turns are left out."""

    messages: tuple[Message, ...]
    turns_left_out: int = 0


class Conversation:
    """The messages of each turn, oldest first. Not shared between threads."""

    def __init__(self) -> None:
        self._turns: list[tuple[Message, ...]] = []

    def add(self, messages: tuple[Message, ...]) -> None:
        self._turns.append(messages)

    def fit(self, tokens_max: int) -> Fitted:
        """As many whole turns as fit, the newest first of all."""
        kept: list[tuple[Message, ...]] = []
        left = tokens_max
        for turn in reversed(self._turns):
            left -= sum(map(_tokens, turn))
            if left < 0:
                break
            kept.append(turn)
        missing = len(self._turns) - len(kept)
        messages = tuple(message for turn in reversed(kept) for message in turn)
        if missing:
            note = UserMessage(f"[{missing} earlier turns of this session are not repeated here]")
            messages = (note, *messages)
        return Fitted(messages, missing)


def said(user_message: str, response: str) -> tuple[Message, ...]:
    """A turn of which nothing but its two ends is kept."""
    return (UserMessage(user_message), AssistantMessage(response))


def _tokens(message: Message) -> int:
    size = len(str(message_as_json(message)).encode("utf-8", "surrogatepass"))
    return size // limits.model_bytes_per_token + MESSAGE_TOKENS
