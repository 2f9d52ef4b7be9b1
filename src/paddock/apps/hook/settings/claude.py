"""Our entries in Claude Code's settings: which there are, put in, found, taken out. Pure."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.errors import ConfigError
from paddock.plane.clients import CLAUDE
from paddock.text.json import (
    Node,
    Way,
    find_node,
    parse_text,
    text_at,
    value_at,
    with_item,
    with_member,
    without,
)
from paddock.values.calls import Json

TIMEOUT_S: Final = 60
"""Twice what an answer may take, so that the answer is ours and not the client's."""
SESSION_END_TIMEOUT_S: Final = 3
"""A client that ends waits no longer."""
LAUNCHER: Final = "/paddock/apps/hook/launch.py"

MADE: Final = "{\n\n}\n"
"""What a file that we make holds without our entries, as hardly anybody would write it: so an empty
one of somebody else stays."""
JUDGED: Final = ("PreToolUse", "PermissionRequest")
_AFTER: Final = ("PostToolUse", "PostToolUseFailure")
_SESSION: Final = ("SessionStart", "SessionEnd", "SubagentStart", "SubagentStop")
EVENTS: Final = (*JUDGED, *_AFTER, *_SESSION)


NEAREST_FIRST: Final = ("local", "project", "user")


def settings_files(root: Path, home: Path, variables: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of the scopes, nearest first: of a switch the first that says it counts."""
    own, folder = Path(CLAUDE.of_user(str(home), variables)), root / CLAUDE.folder
    return folder / "settings.local.json", folder / "settings.json", own / "settings.json"


class Program(Struct, frozen=True):
    """The Python that an installed hook starts, and the file that it runs."""

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
        # The call is over: nobody waits for the record of it.
        command["async"] = True
    matcher: dict[str, Json] = {} if event in _SESSION else {"matcher": "*"}
    return {**matcher, "hooks": [command]}


def timeout_of(event: str) -> int:
    return SESSION_END_TIMEOUT_S if event == "SessionEnd" else TIMEOUT_S


def installed(text: str, file: str, program: Program) -> str:
    """Put our entries in for older ones. Raises: ConfigError: no settings, or another `hooks`."""
    text = uninstalled(text, file) if not is_installed(text, file, program) else text
    if find_ours(text, parse_text(text, file)):
        return text
    top = _top(text, file)
    if top.find("hooks") is None:
        hooks = {event: [entry_for(event, program)] for event in EVENTS}
        return with_member(text, top, "hooks", hooks)
    for event in EVENTS:
        hooks_node = _hooks(text, file)
        array = hooks_node.find(event)
        entry = entry_for(event, program)
        if array is None:
            text = with_member(text, hooks_node, event, [entry])
        elif array.kind != "array":
            raise _strange(file, f"hooks.{event} is no array")
        else:
            text = with_item(text, array, entry)
    return text


def uninstalled(text: str, file: str) -> str:
    """Raises: ConfigError."""
    while True:
        top = parse_text(text, file)
        ours = find_ours(text, top)
        if not ours:
            return text
        # The last first: what was put in behind another goes before it.
        text = without(text, top, ours[-1])


def is_installed(text: str, file: str, program: Program) -> bool:
    """Require our entries exactly as they would be put in now, one an event.

    Threat: an entry that matches no tool, or whose failure lets calls run, looks like ours.
    """
    top = parse_text(text, file)
    ours = find_ours(text, top)
    if sorted(str(way[1]) for way in ours) != sorted(EVENTS):
        return False
    return all(
        value_at(text, find_node(top, way)) == entry_for(str(way[1]), program) for way in ours
    )


def switch_in(text: str, file: str) -> bool | None:
    """Read whether no hook runs; None if neither is said. Raises: ConfigError."""
    value = value_at(text, parse_text(text, file).find("disableAllHooks"))
    return value if isinstance(value, bool) else None


def sandbox_in(text: str, file: str) -> bool | None:
    """Read the client's own sandbox; None if they do not say. Raises: ConfigError."""
    sandbox = parse_text(text, file).find("sandbox")
    value = None if sandbox is None else value_at(text, sandbox.find("enabled"))
    return value if isinstance(value, bool) else None


def find_ours(text: str, top: Node) -> list[Way]:
    found: list[Way] = []
    hooks = top.find("hooks") if top.kind == "object" else None
    for member in hooks.members if hooks is not None else ():
        for place, group in enumerate(member.node.items):
            commands = group.find("hooks")
            if commands is None:
                continue
            own = [
                index
                for index, command in enumerate(commands.items)
                if any(said.endswith(LAUNCHER) for said in _texts(text, command))
            ]
            way: Way = ("hooks", member.name, place)
            if own and len(own) == len(commands.items):
                found.append(way)
            else:
                found += [(*way, "hooks", index) for index in own]
    return found


def _texts(text: str, command: Node) -> set[str]:
    found: set[str] = set()
    said = text_at(text, command.find("command"))
    if said is not None:
        found.update((said, *(word.strip("'\"") for word in said.split())))
    arguments = command.find("args")
    for item in arguments.items if arguments is not None else ():
        argument = text_at(text, item)
        if argument is not None:
            found.add(argument)
    return found


def _top(text: str, file: str) -> Node:
    top = parse_text(text, file)
    if top.kind != "object":
        raise _strange(file, "the settings are no object")
    return top


def _hooks(text: str, file: str) -> Node:
    hooks = _top(text, file).find("hooks")
    if hooks is None or hooks.kind != "object":
        raise _strange(file, "hooks is no object")
    return hooks


def _strange(file: str, what: str) -> ConfigError:
    return ConfigError(what, where=file, hint="mend the file first; nothing was changed")
