"""The root of a workspace: opened once, and held by its descriptor."""

import os
import sys
from typing import NamedTuple

from paddock.errors import ConfigError, HostError
from paddock.text.show import quote
from paddock.workspace.resolution import PASS_DIRECTORY, Resolution


class Root(NamedTuple):
    """An open root, by the name that was given and by the one without links.

    No link was passed when the second one was opened, whatever was swapped meanwhile.
    """

    name: str
    real_name: str
    fd: int


def open_root(root: str, resolution: Resolution, name: str | None = None) -> Root:
    """Open the directory at `root`; `name` is another name of it, if it has one.

    Raises:
        ConfigError: it is no directory, or cannot be opened.
        HostError: file names are not UTF-8 in this process.
    """
    if sys.getfilesystemencoding() != "utf-8":
        raise HostError("file names must be UTF-8 here: start Python in its UTF-8 mode")
    try:
        real_root = os.path.realpath(root, strict=True)  # noqa: TID251 - what the root is
        fd = _open_real(real_root, resolution)
    except (OSError, ValueError) as failure:
        raise ConfigError(f"workspace root {quote(root)} cannot be opened: {failure}") from None
    return Root(_name_as_given(name or root, real_root, fd), real_root, fd)


def _open_real(real_root: str, resolution: Resolution) -> int:
    """A descriptor of the directory at a path without links. Raises: OSError."""
    slash = os.open("/", PASS_DIRECTORY)
    try:
        return resolution.open(slash, real_root.strip("/") or ".", PASS_DIRECTORY)
    finally:
        os.close(slash)


def _name_as_given(root: str, real_root: str, fd: int) -> str:
    """The root's name made absolute, unless a `..` behind a link makes that another directory."""
    name = os.path.abspath(root)
    try:
        given = os.stat(name)
    except OSError:
        return real_root
    return name if os.path.samestat(given, os.fstat(fd)) else real_root
