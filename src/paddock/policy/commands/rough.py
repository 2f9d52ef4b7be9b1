"""The commands of a line that does not parse, as far as can be seen.

Such a line is an ask already. But a deny must not become an ask because a line
is damaged or too long: here the text is split at whatever could end a command,
quotes and escapes ignored. Nothing from here can ever be allowed.
"""

from typing import Final

from paddock.pattern import lazy_pattern
from paddock.policy.commands.words import Word, bare_word

WINDOW_WORDS: Final = 100
"""Half of what is read as one command."""

_CONTINUATION: Final = lazy_pattern(r"\\\r?\n")
_QUOTING: Final = lazy_pattern(r"""\$?['"]|\\|\x00""")
_ENDS: Final = lazy_pattern(r"[;&|<>(){}`\n\r]+|\$\(|\b(?:then|do|else|elif|if|while|until)\b|!")
_WRITES: Final = lazy_pattern(r">[>|&]*\s*(!?)\s*([^\s;&|<>()]+)")


def rough_commands(text: str) -> list[tuple[Word, ...]]:
    """Return the words of everything in `text` that could be a command."""
    plain = _QUOTING.sub("", _CONTINUATION.sub("", text))
    if "{" in plain:
        # A brace expansion where a program is expected: `{git,push}`.
        plain += "\n" + plain.replace("{", " ").replace(",", " ").replace("}", " ")
    found: list[tuple[Word, ...]] = []
    for part in _ENDS.split(plain):
        words = [bare_word(word, "the line does not parse") for word in part.split()]
        # Windows that overlap, since seeing through a wrapper looks at every later word.
        found.extend(
            tuple(words[start : start + 2 * WINDOW_WORDS])
            for start in range(0, len(words), WINDOW_WORDS)
        )
    return found


def rough_writes(text: str) -> list[str]:
    """Return what could be the target of a redirection in `text`."""
    plain = _QUOTING.sub("", _CONTINUATION.sub("", text))
    # `>! f` writes `f` to zsh, and `!` to bash.
    return [text for match in _WRITES.finditer(plain) for text in (match[2], match[1]) if text]
