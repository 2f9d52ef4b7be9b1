"""Input that is bad in ways that matter: valid documents with something wrong, and noise.

Noise alone is refused at the first byte; what finds defects is the document that is
almost right. Strategies for Hypothesis, used by every door's property.
"""

import copy
import json
import os
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec import Struct

ODD_CHARACTERS = "\0\n\r\t\x1b\x7f\x85\u200b\u202e\u2028\ufeff\ud800\udc80\udcff\U0001f600éß/\\\"'%"
TEXTS = st.one_of(
    st.text(max_size=12),
    st.text(st.characters(), max_size=8),
    st.text(st.sampled_from(ODD_CHARACTERS + "ab. "), max_size=8),
)
"""Surrogates and controls included."""
ARGUMENT_TEXTS = TEXTS.map(
    lambda text: os.fsdecode(text.replace("\0", "").encode("utf-8", "surrogatepass"))
)
"""What execve(2) can hand over: anything but NUL; bytes that are no UTF-8 as surrogates."""

NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.sampled_from([2**31, 2**53, 2**53 + 1, 2**63, -(2**63), 2**64, 10**40, 10**400, 10**4000]),
    st.floats(allow_nan=False, allow_infinity=False),
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)

_DEPTHS = st.sampled_from([2, 31, 33, 65, 300, 900, 990, 1_100, 5_000, 100_000])


@st.composite
def deep(draw: Any) -> str:
    """JSON text (of an object, closed or not) that nests deeper than anyone needs."""
    depth = draw(_DEPTHS)
    opening, closing = draw(st.sampled_from([("[", "]"), ('{"a":', "}")]))
    name = draw(st.sampled_from(["path", "content", "more"]))
    text = f'{{"{name}":' + opening * depth + "0" + closing * depth + "}"
    return text if draw(st.booleans()) else text[: len(text) // 2]


class Nest(Struct, frozen=True, dict=True):
    """A value that nests deeper than anyone needs, for Hypothesis to print as this."""

    depth: int
    is_list: bool

    def unfold(self) -> Any:
        """The value itself."""
        value: Any = 0
        for _ in range(self.depth):
            value = [value] if self.is_list else {"a": value}
        return value


NESTS = st.builds(Nest, _DEPTHS.filter(lambda depth: depth < 100_000), st.booleans())


def unfold(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with every `Nest` in them as what it stands for."""
    return {
        name: value.unfold() if isinstance(value, Nest) else value
        for name, value in arguments.items()
    }


# Bytes


def _flip(draw: Any, content: bytes, tokens: Sequence[bytes]) -> bytes:
    if not content:
        return b"\0"
    at = draw(st.integers(0, len(content) - 1))
    return content[:at] + bytes([content[at] ^ draw(st.integers(1, 255))]) + content[at + 1 :]


def _insert(draw: Any, content: bytes, tokens: Sequence[bytes]) -> bytes:
    at = draw(st.integers(0, len(content)))
    return content[:at] + draw(st.sampled_from(tokens) | st.binary(max_size=4)) + content[at:]


def _replace(draw: Any, content: bytes, tokens: Sequence[bytes]) -> bytes:
    at = draw(st.integers(0, len(content)))
    end = min(len(content), at + draw(st.integers(0, 40)))
    return content[:at] + draw(st.sampled_from([b"", *tokens])) + content[end:]


def _repeat(draw: Any, content: bytes, tokens: Sequence[bytes]) -> bytes:
    at = draw(st.integers(0, len(content)))
    count = draw(st.sampled_from([2, 40, 400, 3_000]))
    return content[:at] + draw(st.sampled_from(tokens)) * count + content[at:]


def _cut(draw: Any, content: bytes, tokens: Sequence[bytes]) -> bytes:
    return content[: draw(st.integers(0, len(content)))]


def _lines(draw: Any, content: bytes, tokens: Sequence[bytes]) -> bytes:
    """Two lines swapped, one given twice, one left out, or one moved."""
    lines = content.splitlines(keepends=True)
    if not lines:
        return content
    places = st.integers(0, len(lines) - 1)
    one, other = draw(places), draw(places)
    match draw(st.integers(0, 3)):
        case 0:
            lines[one], lines[other] = lines[other], lines[one]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            del lines[one]
        case _:
            lines.insert(other, lines.pop(one))
    return b"".join(lines)


_EDITS: tuple[Callable[[Any, bytes, Sequence[bytes]], bytes], ...] = (
    _flip,
    _insert,
    _replace,
    _repeat,
    _cut,
    _lines,
)


@st.composite
def mutated(draw: Any, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> bytes:
    """One of `seeds` with one to four edits; `tokens` are what its grammar is made of."""
    content = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(1, 4))):
        content = draw(st.sampled_from(_EDITS))(draw, content, tokens)
    return content


# JSON documents


@st.composite
def mutated_json(draw: Any, seed: Any, words: Sequence[Any] = ()) -> Any:
    """A copy of the JSON value `seed` with one to three members replaced, added or removed.

    `words` are values that mean something somewhere in such a document.
    """
    value = json.loads(json.dumps(seed))
    for _ in range(draw(st.integers(1, 3))):
        _change(draw, value, JSON | st.sampled_from(words) if words else JSON)
    return value


def _change(draw: Any, container: Any, junk: Any) -> None:
    """Change one member of `container`, or of something in it."""
    keys = list(container) if isinstance(container, dict) else list(range(len(container)))
    if not keys:
        return
    key = draw(st.sampled_from(keys))
    inner = container[key]
    if isinstance(inner, dict | list) and inner and draw(st.integers(0, 3)):
        _change(draw, inner, junk)
        return
    # A copy: what is put in may be changed by the next edit, and `words` are drawn again.
    new = copy.deepcopy(draw(junk))
    match draw(st.integers(0, 3)):
        case 0:
            del container[key]
        case 1 if isinstance(container, dict):
            container[draw(TEXTS | st.sampled_from(["path", "name", "more"]))] = new
        case 1:
            container.insert(key, new)
        case _:
            container[key] = new
