"""Versions of packages: Semantic Versioning 2.0.0 (semver.org), its grammar and its order. Pure."""

import re
from dataclasses import dataclass
from typing import Final

# The grammar of semver.org, section "Is there a suggested regular expression".
_NUMBER: Final = r"(0|[1-9]\d*)"
_IDENTIFIER: Final = r"(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)"
_SEMVER: Final = re.compile(
    rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}"
    rf"(?:-({_IDENTIFIER}(?:\.{_IDENTIFIER})*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?",
    re.ASCII,
)
_CHARS_MAX: Final = 128

_Identifier = tuple[int, int, str]


@dataclass(frozen=True, slots=True)
class Version:
    """One version; `text` is as it was written, build metadata included."""

    text: str
    release: tuple[int, int, int]
    before_release: tuple[_Identifier, ...]
    """The identifiers after the hyphen: (0, number, "") or (1, 0, text)."""

    def is_below(self, other: "Version") -> bool:
        """Whether it comes before `other` (semver.org, point 11); build metadata does not count."""
        if self.release != other.release:
            return self.release < other.release
        if not self.before_release or not other.before_release:
            return bool(self.before_release) and not other.before_release
        return self.before_release < other.before_release


def parse_version(text: str) -> Version | None:
    """The version that `text` is, or None where it is none."""
    found = _SEMVER.fullmatch(text) if len(text) <= _CHARS_MAX else None
    if found is None:
        return None
    major, minor, patch, before = found.groups()
    identifiers = tuple(map(_identifier, before.split("."))) if before else ()
    return Version(text, (int(major), int(minor), int(patch)), identifiers)


def _identifier(text: str) -> _Identifier:
    return (0, int(text), "") if text.isdigit() else (1, 0, text)
