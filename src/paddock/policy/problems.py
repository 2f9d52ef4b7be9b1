"""What is wrong with a policy text: one problem, many problems, a hint.

Patterns and values raise `PatternError`, which knows no place; the reader of a
file adds the place and collects. A file with any problem does not load: the
collector ends as one `ConfigError` that names the first and counts the others.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from paddock.errors import ConfigError
from paddock.limits import message_value_chars_max
from paddock.text.show import cut

LISTED_PROBLEMS_MAX = 5
"""Further problems that a message names after the first; the rest is counted."""


class PatternError(ValueError):
    """A pattern, an action or a value that cannot be used, without its place."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a file does not load. `line` is 1-based; 0 means the whole file."""

    message: str
    line: int
    hint: str = ""


def quote_toml(value: object) -> str:
    """Return `value` as it goes into a message: quoted, escaped, cut with the cut stated.

    Limits: `message_value_chars_max` characters.
    """
    if isinstance(value, (dict, list)):
        return "a table" if isinstance(value, dict) else "an array"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:
        return "an integer too long to print"  # sys.set_int_max_str_digits
    if text.startswith("'"):
        # A policy is written with double quotes; repr prefers single ones.
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    return cut(text, message_value_chars_max)


def suggest(word: str, known: Iterable[str]) -> str:
    """Return a hint for a word that is not known: the nearest ones, else all of them."""
    from difflib import get_close_matches  # noqa: PLC0415 - for errors alone, and costly

    options = sorted(set(known))
    near = get_close_matches(word[:message_value_chars_max], options, n=2, cutoff=0.6)
    if near:
        return "did you mean " + " or ".join(quote_toml(option) for option in near) + "?"
    if not options:
        return ""
    return "known are " + ", ".join(options)


def fail(file: str, problems: list[Problem]) -> NoReturn:
    """Raise the one `ConfigError` for all `problems` of `file`, by line.

    `where` is `file:line` of the first; the message counts the others and the
    hint lists some of them.
    """
    ordered = sorted(problems, key=_line)
    first, others = ordered[0], ordered[1:]
    message = first.message
    hints = [first.hint] if first.hint else []
    if others:
        message += f" (and {len(others)} more)"
        shown = others[:LISTED_PROBLEMS_MAX]
        hints.extend(f"also {place_text(file, other.line)}: {other.message}" for other in shown)
        if len(others) > len(shown):
            hints.append(f"{len(others) - len(shown)} problems are not listed")
    hint = (
        "; ".join(hints) or "`paddock init` in an empty directory writes a file of the right form"
    )
    raise ConfigError(message, where=place_text(file, first.line), hint=hint)


def place_text(file: str, line: int) -> str:
    """Return `file:line`, or the file alone where there is no line."""
    return f"{file}:{line}" if line else file


def _line(problem: Problem) -> int:
    return problem.line
