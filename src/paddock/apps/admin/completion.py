"""What can stand at the cursor: commands, tools, arguments. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum, auto

from msgspec import Struct, field


class CompletionCandidate(Struct, frozen=True):
    """One way to go on. `replaces` characters before the cursor give way to `text`."""

    text: str
    replaces: int
    about: str = ""


class Vocabulary(Struct, frozen=True):
    """What there is. `parameters` are the names of each tool's arguments."""

    commands: Mapping[str, str] = field(default_factory=dict[str, str])
    """Each with a word about it."""
    parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """What may follow a command."""


def candidates(before: str, known: Vocabulary) -> Iterator[CompletionCandidate]:
    words = before.split(" ")
    last = words[-1]
    if before.startswith("/"):
        yield from _for_command(words, last, known)
        return
    if len(words) == 1:
        yield from _matching(known.parameters, last, "a tool") if last else ()
        return
    yield from _for_arguments(words[0], last, known)


def _for_command(words: list[str], last: str, known: Vocabulary) -> Iterator[CompletionCandidate]:
    if len(words) == 1:
        for name, about in known.commands.items():
            if f"/{name}".startswith(last):
                yield CompletionCandidate(f"/{name}", len(last), about)
        return
    command = words[0].removeprefix("/")
    if command == "call":
        if len(words) == 2:
            yield from _matching(known.parameters, last, "a tool")
        else:
            yield from _for_arguments(words[1], last, known)
        return
    yield from _matching(known.words.get(command, ()), last)


def _for_arguments(tool: str, last: str, known: Vocabulary) -> Iterator[CompletionCandidate]:
    names = (f"{name}=" for name in known.parameters.get(tool, ()))
    yield from _matching(names, last, "an argument")


def _matching(names: Iterable[str], last: str, about: str = "") -> Iterator[CompletionCandidate]:
    for name in names:
        if name.startswith(last):
            yield CompletionCandidate(name, len(last), about)


class Mode(Enum):
    READING = auto()
    BUSY = auto()
    DRAWING = auto()
    ASKING = auto()
