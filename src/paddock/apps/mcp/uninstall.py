"""Our entry out of a client's own configuration file: that, and nothing else."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from paddock.apps.mcp.install import NAME, Client, Scope, config_file, our_entry
from paddock.errors import ConfigError, UsageError
from paddock.plane.clients import ClientFile, Edit, read_client_file
from paddock.plane.strict_json import parse_object
from paddock.text.json import remove_member
from paddock.values.calls import Json

_MADE: Final = (b"", b'{\n  "mcpServers": {}\n}\n')
"""What an installation leaves of a file that it makes, without its entry."""
_SCOPES: Final[tuple[Scope, ...]] = ("project", "user")
_HEADER: Final = f"[mcp_servers.{NAME}"


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Another file of the client in which our entry stands, or of which nobody can tell."""

    scope: Scope
    file: Path
    why: str = ""
    """Why nobody can tell; empty where it stands there."""

    def describe(self, client: Client) -> str:
        """For a person, with what to do."""
        if self.why:
            return f"nobody can tell whether it stands in {self.file}: {self.why}"
        line = f"paddock mcp uninstall --client {client} --scope {self.scope}"
        return f"it stands in {self.file} (scope {self.scope}): {line}"

    def as_json(self) -> dict[str, Json]:
        """For a program."""
        return {"scope": self.scope, "file": str(self.file), "why": self.why}


def plan_uninstall(file: Path, scope: Scope) -> Edit:
    """Plan our entry out of the file; a file that holds nothing but what we wrote goes.

    Raises: ConfigError: the file does not load. UsageError: the entry is another program's, or
        stands there in a form that only a person can take out.
    """
    found = read_client_file(file, follows=scope == "user")
    known = _find_entry(found)
    if found.content is None or known is None:
        return Edit(found, found.content)
    if our_entry(known) is None:
        raise UsageError(
            f"the server {NAME!r} that is configured is another program",
            where=str(file),
            hint="take its entry out by hand, if that is meant",
        )
    take_out = _from_toml if file.suffix == ".toml" else _from_json
    rest = take_out(found.content, str(file))
    return Edit(found, None if rest in _MADE else rest)


def find_elsewhere(
    client: Client, scope: Scope, root: Path, home: Path, variables: Mapping[str, str]
) -> Sequence[Elsewhere]:
    """Where else the client finds our entry, or nobody can tell."""
    left: list[Elsewhere] = []
    for other in _SCOPES:
        if other == scope:
            continue
        file = config_file(client, other, root, home, variables)
        try:
            known = _find_entry(read_client_file(file, follows=other == "user"))
        except ConfigError as error:
            left.append(Elsewhere(other, file, error.message))
            continue
        if our_entry(known) is not None:
            left.append(Elsewhere(other, file))
    return left


def _find_entry(found: ClientFile) -> Json:
    """What stands there under our name, or None. Raises: ConfigError."""
    if not found.content:
        return None
    if found.path.suffix != ".toml":
        servers = parse_object(found.content, str(found.path)).table("mcpServers").members
        return servers.get(NAME)
    known = _toml(found.content, str(found.path)).get("mcp_servers")
    return cast("dict[str, Json]", known).get(NAME) if isinstance(known, dict) else None


def _from_json(content: bytes, file: str) -> bytes:
    source = parse_object(content, file).source.decode("utf-8")
    return remove_member(source, ("mcpServers", NAME)).encode("utf-8")


def _from_toml(content: bytes, file: str) -> bytes:
    rest = "".join(_other_lines(content.decode("utf-8").splitlines(keepends=True)))
    if not _says_the_rest(rest, _toml(content, file)):
        raise UsageError(
            f"the entry of {NAME!r} is written so that it cannot be taken out here",
            where=file,
            hint=f"take out by hand what stands under mcp_servers.{NAME}",
        )
    return rest.encode("utf-8")


def _says_the_rest(text: str, values: dict[str, object]) -> bool:
    """Whether the text says what the file said, without our entry."""
    servers = cast("dict[str, object]", values["mcp_servers"])
    others = {name: value for name, value in servers.items() if name != NAME}
    try:
        found = tomllib.loads(text)
    except ValueError:
        return False
    return {"mcp_servers": {}, **found} == {**values, "mcp_servers": others}


def _other_lines(lines: Sequence[str]) -> Sequence[str]:
    """All but our tables, with the empty line that stands before them."""
    kept: list[str] = []
    is_ours = False
    behind: list[str] = []
    for line in lines:
        said = line.strip()
        if said.startswith("["):
            was_ours, is_ours = is_ours, said.startswith((f"{_HEADER}]", f"{_HEADER}."))
            if is_ours and not was_ours and kept and not kept[-1].strip():
                kept.pop()
            # What stands between our last line and the next table is not ours.
            kept += [] if is_ours else behind
            behind = []
        if not is_ours:
            kept.append(line)
        elif said.startswith("#") or not said:
            behind.append(line)
        else:
            behind = []
    return [*kept, *behind]


def _toml(content: bytes, file: str) -> dict[str, object]:
    try:
        return tomllib.loads(content.decode("utf-8"))
    except ValueError as error:
        raise ConfigError(f"the file is not TOML: {error}", where=file) from None
