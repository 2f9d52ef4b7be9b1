"""Parse a client's event strictly, and find the operations that the call would perform.

Duplicate keys, non-JSON constants, wrong types and trailing text are errors: with them Paddock
might judge another call than the one that the client runs.
"""

from _json import make_scanner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from paddock.values.calls import Json

PRE_TOOL_USE = "PreToolUse"
PERMISSION_REQUEST = "PermissionRequest"
TOOL_EVENTS = frozenset({PRE_TOOL_USE, PERMISSION_REQUEST, "PostToolUse", "PostToolUseFailure"})
SESSION_EVENTS = frozenset({"SessionStart", "SessionEnd", "SubagentStart", "SubagentStop"})
RECORDED_EVENTS = TOOL_EVENTS | SESSION_EVENTS
IGNORED_EVENTS = frozenset(
    "PostToolBatch Notification UserPromptSubmit UserPromptExpansion Stop StopFailure PreCompact "
    "PostCompact PreModelSwitch PostModelSwitch PermissionDenied Setup TeammateIdle TaskCreated "
    "TaskCompleted Elicitation ElicitationResult ConfigChange WorktreeCreate WorktreeRemove "
    "InstructionsLoaded CwdChanged FileChanged DirectoryAdded MessageDisplay".split()
)

PROJECT_VARIABLE = "CLAUDE_PROJECT_DIR"
"""The directory in which Claude Code was started; its shell may have changed directory since."""
_BLANKS = " \t\n\r"

FILE_TOOLS = {
    "Write": ("create", "file_path"),
    "Edit": ("str_replace", "file_path"),
    "MultiEdit": ("str_replace", "file_path"),
    "NotebookEdit": ("str_replace", "notebook_path"),
    "Read": ("view", "file_path"),
    "NotebookRead": ("view", "notebook_path"),
    "view_image": ("view", "path"),
}
"""Tool → operation of `tool:file:`, and the name of the path argument."""
LOOKING_TOOLS = {"Grep": ("path", "glob"), "Glob": ("path",), "LS": ("path",)}
PATHS = ("path", "file_path", "notebook_path")
SHELL_TOOL = "Bash"
_NO_COMMAND = ("SlashCommand",)
PATCH_TOOL = "apply_patch"
MCP_PREFIX = "mcp__"

_HEADERS = (
    ("*** Add File:", "create"),
    ("*** Update File:", "str_replace"),
    ("*** Delete File:", "delete"),
    ("*** Move to:", "create"),
)
_FRAMES = ("*** Begin Patch", "*** End Patch", "*** End of File", "*** Environment ID:")
_PATCH_BLANKS = " \t\r"
_UNSEEN = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029)))
FILES_MAX = 1000

TEXTS = ("session_id", "agent_id", "agent_type", "cwd", "tool_use_id", "prompt_id", "turn_id")


class ShapeError(Exception):
    """The input is invalid. The message says why, without quoting the input."""


class DeclinedError(Exception):
    """The fast path leaves a call to the full path; nothing was recorded. The message says why."""


class HookEvent:
    """One event of a client. Texts that the input lacks are empty."""

    def __init__(self, name: str, client: str, members: "dict[str, Json]") -> None:
        self.name = name
        self.client = client
        self.members = members
        self.tool = ""
        self.input: dict[str, Json] = {}
        self.session_id: str = members.get("session_id", "")
        self.agent_id: str = members.get("agent_id", "")
        self.agent_type: str = members.get("agent_type", "")
        self.call_id: str = members.get("tool_use_id", "")
        self.cwd: str = members.get("cwd", "")

    @property
    def is_judged(self) -> bool:
        return self.name == PRE_TOOL_USE


class _Reader:
    """Refuses JSON that parsers read differently."""

    strict = True
    object_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def object_pairs_hook(pairs: "list[tuple[str, Json]]") -> "dict[str, Json]":
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ShapeError("the input has a duplicate key")
        return found

    @staticmethod
    def parse_constant(name: str) -> None:
        raise ShapeError(f"{name} is not a JSON value")


def parse_json(data: bytes) -> "Json":
    """Raises: ShapeError: not JSON, or JSON that parsers read differently."""
    try:
        text = data.decode()
        start = len(text) - len(text.lstrip(_BLANKS))
        reader: Json = _Reader
        value, end = make_scanner(reader)(text, start)
    except ShapeError:
        raise
    except StopIteration:
        raise ShapeError("the input is not a JSON value") from None
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"the input is not JSON: {type(error).__name__}") from None
    if text[end:].strip(_BLANKS):
        raise ShapeError("more text follows the JSON value")
    return value


def parse_event(data: bytes, client: str) -> HookEvent:
    """Parse an event; without an event name it is a PreToolUse. Raises: ShapeError."""
    members: Json = parse_json(data)
    if not _is(members, dict):
        raise ShapeError("the input: expected an object")
    for name in ("hook_event_name", *TEXTS):
        if name in members and not _is(members[name], str):
            raise ShapeError(f"{name}: expected a string")
    name = members.get("hook_event_name", PRE_TOOL_USE)
    event = HookEvent(name, client_of(client, members), members)
    if name in IGNORED_EVENTS or name in SESSION_EVENTS:
        return event
    if name not in TOOL_EVENTS:
        raise ShapeError("hook_event_name: unknown event")
    tool, given = members.get("tool_name"), members.get("tool_input")
    if not tool or not _is(tool, str):
        raise ShapeError("tool_name: expected a non-empty string")
    if not _is(given, dict):
        raise ShapeError("tool_input: expected an object")
    if event.cwd and not event.cwd.startswith("/"):
        raise ShapeError("cwd: expected an absolute path")
    event.tool, event.input = tool, given
    return event


def client_of(named: str, members: "Mapping[str, object]") -> str:
    return named or ("codex" if "turn_id" in members else "claude")


def start_of(client: str, cwd: str, variables: "Mapping[str, str]", directory: str) -> str:
    """Return where the search for the project starts. Only the client's shell changes directory."""
    named = variables.get(PROJECT_VARIABLE, "") if client == "claude" else ""
    return named if named[:1] == "/" else cwd or directory


def _is(value: object, kind: type) -> bool:
    return type(value) is kind


class LeanWanted:
    """The operations of a call: on paths, a shell line, and a named action."""

    paths: "tuple[tuple[str, str], ...]" = ()
    line: "str | None" = None
    name: "tuple[str, str, str] | None" = None


def find_wanted(event: HookEvent) -> LeanWanted:
    """Raises: ShapeError: a required argument is missing, empty or not a string."""
    tool, wanted = event.tool, LeanWanted()
    if tool in FILE_TOOLS:
        operation, argument = FILE_TOOLS[tool]
        wanted.paths = ((operation, _text(event, argument)),)
    elif tool == SHELL_TOOL:
        wanted.line = _text(event, "command")
    elif tool == PATCH_TOOL:
        wanted.paths = read_patch(_text(event, "command"))
    elif tool.startswith(MCP_PREFIX):
        wanted.name = ("mcp", "call", tool)
    else:
        given = [event.input.get(name) for name in LOOKING_TOOLS.get(tool, PATHS)]
        # A pattern that excludes files opens none.
        wanted.paths = tuple(
            ("view", each) for each in given if type(each) is str and each[:1] not in ("", "!")
        )
        line = None if tool in _NO_COMMAND else event.input.get("command")
        if type(line) is str and line.strip():
            wanted.line = line
        wanted.name = ("client", tool, "")
    return wanted


def _text(event: HookEvent, argument: str) -> str:
    found = event.input.get(argument)
    if type(found) is not str or not found:
        raise ShapeError(f"{argument} of {event.tool}: expected a non-empty string")
    return found


def read_patch(text: str) -> "tuple[tuple[str, str], ...]":
    """Return the operations of a patch in Codex's format, with their paths. Raises: ShapeError.

        *** Begin Patch
        *** Add File: PATH        then lines with +
        *** Update File: PATH     then optionally *** Move to: PATH, then hunks
        *** Delete File: PATH
        *** End Patch

    Only a line feed ends a row. A row is a header if it begins with `***`, or with blanks and a
    known header. An unknown header is refused, because the client might apply it.
    """
    found: list[tuple[str, str]] = []
    # Threat: a row that ends here and continues for the client, which splits at line feeds only.
    for row in text.split("\n"):
        # Leading blanks too, because the client's parser accepts them.
        line = row.strip()
        if not line.startswith("***"):
            continue
        for header, operation in _HEADERS:
            if line.startswith(header):
                if not _UNSEEN.isdisjoint(row.strip(_PATCH_BLANKS)):
                    raise ShapeError("a header of the patch contains a control character")
                path = _patched_path(line[len(header) :])
                if header == "*** Move to:" and found:
                    # The updated file is removed under its old name.
                    found.append(("delete", found[-1][1]))
                found.append((operation, path))
                break
        else:
            # After a blank it is a line of the file: ` ***bold***`.
            if row.startswith("***") and not line.startswith(_FRAMES):
                raise ShapeError("the patch has an unknown header")
    if not found:
        raise ShapeError("the patch names no file")
    if len(found) > FILES_MAX:
        raise ShapeError(f"the patch touches more than {FILES_MAX} files")
    return tuple(found)


def _patched_path(rest: str) -> str:
    if not rest.strip():
        raise ShapeError("a header of the patch names no file")
    path = rest.removeprefix(" ")
    return f"./{path}" if path[0] == "~" else path
