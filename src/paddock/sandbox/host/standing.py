"""Where a path of the host really is, and by which links.

`Resolver` opens nothing for an agent: these are the operator's own directories, looked
at before a command runs. What a command then sees is bound by descriptor, and what it wrote
is read by one.
"""

import os
import stat

from paddock import limits
from paddock.errors import HostError
from paddock.sandbox.host.host_facts import Link, Standing
from paddock.text.show import quote
from paddock.workspace.resolve import READ_FILE, Resolution, detect_resolution


class Resolver:
    """Resolves paths; remembers each component, for PATH shares most of them."""

    __slots__ = ("_texts",)

    def __init__(self) -> None:
        self._texts: dict[str, str | None] = {}

    def find(self, path: str) -> Standing | None:
        """Where the absolute `path` leads; None where nothing stands, or the links never end."""
        links: list[Link] = []
        waiting = _parts(path)[::-1]
        real = ""
        while waiting:
            part = waiting.pop()
            if part == "..":
                real = real.rpartition("/")[0]
                continue
            here = f"{real}/{part}"
            try:
                text = self._link_text(here)
            except OSError:
                return None
            if text is None:
                real = here
                continue
            links.append((here, text))
            if len(links) > limits.link_hops_max:
                return None
            if text.startswith("/"):
                real = ""
            waiting += _parts(text)[::-1]
        return Standing(path, real or "/", tuple(links))

    def stays_in_system(self, path: str) -> bool:
        """Whether a link in a system directory leads to one, or to a neighbour; no further look."""
        try:
            text = self._link_text(path) or ""
            if text.startswith("/etc/alternatives/"):
                text = self._link_text(text) or ""
        except OSError:
            return True
        return "/" not in text or (text.startswith("/usr/") and "/../" not in text)

    def _link_text(self, path: str) -> str | None:
        if path not in self._texts:
            # lstat first: readlink(2) answers EINVAL for all that is no link, and on
            # some network file systems ENOENT for what is there.
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
            self._texts[path] = os.readlink(path) if is_link else None
        return self._texts[path]


def read_content(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """A regular file's content, no link passed; None where there is no file.

    Raises: HostError: it cannot be read, is something else, or is larger.
    """
    try:
        fd = (resolution or detect_resolution()).open(root_fd, path, READ_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno or 0)) from error
    try:
        found = os.fstat(fd)
        if stat.S_ISDIR(found.st_mode):
            return None
        if not stat.S_ISREG(found.st_mode) or found.st_size > bytes_max:
            raise _unreadable(path, f"no file of at most {bytes_max} bytes")
        return os.pread(fd, found.st_size + 1, 0)
    except OSError as error:
        raise _unreadable(path, os.strerror(error.errno or 0)) from error
    finally:
        os.close(fd)


def find_content(
    root_fd: int, path: str, bytes_max: int, resolution: Resolution | None = None
) -> bytes | None:
    """The same; None also for what `read_content` raises on."""
    try:
        return read_content(root_fd, path, bytes_max, resolution)
    except HostError:
        return None


def _unreadable(path: str, why: str) -> HostError:
    return HostError(f"{quote(path)} cannot be read: {why}")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
