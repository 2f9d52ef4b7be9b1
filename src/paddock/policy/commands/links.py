"""Which lines make links: behind one, the names of the same line lead elsewhere."""

from collections.abc import Sequence
from typing import Final

from paddock.policy.commands.commandline import CommandLine, program_name

_LINKING: Final = frozenset({"ln", "link"})
_COPYING: Final = frozenset({"cp", "gcp"})
_LONG: Final = ("--symbolic-link", "--link")
_TO_OTHERS: Final = "--link-dest"
"""With it rsync links to files of another directory."""


def makes_link(line: CommandLine) -> bool:
    """Whether a command of the line makes a symbolic or a hard link, as far as its words tell."""
    return any(
        _links([word.text for word in reading.all_words()])
        for command in line.commands
        for reading in command.readings
    )


def _links_copies(words: Sequence[str]) -> bool:
    """Whether cp, given these words, makes links: `-s`, `-l`, and the long ones, cut short or not.

    A letter in the value of another option counts, too: it is asked about once too often.
    """
    options = [word for word in words if word.startswith("-")]
    return any(
        any(long.startswith(word) for long in _LONG if word != "--")
        if word.startswith("--")
        else not {"s", "l"}.isdisjoint(word)
        for word in options
    )


def _links(words: Sequence[str]) -> bool:
    name, rest = program_name(words[0]), words[1:]
    if name in _COPYING:
        return _links_copies(rest)
    if name == "rsync":
        return any(len(word) > 4 and _TO_OTHERS.startswith(word.partition("=")[0]) for word in rest)
    return name in _LINKING
