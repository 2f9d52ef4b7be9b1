"""The names of things inside a workspace, and the rules that hold before any disk is asked.

Rules kept here:
  * a path is relative to the root, or absolute inside it by either of the root's names;
  * `.` and doubled slashes vanish; `..` stays in place for `links` to resolve, because
    after a link it is not a matter of text;
  * NUL, control characters and lone surrogates are refused, so is what is too long;
  * nothing is percent-decoded, case-folded or normalised: `%2e%2e` is a file name;
  * the names of Paddock's own temporary files are nobody else's.

No function here touches the disk. That a path exists, or stays inside, is not decided here.
"""

import re
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.errors import InvalidPathError, PathTraversalError
from paddock.text.show import quote
from paddock.workspace.temporary import is_temporary_name

_UNUSABLE: Final = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
"""Controls (C0, DEL, C1) and lone surrogates, which no UTF-8 name can hold."""

_PLAIN_CHARS_MAX: Final = 250
"""So short a text can exceed neither the limits of a name and a path nor that of depth."""


@dataclass(frozen=True, slots=True)
class AskedPath:
    """A path's text taken apart: components with `..` still in place."""

    text: str
    parts: tuple[str, ...]
    as_directory: bool
    """It ended in a slash or `/.`: a directory is meant."""


def is_plain(text: str) -> bool:
    """Whether `text` is canonical already: relative, no dot names, nothing to refuse.

    The short way for nearly every path that a model writes. It may say no to
    a canonical path (`.github/x`), never yes to another.
    """
    return (
        text.isprintable()
        and 0 < len(text) <= _PLAIN_CHARS_MAX
        and text.isascii()
        and text[0] not in "./"
        and text[-1] != "/"
        and "/." not in text
        and "//" not in text
    )


def parse_asked(text: str, root_names: tuple[str, ...]) -> AskedPath:
    """Take a path's text apart and refuse what no path in a workspace can be.

    `root_names` are the absolute names of the root, without trailing slash.

    Raises:
        InvalidPathError: empty, too long, too deep, control characters, lone
            surrogates, or a name that Paddock keeps for its temporary files.
        PathTraversalError: absolute, and not inside the root by any of its names.
    """
    if not text:
        raise InvalidPathError("the path is empty", hint="use . for the workspace root")
    if _UNUSABLE.search(text):
        raise InvalidPathError(
            f"path {quote(text)} holds a control character or a lone surrogate",
            hint="use a path of whole characters without line breaks, tabs and the like",
        )
    if len(text.encode()) >= limits.path_bytes_max:
        raise InvalidPathError(
            f"path {quote(text)} has {limits.path_bytes_max} bytes or more",
            hint="use a shorter path",
        )
    parts = components(text)
    if text.startswith("/"):
        parts = _inside_root(text, parts, root_names)
    check_names(text, parts)
    return AskedPath(
        text, parts, as_directory=text.endswith(("/", "/.", "/..")) or text in (".", "..")
    )


def components(text: str) -> tuple[str, ...]:
    """The components of a path's text, `..` kept, `.` and empty ones dropped."""
    return tuple(part for part in text.split("/") if part not in ("", "."))


def _inside_root(text: str, parts: tuple[str, ...], roots: tuple[str, ...]) -> tuple[str, ...]:
    # Threat: a sibling whose name begins like the root (/root-evil beside /root) passes a
    # comparison of texts. Whole components are compared, and nothing before them is resolved.
    for root in roots:
        base = components(root)
        if parts[: len(base)] == base:
            return parts[len(base) :]
    raise escapes_root(text)


def check_names(text: str, parts: tuple[str, ...]) -> None:
    """Refuse components that are too long, too many, or Paddock's own.

    Raises:
        InvalidPathError: as said.
    """
    if len(parts) > limits.path_depth_max:
        raise InvalidPathError(
            f"path {quote(text)} is {len(parts)} components deep, over {limits.path_depth_max}",
            hint="use a path with fewer directories",
        )
    for part in parts:
        if len(part.encode()) > limits.name_bytes_max:
            raise InvalidPathError(
                f"name {quote(part)} is over {limits.name_bytes_max} bytes",
                hint="use a shorter name",
            )
        if is_temporary_name(part):
            raise InvalidPathError(
                f"name {quote(part)} is kept for Paddock's temporary files",
                hint="use another name",
            )


def check_link_text(asked: str, target: str) -> None:
    """Refuse a link whose text no workspace path may hold.

    Raises:
        InvalidPathError: the target is not UTF-8, or holds control characters.
    """
    if _UNUSABLE.search(target):
        raise InvalidPathError(
            f"path {quote(asked)} passes a link to {quote(target)}",
            hint="no path can be written like that; use one that does not pass the link",
        )


def escapes_root(text: str) -> PathTraversalError:
    """The refusal of a path that leads out; the same words whatever the trick."""
    return PathTraversalError(
        f"path escapes root: {quote(text)}", hint="use a path inside the workspace"
    )
