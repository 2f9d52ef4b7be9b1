"""Translate calls of the providers' own tool types to Paddock's, and results back.

    str_replace_based_edit_tool  text_editor_20250728   view, create_file, str_replace, insert_text
    bash                         bash_20250124          run_shell in one session, shell_stop
    memory                       memory_20250818        memory_view, memory_create, …
    apply_patch_call             apply_patch            create_file, patch_file, delete_file
    shell_call                   shell                  run_shell, a call for each command

A native call is judged, run and recorded as the calls that it becomes. Only its messages are the
provider's, as documented, because models know them; the reason of a refusal, and its hint, follow.
An absolute path is relative to the workspace's root.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias, cast

from msgspec import Struct

from paddock.errors import (
    AmbiguousMatchError,
    FileChangedError,
    InvalidArgumentsError,
    PathExistsError,
    PathNotAFileError,
    PathNotFoundError,
    StringNotFoundError,
    UsageError,
)
from paddock.policy.rules import MEMORIES
from paddock.runtime.messages import NATIVE_NAMES, Asked, Malformed, call_of
from paddock.text.show import quote
from paddock.tools.arguments import (
    Argument,
    Binder,
    made_type,
    needed_integer,
    needed_text,
    plain_text,
)
from paddock.tools.effects import ABSENT
from paddock.values.calls import Json, Refusal, ToolCall, ToolResult

Given: TypeAlias = Mapping[str, Json]
Results: TypeAlias = Sequence[ToolResult]
Names: TypeAlias = Callable[[str], bool]
"""Returns True if an absolute path begins with a name of the workspace."""
_BASH: Final = "bash"
"""The session of Anthropic's bash tool; a model has only one."""


class NativeTool(Struct, frozen=True):
    schema: Given
    becomes: tuple[str, ...]
    """An agent that has one of these tools is offered it."""
    ask: Callable[[ToolCall, Names], Sequence[ToolCall]]
    """Returns the calls that a native call becomes. Raises: InvalidArgumentsError."""
    answer: Callable[[Given, Results], dict[str, Json]]
    """Returns the block's members besides its type and id."""


def native_schemas(provider: str, tools: Collection[str]) -> list[dict[str, Json]]:
    """Return the provider's own tool types for an agent that has `tools`. Raises: UsageError."""
    if provider not in NATIVE_NAMES:
        hint = f"one of: {', '.join(sorted(NATIVE_NAMES))}"
        raise UsageError(f"no native tools for the provider {quote(provider)}", hint=hint)
    native = [each for name, each in _TOOLS.items() if name in NATIVE_NAMES[provider]]
    return [dict(each.schema) for each in native if any(name in tools for name in each.becomes)]


class NativeTurn:
    """The calls of one message, of which some have a `native` name."""

    def __init__(self, native: frozenset[str], asked: Sequence[Asked], names: Names) -> None:
        self._native = native
        self._parts = [
            (each, _become(each, names) if call_of(each).tool in native else [each])
            for each in asked
        ]

    @property
    def asked(self) -> list[Asked]:
        return [each for _, become in self._parts for each in become]

    def write(
        self, results: Results, plain: Callable[[Results], list[dict[str, Json]]]
    ) -> list[dict[str, Json]]:
        left, blocks = iter(results), list[dict[str, Json]]()
        for asked, become in self._parts:
            own, call = list(islice(left, len(become))), call_of(asked)
            if call.tool not in self._native:
                blocks += plain(own)
                continue
            tool = _TOOLS[call.tool]
            is_use = "name" in tool.schema
            head = {"tool_use_id": call.id} if is_use else {"call_id": call.id}
            kind = "tool_result" if is_use else f"{call.tool}_output"
            blocks.append({"type": kind, **head, **tool.answer(call.arguments, own)})
        return blocks


def _become(asked: Asked, names: Names) -> list[Asked]:
    if isinstance(asked, Malformed):
        return [asked]
    try:
        return [*_TOOLS[asked.tool].ask(asked, names)]
    except InvalidArgumentsError as error:
        # Without its arguments: only for Paddock's tools is it known which are content.
        refusal = Refusal(error.code, error.message, error.hint)
        return [Malformed(ToolCall(asked.id, asked.tool, {}), refusal)]


_NAME: Final = needed_text("")
_TEXT: Final = plain_text("")
_VIEW_RANGE: Final = Argument(list[int], "", None)
_PARAMETERS: Final[Mapping[str, Mapping[str, Argument]]] = {
    "view": {"path": _NAME, "view_range": _VIEW_RANGE},
    "create": {"path": _NAME, "file_text": _TEXT},
    # Without a new text the old one is deleted.
    "str_replace": {"path": _NAME, "old_str": _NAME, "new_str": Argument(str, "", "")},
    "insert": {"path": _NAME, "insert_line": needed_integer(""), "insert_text": _NAME},
    "delete": {"path": _NAME},
    "rename": {"old_path": _NAME, "new_path": _NAME},
    "create_file": {"path": _NAME, "diff": _TEXT},
    "update_file": {"path": _NAME, "diff": _NAME},
    "delete_file": {"path": _NAME},
}


def _arguments(given: Given, key: str, known: Collection[str], **ours: str) -> dict[str, Json]:
    """Return the arguments of a command under Paddock's names; null counts as absent.

    Raises: InvalidArgumentsError, with the provider's names, which the model knows.
    """
    kind = given.get(key)
    if not isinstance(kind, str) or kind not in known:
        what = "commands" if key == "command" else "operations"
        raise _invalid(key, kind, f"the {what} are: {', '.join(known)}")
    present = {name: each for name, each in given.items() if each is not None and name != key}
    if kind == "insert" and "insert_text" not in present and "new_str" in present:
        present["insert_text"] = present.pop("new_str")  # the name in older documentation
    bound = Binder(made_type(kind, dict(_PARAMETERS[kind]))).values(present)
    window = _window(bound.pop("view_range", None))
    return {ours.get(name, name): each for name, each in bound.items()} | window


def _window(bounds: Json) -> dict[str, Json]:
    """Return `view_range` as offset and limit. Raises: InvalidArgumentsError."""
    match bounds:
        case None:
            return {}
        case [int(first), -1] if first >= 1:
            return {"offset": first}
        case [int(first), int(last)] if 1 <= first <= last:
            return {"offset": first, "limit": last - first + 1}
        case _:
            raise _invalid("view_range", bounds, "give two lines, as [1, 20]; -1 is the last")


def _invalid(name: str, value: Json, hint: str) -> InvalidArgumentsError:
    said = f"Invalid `{name}` parameter: {quote(value)}"
    return InvalidArgumentsError(said, where=name, hint=hint)


def _from_root(path: str, names: Names) -> str:
    """Return an absolute path relative to the root, unless it begins with the workspace's name."""
    # This only chooses how to read the text: the path is resolved, and judged, afterwards.
    if names(path):
        return path
    return path.lstrip("/") or "." if path.startswith("/") else path


def _path_in_memory(path: str) -> str:
    """Return a path below /memories relative to it. Raises: InvalidArgumentsError."""
    # Threat: `/memories-of-others`, or a path of the workspace.
    if not f"{path}/".startswith(f"{MEMORIES}/"):
        said = f"Path must start with {MEMORIES}, got: {quote(path)}"
        raise InvalidArgumentsError(said, where="path", hint=f"as in {MEMORIES}/notes.md")
    return path.removeprefix(MEMORIES).lstrip("/") or "."


_FOUND: Final = re.compile(r"found (?:over )?(\d+) times .*, at lines ([\d, ]*\d.*)\Z", re.DOTALL)


class _Messages(dict[str, str]):
    """A provider's messages by Paddock's codes; `{path}` and others are the call's arguments."""

    def of(self, refusal: Refusal, given: Given, key: str = "") -> str:
        found = _FOUND.search(refusal.error)
        values = {"count": found[1], "lines": found[2]} if found else {}
        is_denied = refusal.code.startswith("policy.")
        if key in self:
            return self[key].format_map(given)
        said = self.get("policy" if is_denied else refusal.code)
        text = said.format_map({**given, **values}) if said else f"Error: {refusal.error}"
        reason = refusal.error if said and is_denied else ""
        return "\n".join(filter(None, (text, reason, refusal.hint)))


def _remarks(result: ToolResult) -> list[str]:
    """Return the bracketed lines below an output: notes and warnings, not the snippet or cut."""
    ours = (line for line in result.content.split("\n")[1:] if line.startswith("["))
    snippet = result.details.get("content_snippet")
    return [line for line in ours if line != snippet and not line.startswith("[...")]


_CUT: Final = re.compile(
    r"^(\[lines \S+ of \d+ shown).* use offset=(\d+) to continue\]$", re.MULTILINE
)


def _notes(result: ToolResult) -> list[str]:
    """Return the rest of a command's result: not its output, nor changes without a remark."""
    # Threat: its output may imitate these lines. The output comes last, under a heading.
    head, _, _ = result.content.partition("\nstdout: ")
    notes, is_listed = list[str](), False
    for line in head.split("\n")[1:]:
        is_plain = line.startswith("files changed: ") and ";" not in line
        is_listed = is_plain or (is_listed and line.startswith("  "))
        if not is_listed and not line.startswith("sandbox: "):
            notes.append(line)
    return notes


def _viewed(result: ToolResult) -> str:
    return _CUT.sub(r"\1; use view_range=[\2, -1] to continue]", result.content)


def _block(results: Results, *said: str) -> dict[str, Json]:
    return {"content": "\n".join(said), "is_error": results[0].refusal is not None}


_FILE_COMMANDS: Final = {
    "view": "view",
    "create": "create_file",
    "str_replace": "str_replace",
    "insert": "insert_text",
}
_DONE: Final = {
    "create": "File created successfully at: {path}",
    "str_replace": "Successfully replaced text at exactly one location.",
    "insert": "The file {path} has been edited.",
    "delete": "Successfully deleted {path}",
    "rename": "Successfully renamed {old_path} to {new_path}",
}
_EDITOR: Final = _Messages(
    {
        PathNotFoundError.code: "Error: File not found",
        StringNotFoundError.code: "Error: No match found for replacement. Please check your text "
        "and try again.",
        AmbiguousMatchError.code: "Error: Found {count} matches for replacement text. Please "
        "provide more context to make a unique match.",
        "policy": "Error: Permission denied. Cannot {act} file.",
    }
)


def _ask_editor(call: ToolCall, names: Names) -> list[ToolCall]:
    given = _arguments(call.arguments, "command", _FILE_COMMANDS, file_text="content")
    given["path"] = _from_root(given["path"], names)
    return [ToolCall(call.id, _FILE_COMMANDS[call.arguments["command"]], given)]


def _answer_editor(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    if result.refusal is not None:
        act = "read" if given.get("command") == "view" else "write to"
        return _block(results, _EDITOR.of(result.refusal, {**given, "act": act}))
    if given["command"] != "view":
        return _block(results, _DONE[given["command"]].format_map(given), *_remarks(result))
    if "entries_total" in result.details:
        return _block(results, result.content)
    return _block(results, re.sub(r"(?m)^ *(\d+)\t", r"\1: ", _viewed(result)))


_NO_PATH: Final = "The path {path} does not exist. Please provide a valid path."
_MEMORY: Final = _Messages(
    {
        PathNotFoundError.code: _NO_PATH,
        PathNotAFileError.code: _NO_PATH,
        PathExistsError.code: "Error: File {path} already exists",
        StringNotFoundError.code: "No replacement was performed, old_str `{old_str}` did not "
        "appear verbatim in {path}.",
        AmbiguousMatchError.code: "No replacement was performed. Multiple occurrences of old_str "
        "`{old_str}` in lines: {lines}. Please ensure it is unique",
        "delete path.not_found": "Error: The path {path} does not exist",
        "rename path.not_found": "Error: The path {old_path} does not exist",
        "rename path.exists": "Error: The destination {new_path} already exists",
    }
)
_LISTED: Final = (
    "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items and "
    "node_modules:"
)
_REMEMBERED: Final = (
    "The memory file has been edited. Here is the snippet showing the change (with line numbers):"
)


def _ask_memory(call: ToolCall, names: Names) -> list[ToolCall]:
    del names
    ours = {"file_text": "content", "old_path": "path", "new_path": "to"}
    given = _arguments(call.arguments, "command", ("view", *_DONE), **ours)
    given |= {name: _path_in_memory(given[name]) for name in ("path", "to") if name in given}
    return [ToolCall(call.id, f"memory_{call.arguments['command']}", given)]


def _answer_memory(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    command, details = str(given.get("command")), result.details
    if result.refusal is not None:
        key = f"{command} {result.refusal.code}"
        return _block(results, _MEMORY.of(result.refusal, given, key))
    if command == "str_replace":
        return _block(results, _REMEMBERED, str(details["content_snippet"]))
    if command != "view":
        return _block(results, _DONE[command].format_map(given))
    if "entries_total" in details:
        return _block(results, _LISTED.format_map(given), result.content)
    said = f"Here's the content of {given['path']} with line numbers:"
    return _block(results, said, _viewed(result))


def _ask_bash(call: ToolCall, names: Names) -> list[ToolCall]:
    del names
    if call.arguments.get("restart") is True:
        return [ToolCall(call.id, "shell_stop", {"session": _BASH})]
    given = {name: value for name, value in call.arguments.items() if name != "restart"}
    return [ToolCall(call.id, "run_shell", {**given, "session": _BASH})]


def _answer_bash(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    refusal, details = result.refusal, result.details
    # Before the first command there is no session to end.
    is_restarted = refusal is None or refusal.code == InvalidArgumentsError.code
    if given.get("restart") is True and is_restarted:
        return {"content": "Bash session restarted", "is_error": False}
    if refusal is not None:
        return _block(results, refusal.as_text())
    said = [str(details[name]).removesuffix("\n") for name in ("stdout", "stderr")]
    if details["exit_code"] and not details["timed_out"]:
        said.append(f"[exit code {details['exit_code']}]")
    said += _notes(result)
    return {"content": "\n".join(filter(None, said)), "is_error": details["exit_code"] != 0}


_OPERATIONS: Final = {
    "create_file": ("create_file", "Created"),
    "update_file": ("patch_file", "Updated"),
    "delete_file": ("delete_file", "Deleted"),
}
_PATCH: Final = _Messages(
    {
        PathNotFoundError.code: "Error: File not found at path '{path}'",
        f"create_file {FileChangedError.code}": "Error: apply_patch cannot create {path} because "
        "it already exists. Use an update_file operation to change an existing file.",
    }
)


def _ask_patch(call: ToolCall, names: Names) -> list[ToolCall]:
    given = _arguments(call.arguments, "type", _OPERATIONS)
    given["path"], kind = _from_root(given["path"], names), call.arguments["type"]
    if kind == "create_file":
        from paddock.text.v4a import created_content  # noqa: PLC0415 - only to create by a patch

        # Threat: a file at the path was not shown to the model, and would be overwritten.
        given["if_version"] = ABSENT
        given["content"] = created_content(given.pop("diff"))
    return [ToolCall(call.id, _OPERATIONS[kind][0], given)]


def _answer_patch(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    kind, refusal = str(given.get("type")), result.refusal
    if refusal is not None:
        return {"status": "failed", "output": _PATCH.of(refusal, given, f"{kind} {refusal.code}")}
    said = [f"{_OPERATIONS[kind][1]} {given['path']}", *_remarks(result)]
    return {"status": "completed", "output": "\n".join(said)}


def _ask_shell(call: ToolCall, names: Names) -> list[ToolCall]:
    del names
    more = {**call.arguments}
    commands, milliseconds = more.pop("commands", None), more.pop("timeout_ms", None)
    more.pop("max_output_length", None)
    if not isinstance(commands, list) or not commands:
        raise _invalid("commands", commands, 'give a list with at least one, as ["ls"]')
    if type(milliseconds) is int:
        # Paddock's timeout is in seconds: rounded up, never less than was asked for.
        more["timeout"] = -(-milliseconds // 1000)
    elif milliseconds is not None:
        raise _invalid("timeout_ms", milliseconds, "give an integer, or leave it out")
    listed = cast("list[Json]", commands)
    ids = [call.id] if len(listed) == 1 else [f"{call.id}.{n + 1}" for n in range(len(listed))]
    return [
        ToolCall(each, "run_shell", {"command": command, **more})
        for each, command in zip(ids, listed, strict=True)
    ]


def _answer_shell(given: Given, results: Results) -> dict[str, Json]:
    rows, most = [_output_row(result) for result in results], given.get("max_output_length")
    if type(most) is not int:
        return {"output": rows}
    left, missing = max(0, most), 0
    for row in rows:
        for name in ("stdout", "stderr"):
            text = row[name]
            row[name] = text[:left]
            missing, left = missing + max(0, len(text) - left), max(0, left - len(text))
    if missing:
        rows[-1]["stderr"] += f"[{missing} more characters: max_output_length is {most}]"
    return {"max_output_length": most, "output": rows}


def _output_row(result: ToolResult) -> dict[str, Json]:
    details, refusal = result.details, result.refusal
    if refusal is not None:
        outcome = {"type": "exit", "exit_code": 1}
        return {"stdout": "", "stderr": refusal.as_text(), "outcome": outcome}
    said = [str(details["stderr"]).removesuffix("\n"), *_notes(result)]
    if "clamped" in details:
        said.append(f"[clamped: timeout_ms={1000 * details['clamped']['timeout']}]")
    is_late = details["timed_out"]
    return {
        "stdout": details["stdout"],
        "stderr": "".join(f"{line}\n" for line in said if line),
        "outcome": {"type": "timeout"}
        if is_late
        else {"type": "exit", "exit_code": details["exit_code"]},
    }


_TOOLS: Final = {
    "str_replace_based_edit_tool": NativeTool(
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        (*_FILE_COMMANDS.values(),),
        _ask_editor,
        _answer_editor,
    ),
    "bash": NativeTool(
        {"type": "bash_20250124", "name": "bash"}, ("run_shell",), _ask_bash, _answer_bash
    ),
    "memory": NativeTool(
        {"type": "memory_20250818", "name": "memory"},
        ("memory_view", "memory_create"),
        _ask_memory,
        _answer_memory,
    ),
    "apply_patch_call": NativeTool(
        {"type": "apply_patch"},
        tuple(tool for tool, _ in _OPERATIONS.values()),
        _ask_patch,
        _answer_patch,
    ),
    "shell_call": NativeTool(
        {"type": "shell", "environment": {"type": "local"}},
        ("run_shell",),
        _ask_shell,
        _answer_shell,
    ),
}
