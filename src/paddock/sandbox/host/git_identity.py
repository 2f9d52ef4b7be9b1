"""The user's name and e-mail for commits: all of their git configuration that a command sees.

Read from the user's own files (git-config(1), "CONFIGURATION FILE"), `[user]` alone.
Includes are not followed: they could lead anywhere, and a name is not worth it.
"""

import re
from pathlib import Path
from typing import Final

from paddock.errors import PaddockError
from paddock.plane.files import read_file_through_links

_BYTES_MAX: Final = 262_144
_CHARS_MAX: Final = 200
_SECTION: Final = re.compile(r'\s*\[\s*([A-Za-z0-9.-]+)\s*("[^"]*")?\s*\]\s*(.*)')
_ENTRY: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*?)\s*")


def read_git_identity(home: str, config_home: str) -> tuple[str, str] | None:
    """Name and e-mail, the later file's word counting; None where one of them is missing."""
    said: dict[str, str] = {}
    for path in (Path(config_home) / "git" / "config", Path(home) / ".gitconfig"):
        said |= _user_section(_text_of(path))
    name, email = said.get("name", ""), said.get("email", "")
    return (name, email) if name and email else None


def _text_of(path: Path) -> str:
    try:
        content = read_file_through_links(path, _BYTES_MAX)
    except PaddockError:
        # Unreadable or no regular file: then git has no name from it either.
        return ""
    return "" if content is None else content.decode("utf-8", "replace")


def _user_section(text: str) -> dict[str, str]:
    said: dict[str, str] = {}
    in_user = False
    for line in text.splitlines():
        section = _SECTION.fullmatch(line)
        if section is not None:
            in_user = section[1].lower() == "user" and section[2] is None
            line = section[3]
        entry = _ENTRY.fullmatch(line)
        if in_user and entry is not None:
            value = _value(entry[2])
            if value:
                said[entry[1].lower()] = value
    return said


def _value(text: str) -> str:
    """A value without its quotes and comment; nothing where it holds what a name cannot."""
    quoted = re.match(r'"((?:[^"\\]|\\["\\])*)"', text)
    if quoted is not None:
        value = re.sub(r"\\(.)", r"\1", quoted[1])
    else:
        value = re.split(r"[;#]", text, maxsplit=1)[0].strip()
    # Threat: a value that ends its line in the private configuration adds a line to it.
    is_plain = value.isprintable() and '"' not in value and "\\" not in value
    return value if is_plain and len(value) <= _CHARS_MAX else ""
