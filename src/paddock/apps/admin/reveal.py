"""Text in a question, with everything in it that a person would not see made visible. Pure.

Threat: a command is padded until its end leaves the screen, hides a part behind
invisible characters, turns its order with direction overrides, or carries a letter of
another alphabet that looks like the one that is expected. A person says yes to what they
see, so they must see all of it.
"""

import re
import unicodedata
from collections import Counter
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.text.show import is_seen, show_unseen

_SPACES: Final = lazy_pattern("(?<=[^ ]) {5,}| {41,}")
"""What pads; an indentation does not."""
_NAMED_MAX: Final = 6


WIDE: Final = lazy_pattern(r"(?<=.\S) {41,}(?=\S)")
"""What takes the rest of a row of a diff out of sight: behind its mark and more than that."""


class Revealed(Struct, frozen=True):
    rows: tuple[str, ...]
    notices: tuple[str, ...]


def reveal_exactly(text: str) -> Revealed:
    found = [show_unseen(each) for each in text.split("\n")]
    escaped = sum(count for _, count in found)
    notices: list[str] = []
    if escaped:
        who = "1 character is" if escaped == 1 else f"{escaped} characters are"
        notices.append(f"{who} not to be seen, and shown as \\xNN or \\uNNNN")
    foreign = _foreign(text)
    if foreign:
        notices.append(f"not all of it is ASCII: {foreign}")
    return Revealed(tuple(row for row, _ in found), tuple(notices))


def reveal(text: str, hiding: re.Pattern[str] = _SPACES) -> Revealed:
    """`text` for a question: escaped, line by line, with notices of what was odd.

    `hiding` is what of its spaces is told, `WIDE` of a diff: indentation counts there.
    """
    shown = reveal_exactly(text)
    told = [hiding.subn(lambda found: f"⟨{len(found[0])} spaces⟩", each) for each in shown.rows]
    padded = sum(count for _, count in told)
    return Revealed(tuple(row for row, _ in told), (*shown.notices, *_padding(padded)))


def _padding(runs: int) -> tuple[str, ...]:
    if not runs:
        return ()
    said = "1 run of spaces is" if runs == 1 else f"{runs} runs of spaces are"
    return (f"{said} shown as ⟨N spaces⟩",)


def _foreign(text: str) -> str:
    if text.isascii():
        return ""
    counts = Counter(each for each in text if not each.isascii() and is_seen(each))
    named = [
        f"{count} × U+{ord(each):04X} {unicodedata.name(each, 'without a name').lower()}"
        for each, count in counts.most_common(_NAMED_MAX)
    ]
    more = len(counts) - len(named)
    return ", ".join([*named, f"and {more} more kinds"] if more > 0 else named)
