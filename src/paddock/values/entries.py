"""What is written to a ledger, before it has a place in the chain."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from paddock.values.calls import Json

_NO_METADATA: Final[Mapping[str, Json]] = MappingProxyType({})


class Shared:
    """Metadata members that many entries have in common, such as the rule that decided.

    A ledger encodes them once for all entries that hold this object. `members`
    never changes.
    """

    __slots__ = ("encoded", "members")

    def __init__(self, members: Mapping[str, Json]) -> None:
        self.members = members
        self.encoded: str | None = None
        """Kept by the ledger's format: the members as JSON text without braces."""


class Entry(NamedTuple):
    """One record without its id, time and place: the ledger adds those.

    Strings are empty where a field does not apply. The entry's metadata is a
    JSON object: `metadata`, then the members of `shared`; no name stands in both.
    A named tuple, because every call makes two.
    """

    event_type: str
    submission_id: str = ""
    decision: str = ""
    reason: str = ""
    session_id: str = ""
    agent: str = ""
    call_id: str = ""
    metadata: Mapping[str, Json] = _NO_METADATA
    shared: Shared | None = None


def is_plain(value: str) -> bool:
    """Whether a ledger line takes the text as it is: it refuses NUL and lone surrogates."""
    if value.isascii():
        return "\0" not in value
    return "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value)


def clean(value: str) -> str:
    """`value` without what a ledger line refuses, visibly escaped."""
    if is_plain(value):
        return value
    return "".join(
        f"\\u{ord(c):04x}" if c == "\0" or "\ud800" <= c <= "\udfff" else c for c in value
    )
