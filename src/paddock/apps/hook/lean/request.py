"""What a client asks, taken out of its JSON, strictly; and what the call would do.

A key given twice, a constant that JSON does not have, a wrong type or more text: another reader
would judge another call than the one that runs.
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
"""Where Claude Code was started; the shell's own directory may be another by now."""
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
"""Tool → operation of `tool:file:`, and the argument that holds the path."""
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
    """The input is none that we know; the text says why, without the input's own text."""


class DeclinedError(Exception):
    """The lean path leaves a call to the full one; nothing was recorded yet. The text says why."""


class HookEvent:
    """One event of a client. Texts are empty where the input has none."""

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
    """Refuse what JSON readers disagree about."""

    strict = True
    object_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def object_pairs_hook(pairs: "list[tuple[str, Json]]") -> "dict[str, Json]":
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ShapeError("a key is given twice")
        return found

    @staticmethod
    def parse_constant(name: str) -> None:
        raise ShapeError(f"{name} is no JSON value")


def parse_json(data: bytes) -> "Json":
    """Raises: ShapeError where it is none that every reader reads alike."""
    try:
        text = data.decode()
        start = len(text) - len(text.lstrip(_BLANKS))
        reader: Json = _Reader
        value, end = make_scanner(reader)(text, start)
    except ShapeError:
        raise
    except StopIteration:
        raise ShapeError("the input is no JSON value") from None
    except (ValueError, RecursionError) as error:
        raise ShapeError(f"the input is no JSON: {type(error).__name__}") from None
    if text[end:].strip(_BLANKS):
        raise ShapeError("more text follows the JSON value")
    return value


def parse_event(data: bytes, client: str) -> HookEvent:
    """Return what is asked; without an event it is a PreToolUse. Raises: ShapeError."""
    members: Json = parse_json(data)
    if not _is(members, dict):
        raise ShapeError("the input is no object")
    for name in ("hook_event_name", *TEXTS):
        if name in members and not _is(members[name], str):
            raise ShapeError(f"{name} is no text")
    name = members.get("hook_event_name", PRE_TOOL_USE)
    event = HookEvent(name, client_of(client, members), members)
    if name in IGNORED_EVENTS or name in SESSION_EVENTS:
        return event
    if name not in TOOL_EVENTS:
        raise ShapeError("hook_event_name is none that is known")
    tool, given = members.get("tool_name"), members.get("tool_input")
    if not tool or not _is(tool, str):
        raise ShapeError("tool_name is no text")
    if not _is(given, dict):
        raise ShapeError("tool_input is no object")
    if event.cwd and not event.cwd.startswith("/"):
        raise ShapeError("cwd is no absolute path")
    event.tool, event.input = tool, given
    return event


def client_of(named: str, members: "Mapping[str, object]") -> str:
    return named or ("codex" if "turn_id" in members else "claude")


def start_of(client: str, cwd: str, variables: "Mapping[str, str]", directory: str) -> str:
    """Return where the project is looked for: a shell may stand anywhere, the client stays."""
    named = variables.get(PROJECT_VARIABLE, "") if client == "claude" else ""
    return named if named[:1] == "/" else cwd or directory


def _is(value: object, kind: type) -> bool:
    return type(value) is kind


class LeanWanted:
    """What a call would do: operations on paths, a line of shell, and an action by its name."""

    paths: "tuple[tuple[str, str], ...]" = ()
    line: "str | None" = None
    name: "tuple[str, str, str] | None" = None


def find_wanted(event: HookEvent) -> LeanWanted:
    """Raises: ShapeError for an argument that says it is missing or no text."""
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
        # A pattern that leaves files out opens none.
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
        raise ShapeError(f"{argument} of {event.tool} is no text")
    return found


def read_patch(text: str) -> "tuple[tuple[str, str], ...]":
    """Return the operations of a patch in Codex's own form, with their paths. Raises: ShapeError.

        *** Begin Patch
        *** Add File: PATH        then lines with +
        *** Update File: PATH     then maybe *** Move to: PATH, then hunks
        *** Delete File: PATH
        *** End Patch

    Rows end with a line feed alone. A row that begins with `***`, or a known header behind blanks,
    counts. What we do not understand somebody else may apply: it is refused.
    """
    found: list[tuple[str, str]] = []
    # Threat: a row that ends where the client's reader goes on. It knows no other line end.
    for row in text.split("\n"):
        # Leading blanks too: the client's own reader is lenient.
        line = row.strip()
        if not line.startswith("***"):
            continue
        for header, operation in _HEADERS:
            if line.startswith(header):
                if not _UNSEEN.isdisjoint(row.strip(_PATCH_BLANKS)):
                    raise ShapeError("a header of the patch holds a control character")
                path = _patched_path(line[len(header) :])
                if header == "*** Move to:" and found:
                    # The file that was updated goes away under its old name.
                    found.append(("delete", found[-1][1]))
                found.append((operation, path))
                break
        else:
            # With a blank in front it is a line of the file: ` ***bold***`.
            if row.startswith("***") and not line.startswith(_FRAMES):
                raise ShapeError("the patch has a header that is not known")
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
