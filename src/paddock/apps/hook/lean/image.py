"""Find, verify and load the image of a project's policy.

Everything that the full path observed for the image is observed again, and must be unchanged.

Threat: a process that can write into Paddock's state directory places an image there that allows
everything. An image is sealed with a key in the user's configuration. It is ignored if the seal,
the owner or the mode is wrong.
"""

import marshal  # noqa: TID251 - only data that our key sealed is read
import posix
import sys

from paddock.apps.hook.lean.judge import folded
from paddock.apps.hook.lean.request import DeclinedError, HookEvent
from paddock.ledger.format.line import sha256

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.values.calls import Json

FORMAT = b"paddock hook image 10\n"
KEY_BYTES = 32
IMAGE_BYTES_MAX = 8_000_000
FILE_BYTES_MAX = 2_000_000
CONTENT, NAME, FOLLOWED, LISTED = 0, 1, 2, 3
"""Kinds of observations: a file's content; the type and identity of an entry; content with
symlinks followed; the change time of a directory's list of names."""
_INNER = int.from_bytes(b"\x36" * 64, "big")
_OUTER = int.from_bytes(b"\x5c" * 64, "big")
_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC
_REGULAR = 0o100000
_KIND = 0o170000
_VARIABLES = ("TMPDIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME")


class Homes:
    def __init__(self, home: str, paddock: str, config: str) -> None:
        self.home = home
        self.paddock = paddock
        self.config = config


def find_homes(variables: "Mapping[str, str]") -> Homes:
    """Raises: DeclinedError if only the full path can find them."""
    home = variables.get("HOME", "")
    if home[:1] != "/" or variables.get("PADDOCK_PLANE"):
        raise DeclinedError("HOME or PADDOCK_PLANE needs the full path")
    state = _absolute(variables, "XDG_STATE_HOME") or f"{home}/.local/state"
    config = _absolute(variables, "XDG_CONFIG_HOME") or f"{home}/.config"
    paddock = variables.get("PADDOCK_HOME", "") or f"{state}/paddock"
    if paddock[:1] != "/":
        raise DeclinedError("PADDOCK_HOME is relative")
    return Homes(folded(home), folded(paddock), folded(f"{config}/paddock"))


def _absolute(variables: "Mapping[str, str]", name: str) -> str:
    value = variables.get(name, "")
    return value if value[:1] == "/" else ""


def image_path(homes: Homes, event: HookEvent, start: str, variables: "Mapping[str, str]") -> str:
    named = "\0".join(
        (
            *(FORMAT.decode(), event.client, start, homes.home, homes.paddock, homes.config),
            *(variables.get(name, "") for name in _VARIABLES),
            *(str(posix.geteuid()), str(sys.implementation.cache_tag)),
        )
    )
    mark = sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{homes.paddock}/hook/{mark}.image"


def key_path(homes: Homes) -> str:
    return f"{homes.config}/keys/hook.key"


def load_image(path: str, key_file: str) -> "Json":
    """Return the image if its seal and its observations are valid. Raises: DeclinedError."""
    key = read_private(key_file, KEY_BYTES)
    sealed = read_private(path, IMAGE_BYTES_MAX)
    start = len(FORMAT) + 32
    if len(key) != KEY_BYTES or sealed[: len(FORMAT)] != FORMAT:
        raise DeclinedError("no image, or one of another format")
    body = sealed[start:]
    if seal(key, body) != sealed[len(FORMAT) : start]:
        raise DeclinedError("the image's seal is broken")
    image: Json = marshal.loads(body)  # noqa: S302 - sealed, and it makes plain values alone
    if not all(observe(path, kind) == wanted for kind, path, wanted in image["looked"]):
        raise DeclinedError("something changed since the image was made")
    return image


def observe(path: str, kind: int = NAME) -> "Json":
    """Return the observed state of a path, or None if nothing is there."""
    if kind in (CONTENT, FOLLOWED):
        return _digest_at(path, _READ if kind == FOLLOWED else _READ | posix.O_NOFOLLOW)
    try:
        status = posix.lstat(path)
    except (OSError, ValueError):
        return None
    if kind == LISTED:
        return status.st_mtime_ns
    return (status.st_mode, status.st_uid, status.st_dev, status.st_ino)


def _digest_at(path: str, flags: int) -> "Json":
    try:
        _, content = _read(path, flags, FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        return fault.errno
    return -1 if content is None else sha256(content).digest()


def _read(path: str, flags: int, bytes_max: int) -> "tuple[posix.stat_result, bytes | None]":
    """Raises: OSError."""
    descriptor = posix.open(path, flags)
    try:
        status = posix.fstat(descriptor)
        if status.st_mode & _KIND != _REGULAR or status.st_size > bytes_max:
            return status, None
        content = b""
        while piece := posix.read(descriptor, status.st_size + 4096):
            content += piece
        return status, content
    finally:
        posix.close(descriptor)


def seal(key: bytes, body: bytes) -> bytes:
    padded = int.from_bytes(key.ljust(64, b"\0"), "big")
    inner = sha256((padded ^ _INNER).to_bytes(64, "big"))
    inner.update(body)
    outer = sha256((padded ^ _OUTER).to_bytes(64, "big"))
    outer.update(inner.digest())
    return outer.digest()


def read_private(path: str, bytes_max: int) -> bytes:
    """Read a file that only this user can read or write. Raises: DeclinedError."""
    try:
        status, content = _read(path, _READ | posix.O_NOFOLLOW, bytes_max)
    except OSError:
        raise DeclinedError("a file that the image needs is missing") from None
    if content is None or status.st_uid != posix.geteuid() or status.st_mode & 0o077:
        raise DeclinedError("a file that the image needs is not private")
    return content
