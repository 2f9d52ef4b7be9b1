"""Build, find, install and remove the hook's entries in Claude Code's settings. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.plane.clients import CLAUDE
from paddock.text import json as jsonc
from paddock.values.calls import Json

TIMEOUT_S: Final = 60
"""Twice the hook's own time limit, so that the hook answers before the client gives up."""
SESSION_END_TIMEOUT_S: Final = 3
"""A client that exits waits no longer."""
LAUNCHER: Final = "/paddock/apps/hook/launch.py"

MADE: Final = "{\n\n}\n"
"""The content of a file that Paddock created, without its entries. Unusual on purpose: an empty
settings file that the user created is then kept."""
JUDGED: Final = ("PreToolUse", "PermissionRequest")
_AFTER: Final = ("PostToolUse", "PostToolUseFailure")
_SESSION: Final = ("SessionStart", "SessionEnd", "SubagentStart", "SubagentStop")
EVENTS: Final = (*JUDGED, *_AFTER, *_SESSION)


NEAREST_FIRST: Final = ("local", "project", "user")


def settings_files(root: Path, home: Path, variables: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of the scopes, nearest first. The first that sets a switch decides."""
    own, folder = Path(CLAUDE.of_user(str(home), variables)), root / CLAUDE.folder
    return folder / "settings.local.json", folder / "settings.json", own / "settings.json"


class Program(Struct, frozen=True):
    """The Python and the script that an installed hook starts."""

    python: str
    launcher: str

    def arguments(self, client: str = "") -> tuple[str, ...]:
        named = ("--client", client) if client else ()
        return ("-I", "-S", self.launcher, *named)


def entry_for(event: str, program: Program) -> dict[str, Json]:
    command: dict[str, Json] = {
        "type": "command",
        "command": program.python,
        "args": list(program.arguments("claude")),
        "timeout": timeout_of(event),
    }
    if event in JUDGED:
        command["onFailure"] = "block"
    if event in _AFTER:
        # The call is over: the client need not wait for its record.
        command["async"] = True
    matcher: dict[str, Json] = {} if event in _SESSION else {"matcher": "*"}
    return {**matcher, "hooks": [command]}


def timeout_of(event: str) -> int:
    return SESSION_END_TIMEOUT_S if event == "SessionEnd" else TIMEOUT_S


def installed(text: str | None, file: str, program: Program) -> str:
    """Add the entries, replacing older ones. Raises: ConfigError: the settings are malformed."""
    text = MADE if text is None else text
    if is_installed(text, file, program):
        return text
    text = uninstalled(text, file)
    top = _object(jsonc.parse_text(text, file), file, "the settings")
    if top.find("hooks") is None:
        hooks = {event: [entry_for(event, program)] for event in EVENTS}
        return jsonc.with_member(text, top, "hooks", hooks)
    for event in EVENTS:
        hooks_node = _object(jsonc.parse_text(text, file).find("hooks"), file, "hooks")
        array = hooks_node.find(event)
        entry = entry_for(event, program)
        if array is None:
            text = jsonc.with_member(text, hooks_node, event, [entry])
        elif array.kind != "array":
            raise _malformed(file, f"hooks.{event}: expected an array")
        else:
            text = jsonc.with_item(text, array, entry)
    return text


def uninstalled(text: str, file: str) -> str:
    """Raises: ConfigError."""
    while True:
        top = jsonc.parse_text(text, file)
        ours = find_ours(text, top)
        if not ours:
            return text
        # The last entry first, which keeps the indices of the others valid.
        text = jsonc.without(text, top, ours[-1])


def is_installed(text: str, file: str, program: Program) -> bool:
    """Return True if every event has exactly the entry that would be installed now.

    Threat: an entry that matches no tool, or whose failure lets calls run, looks like ours.
    """
    top = jsonc.parse_text(text, file)
    ours = find_ours(text, top)
    if sorted(str(way[1]) for way in ours) != sorted(EVENTS):
        return False
    return all(
        jsonc.value_at(text, jsonc.find_node(top, way)) == entry_for(str(way[1]), program)
        for way in ours
    )


def truth_at(text: str, file: str, names: tuple[str, ...]) -> bool | None:
    """Return the value of a switch; None if it is not set. Raises: ConfigError."""
    node: jsonc.Node | None = jsonc.parse_text(text, file)
    for name in names:
        node = None if node is None else node.find(name)
    value = jsonc.value_at(text, node)
    return value if isinstance(value, bool) else None


def has_ours(text: str, file: str) -> bool:
    return bool(find_ours(text, jsonc.parse_text(text, file)))


def is_made(text: str, left: str) -> bool:
    """Return True if Paddock created the file and nothing else is `left` in it."""
    return left == MADE != text


def find_ours(text: str, top: jsonc.Node) -> list[jsonc.Way]:
    found: list[jsonc.Way] = []
    hooks = top.find("hooks") if top.kind == "object" else None
    for member in hooks.members if hooks is not None else ():
        for place, group in enumerate(member.node.items):
            commands = group.find("hooks")
            items = () if commands is None else commands.items
            own = [index for index, each in enumerate(items) if _names_us(text, each)]
            way: jsonc.Way = ("hooks", member.name, place)
            is_whole = bool(own) and len(own) == len(items)
            found += [way] if is_whole else [(*way, "hooks", index) for index in own]
    return found


def _names_us(text: str, command: jsonc.Node) -> bool:
    said = jsonc.text_at(text, command.find("command")) or ""
    arguments = command.find("args")
    items = () if arguments is None else arguments.items
    words = (said, *(word.strip("'\"") for word in said.split()))
    return any(
        each is not None and each.endswith(LAUNCHER)
        for each in (*words, *(jsonc.text_at(text, item) for item in items))
    )


def _object(node: jsonc.Node | None, file: str, what: str) -> jsonc.Node:
    if node is None or node.kind != "object":
        raise _malformed(file, f"{what}: expected an object")
    return node


def _malformed(file: str, what: str) -> ConfigError:
    return ConfigError(what, where=file, hint="fix the file first; nothing was changed")
