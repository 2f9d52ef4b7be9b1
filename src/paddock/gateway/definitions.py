"""A server's tool and prompt definitions, and the record of their review.

A description instructs the model, and `npx -y` can fetch new code with the same description. So
only definitions that a person reviewed are offered, word for word, of the reviewed version.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, cast

from msgspec import Struct, field

from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import Environment
from paddock.plane.json_files import parse_file, write_object
from paddock.plane.layout import path_id
from paddock.policy.settings import McpServer
from paddock.storage import atomic
from paddock.storage.locks import locked
from paddock.text.json import Strict, canonical_json
from paddock.text.show import show_name
from paddock.values.calls import Json
from paddock.values.entries import digest_of

_CLIENTS_PREFIX: Final = "mcp__paddock__"
_NAME_CHARS_MAX: Final = 64 - len(_CLIENTS_PREFIX)
_DIGITS: Final = 8
_FILE_BYTES_MAX: Final = 8_000_000
DEFINITIONS_BYTES_MAX: Final = 1_000_000
"""Limit for one server, because a person has to read them."""


class Definition(Strict, frozen=True):
    """A tool or a prompt as the server describes it."""

    kind: str
    name: str
    said: dict[str, Any]

    @property
    def key(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def digest(self) -> str:
        return digest_of(canonical_json(self.said).encode("utf-8", "surrogatepass"))

    @property
    def description(self) -> str:
        return show_text(str(self.said.get("description") or ""))


class Pinned(Strict, frozen=True):
    """The reviewed state of a server."""

    configured: str
    version: str
    """The code that answered, as far as it can be identified."""
    reviewed_at: str
    definitions: tuple[Definition, ...] = ()

    def find(self, kind: str, name: str) -> Definition | None:
        key = f"{kind} {name}"
        return next((each for each in self.definitions if each.key == key), None)

    def of(self, kind: str) -> tuple[Definition, ...]:
        return tuple(each for each in self.definitions if each.kind == kind)


class _Pins(Strict, frozen=True):
    servers: dict[str, Pinned] = field(default_factory=dict[str, Pinned])


class Pins:
    """The reviews of one project, in the user's state directory."""

    def __init__(self, root: ProjectRoot, environment: Environment) -> None:
        self.path = pins_path(root, environment)

    def read(self) -> Mapping[str, Pinned]:
        """Raises: ConfigError: the file does not load; then nothing is offered."""
        atomic.require_private(self.path.parent)
        content = atomic.read_file(self.path, _FILE_BYTES_MAX)
        return {} if content is None else parse_file(content, str(self.path)).convert(_Pins).servers

    def put(self, name: str, pinned: Pinned) -> None:
        atomic.make_directories(self.path.parent)
        with locked(self.path.parent):
            servers = {**self.read(), name: pinned}
            atomic.replace_file(self.path, write_object(_Pins(servers)))


def pins_path(root: ProjectRoot, environment: Environment) -> Path:
    return environment.paddock_home / "mcp" / f"{path_id(root.path)}.json"


def configured(server: McpServer) -> str:
    """Return a digest of the way a server is started."""
    return digest_of(repr((server.command, server.url)).encode("utf-8", "surrogatepass"))


class Redefinition(Struct, frozen=True):
    """A changed definition: as it was reviewed, and as it is now."""

    key: str
    before: Definition | None
    now: Definition | None


def compare(before: Iterable[Definition], now: Iterable[Definition]) -> tuple[Redefinition, ...]:
    was, found = ({each.key: each for each in side} for side in (before, now))
    keys = sorted(was.keys() | found.keys())
    pairs = (Redefinition(key, was.get(key), found.get(key)) for key in keys)
    return tuple(each for each in pairs if each.before != each.now)


def offered_name(server: str, tool: str, prefix_chars: int = _NAME_CHARS_MAX) -> str:
    """Return `SERVER__tool`; a name that is too long, or invalid for clients, ends in a digest."""
    name = f"{server}__{tool}"
    plain = "".join(
        each if each.isascii() and (each.isalnum() or each in "_-") else "_" for each in name
    )
    if plain == name and len(name) <= prefix_chars:
        return name
    digits = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
    return f"{plain[: prefix_chars - _DIGITS - 1]}_{digits}"


def show_text(text: str) -> str:
    """Return the text with invisible characters escaped, except line breaks and tabs."""
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join("\t".join(map(show_name, line.split("\t"))) for line in lines)


def show_values(value: Json, show: Callable[[str], str] = show_text) -> Json:
    """Return a JSON value with `show` applied to every string, including member names."""
    if isinstance(value, str):
        return show(value)
    if isinstance(value, dict):
        members = cast("dict[str, Json]", value)
        return {show(name): show_values(each, show) for name, each in members.items()}
    if isinstance(value, list):
        return [show_values(each, show) for each in cast("list[Json]", value)]
    return value


def reviewed(servers: Iterable[McpServer], pins: Mapping[str, Pinned]) -> tuple[str, ...]:
    """Return the servers that were reviewed with their current configuration."""
    return tuple(
        each.name
        for each in servers
        if (pinned := pins.get(each.name)) and pinned.configured == configured(each)
    )
