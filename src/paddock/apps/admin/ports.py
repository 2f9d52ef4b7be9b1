"""What the shell asks of a terminal: somewhere to show things, and somebody who types."""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from typing import Final, Protocol

from paddock.agent.results import TurnResult
from paddock.apps.admin.blocks import Block
from paddock.apps.admin.completion import Vocabulary
from paddock.apps.admin.status import Status

_SURROGATE: Final = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Typed:
    """A message, or a command. It may have several lines."""

    text: str


@dataclass(frozen=True, slots=True)
class Interrupted:
    """Ctrl-C on an empty line."""


@dataclass(frozen=True, slots=True)
class Ended:
    """Ctrl-D, or the end of the input."""


Said = Typed | Interrupted | Ended


class Choice(Enum):
    """What can be answered to a question; each by its word or its first letter."""

    YES = "yes"
    NO = "no"
    ALWAYS = "always"
    EXPAND = "expand"


@dataclass(frozen=True, slots=True)
class Question:
    """Something that is asked. `id` is its own: an answer to another counts for nothing."""

    id: str
    blocks: tuple[Block, ...]
    keys: Block
    """What can be typed."""
    prompt: str
    choices: tuple[Choice, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    question_id: str
    choice: Choice


class Silence(Enum):
    """Why there is no answer."""

    NOBODY = "no terminal to ask on"
    TOO_LATE = "too late"
    LEFT = "nobody is there any more"


class Screen(Protocol):
    """Where things are shown. Every method may be called from any thread."""

    def show(self, block: Block) -> None:
        """Below everything that was shown, for good."""
        ...

    def live(self, text: str) -> None:
        """What is not a whole line yet; it gives way to the next. "" is nothing."""
        ...

    def status(self, status: Status) -> None: ...

    def answered(self, result: TurnResult) -> None:
        """A turn is over; all of its text was shown. For programs."""
        ...


class Keyboard(Protocol):
    """Whoever types. Called from one thread, the shell's."""

    def read(self) -> Said:
        """Wait for a message. Raises: PaddockError where nothing more can be read."""
        ...

    def answer(self, question: Question) -> Answer | Silence:
        """Show the question, drop what was typed before, and wait for an answer."""
        ...

    def learn(self, known: Vocabulary) -> None:
        """What can be completed from now on."""
        ...

    def interrupting(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """While the block runs, Ctrl-C calls `stop`, in a thread of its own."""
        ...


def is_text(typed: str) -> bool:
    """Whether all of it is text: what is no character was read as a lone surrogate (PEP 383)."""
    return typed.isascii() or _SURROGATE.search(typed) is None


def parse_choice(text: str, choices: tuple[Choice, ...]) -> Choice:
    """What was typed, as a choice. Anything else, and nothing at all, is a no."""
    said = text.strip().lower()
    for choice in choices:
        if said in {choice.value, choice.value[0]}:
            return choice
    return Choice.NO
