"""The providers' own tool types, as calls of ours and back.

    str_replace_based_edit_tool  text_editor_20250728   view, create_file, str_replace, insert_text
    bash                         bash_20250124          run_shell in one session, shell_stop
    memory                       memory_20250818        memory_view, memory_create, …
    apply_patch_call             apply_patch            create_file, patch_file, delete_file
    shell_call                   shell                  run_shell, a call for each command

A native call is judged, run and recorded as the calls that it becomes. Only its words are the
provider's, as its documentation has them, so that models know them; the reason of a refusal, and
what to do next, stand below them. An absolute path is one from the workspace's root.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final, cast

from msgspec import Struct

from paddock.errors import (
    AmbiguousMatchError,
    FileChangedError,
    InvalidArgumentsError,
    PathExistsError,
    PathNotAFileError,
    PathNotFoundError,
    ReadOnlyPathError,
    StringNotFoundError,
    UnknownArgumentError,
)
from paddock.policy.rules import MEMORIES
from paddock.runtime.messages import NATIVE_CALLS, Asked, Malformed, call_of, native_names
from paddock.text.show import quote, show_name
from paddock.tools.effects import ABSENT
from paddock.values.calls import Json, Refusal, ToolCall, ToolResult

Given = Mapping[str, Json]
Results = Sequence[ToolResult]
_BASH: Final = "bash"
"""The session of Anthropic's bash, of which a model has one."""


class NativeDialect(Struct, frozen=True):
    ask: Callable[[ToolCall, tuple[str, ...]], Sequence[ToolCall]]
    """The calls that it becomes. Raises: InvalidArgumentsError."""
    answer: Callable[[Given, Results], dict[str, Json]]
    """What the block that answers has besides its type and id."""


class _Part(Struct, frozen=True):
    """One call of a message, and what is run for it."""

    given: Asked
    asked: tuple[Asked, ...]
    name: str = ""
    """Of a native tool; of ours none."""


class NativeTurn:
    """The calls of one message, some of them native; `roots` are the workspace's own names.

    `own` says of a name whether the program has a tool of that name, which is meant then.
    """

    def __init__(
        self,
        provider: str,
        asked: Sequence[Asked],
        roots: tuple[str, ...],
        own: Callable[[str], bool],
    ) -> None:
        native = {name for name in native_names(provider) if not own(name)}
        self._parts = [
            _part_of(each, roots) if call_of(each).tool in native else _Part(each, (each,))
            for each in asked
        ]

    @property
    def asked(self) -> list[Asked]:
        return [each for part in self._parts for each in part.asked]

    def write(
        self, results: Results, plain: Callable[[list[ToolResult]], list[dict[str, Json]]]
    ) -> list[dict[str, Json]]:
        left = iter(results)
        blocks: list[dict[str, Json]] = []
        for part in self._parts:
            own = list(islice(left, len(part.asked)))
            if not part.name:
                blocks += plain(own)
                continue
            call, kind = call_of(part.given), NATIVE_CALLS[part.name].output
            key = "tool_use_id" if kind == "tool_result" else "call_id"
            answer = _DIALECTS[part.name].answer(call.arguments, own)
            blocks.append({"type": kind, key: call.id, **answer})
        return blocks


def _part_of(given: Asked, roots: tuple[str, ...]) -> _Part:
    call = call_of(given)
    if isinstance(given, Malformed):
        return _Part(given, (given,), call.tool)
    try:
        return _Part(given, tuple(_DIALECTS[call.tool].ask(call, roots)), call.tool)
    except InvalidArgumentsError as error:
        # Not with what it was given: which of it is content is known of our tools alone.
        refusal = Refusal(error.code, error.message, error.hint)
        return _Part(given, (Malformed(ToolCall(call.id, call.tool, {}), refusal),), call.tool)


# --- what a call is given ----------------------------------------------------------------------


class _Command(Struct, frozen=True):
    tool: str
    names: Mapping[str, str]
    """Our names of what it is given, by the provider's."""


_PATH: Final = {"path": "path"}
_VIEW: Final = _Command("view", {**_PATH, "view_range": ""})
_CREATE: Final = _Command("create_file", {**_PATH, "file_text": "content"})
_REPLACE: Final = _Command("str_replace", {**_PATH, "old_str": "old_str", "new_str": "new_str"})
_INSERTED: Final = {"insert_line": "insert_line", "insert_text": "insert_text"}
_INSERT: Final = _Command("insert_text", {**_PATH, **_INSERTED})
_EDITOR_COMMANDS: Final[Mapping[str, _Command]] = {
    "view": _VIEW,
    "create": _CREATE,
    "str_replace": _REPLACE,
    "insert": _INSERT,
}
_MEMORY_COMMANDS: Final[Mapping[str, _Command]] = {
    **_EDITOR_COMMANDS,
    "delete": _Command("delete_file", _PATH),
    "rename": _Command("move_file", {"old_path": "path", "new_path": "to"}),
}


def _command_of(given: Given, known: Mapping[str, _Command]) -> tuple[str, dict[str, Json]]:
    """The command, and what it is given under our names. Raises: InvalidArgumentsError."""
    name = given.get("command")
    if not isinstance(name, str) or name not in known:
        raise InvalidArgumentsError(
            f"unknown command {quote(name)}",
            where="command",
            hint=f"the commands are: {', '.join(known)}",
        )
    return name, _renamed(given, known[name].names, "command")


def _renamed(given: Given, names: Mapping[str, str], *others: str) -> dict[str, Json]:
    """What is null was left out. Raises: InvalidArgumentsError: it is missing, or not known."""
    there = {name: value for name, value in given.items() if value is not None}
    for name in there:
        if name not in names and name not in others:
            raise UnknownArgumentError(
                f"unknown argument {quote(name)}",
                where=show_name(name),
                hint=f"the arguments are: {', '.join((*others, *names))}",
            )
    for name, ours in names.items():
        if ours and name not in there:
            raise InvalidArgumentsError(f"{name} is required", where=name, hint=f"give {name}")
    taken = {ours: there[name] for name, ours in names.items() if ours}
    return {**taken, **_window(there.get("view_range"))}


def _window(bounds: Json) -> dict[str, Json]:
    """`view_range` as our offset and limit. Raises: InvalidArgumentsError."""
    if bounds is None:
        return {}
    match bounds:
        case [int(first), -1] if first >= 1:
            return {"offset": first}
        case [int(first), int(last)] if 1 <= first <= last:
            return {"offset": first, "limit": last - first + 1}
        case _:
            raise InvalidArgumentsError(
                f"Invalid `view_range` parameter: {quote(bounds)}",
                where="view_range",
                hint="give two line numbers, from 1, such as [1, 20]; -1 for the last line",
            )


def _rooted(path: Json, roots: tuple[str, ...]) -> Json:
    """An absolute path as one from the root; the workspace's own names for it stay as they are."""
    if not isinstance(path, str) or not path.startswith("/"):
        return path
    # Only chooses how the text is read: where it leads is resolved, and judged, afterwards.
    if any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in roots):
        return path
    return path.lstrip("/") or "."


def _remembered(path: Json) -> Json:
    """A path from /memories on as one in the memory. Raises: InvalidArgumentsError."""
    if not isinstance(path, str):
        return path
    if path.rstrip("/") == MEMORIES:
        return "."
    # Threat: `/memories-of-others`, or a path of the workspace.
    if path.startswith(f"{MEMORIES}/"):
        return path.removeprefix(MEMORIES).lstrip("/") or "."
    raise InvalidArgumentsError(
        f"Path must start with {MEMORIES}, got: {quote(path)}",
        where="path",
        hint=f"use a path such as {MEMORIES}/notes.md",
    )


# --- what a result says ------------------------------------------------------------------------

_FOUND: Final = re.compile(r"found (?:over )?(\d+) times .*, at lines ([\d, ]*\d.*)\Z", re.DOTALL)


class Words(Struct, frozen=True):
    """A provider's messages by our codes; `{path}` and others are what the call was given."""

    errors: Mapping[str, str]
    denied: str = ""

    def of(self, refusal: Refusal, given: Given) -> str:
        said = self.errors.get(refusal.code)
        if said is None and refusal.code.startswith("policy."):
            said = self.denied
        if not said:
            return f"Error: {refusal.error}" + (f"\n{refusal.hint}" if refusal.hint else "")
        found = _FOUND.search(refusal.error)
        count, lines = found.groups() if found else ("", "")
        shown = {name: value for name, value in given.items() if isinstance(value, str)}
        text = said.format_map(_Known({**shown, "count": count, "lines": lines}))
        reason = refusal.error if said == self.denied else ""
        return "\n".join(filter(None, (text, reason, refusal.hint)))


class _Known(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return ""


def _remarks(result: ToolResult) -> list[str]:
    """The lines in brackets that stand below an output: notes and warnings, no cut of a snippet."""
    lines = result.content.split("\n")[1:]
    ours = (line for line in lines if line.startswith("[") and not line.startswith("[..."))
    return [line for line in ours if line != result.details.get("content_snippet")]


def _viewed(result: ToolResult, form: Callable[[str, str], str]) -> str:
    """Numbered lines in the form of the provider, and what is said about them in its words."""
    snippet = str(result.details.get("content_snippet", ""))
    rest = result.content.removeprefix(snippet).strip("\n")
    rows = [form(*row.split("\t", 1)) for row in snippet.split("\n") if row]
    notices = [
        re.sub(r"use offset=(\d+) to go on", r"use view_range [\1, -1] to go on", notice)
        for notice in filter(None, rest.split("\n"))
        if ", limit=" not in notice
    ]
    return "\n".join([*rows, *notices])


def _block(results: Results, said: str) -> dict[str, Json]:
    return {"content": said, "is_error": results[0].refusal is not None}


# --- Anthropic: text_editor_20250728 -----------------------------------------------------------

_NO_PLACE: Final = "Error: No match found for replacement. Please check your text and try again."
_PLACES: Final = (
    "Error: Found {count} matches for replacement text. Please provide more context to make a "
    "unique match."
)
_EDITOR: Final = Words(
    {
        PathNotFoundError.code: "Error: File not found",
        StringNotFoundError.code: _NO_PLACE,
        AmbiguousMatchError.code: _PLACES,
        ReadOnlyPathError.code: "Error: Permission denied. Cannot write to file.",
    },
    denied="Error: Permission denied. Cannot write to file.",
)
_EDITED: Final = {
    "create": "File created successfully at: {path}",
    "str_replace": "Successfully replaced text at exactly one location.",
    "insert": "The file {path} has been edited.",
}


def _ask_editor(call: ToolCall, roots: tuple[str, ...]) -> list[ToolCall]:
    command, taken = _command_of(call.arguments, _EDITOR_COMMANDS)
    taken["path"] = _rooted(taken["path"], roots)
    return [ToolCall(call.id, _EDITOR_COMMANDS[command].tool, taken)]


def _answer_editor(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    if result.refusal is not None:
        return _block(results, _EDITOR.of(result.refusal, given))
    if given["command"] != "view":
        said = _EDITED[given["command"]].format(path=given["path"])
        return _block(results, "\n".join([said, *_remarks(result)]))
    if "entries_total" in result.details:
        return _block(results, result.content)
    return _block(results, _viewed(result, lambda number, text: f"{number.strip()}: {text}"))


# --- Anthropic: memory_20250818 ----------------------------------------------------------------

_MISSING: Final = "Error: The path {path}{old_path} does not exist"
_INVALID_PATH: Final = "The path {path} does not exist. Please provide a valid path."
_MEMORY: Final = {
    "view": Words({PathNotFoundError.code: _INVALID_PATH}),
    "create": Words({PathExistsError.code: "Error: File {path} already exists"}),
    "str_replace": Words(
        {
            PathNotFoundError.code: f"Error: {_INVALID_PATH}",
            PathNotAFileError.code: f"Error: {_INVALID_PATH}",
            StringNotFoundError.code: "No replacement was performed, old_str `{old_str}` did not "
            "appear verbatim in {path}.",
            AmbiguousMatchError.code: "No replacement was performed. Multiple occurrences of "
            "old_str `{old_str}` in lines: {lines}. Please ensure it is unique",
        }
    ),
    "insert": Words({PathNotFoundError.code: _MISSING, PathNotAFileError.code: _MISSING}),
    "delete": Words({PathNotFoundError.code: _MISSING}),
    "rename": Words(
        {
            PathNotFoundError.code: _MISSING,
            PathExistsError.code: "Error: The destination {new_path} already exists",
        }
    ),
}
_REMEMBERED: Final = {
    "create": "File created successfully at: {path}",
    "str_replace": "The memory file has been edited. Here is the snippet showing the change (with "
    "line numbers):\n{snippet}",
    "insert": "The file {path} has been edited.",
    "delete": "Successfully deleted {path}",
    "rename": "Successfully renamed {old_path} to {new_path}",
}
_LISTED: Final = (
    "Here're the files and directories up to 2 levels deep in {path}, excluding hidden items and "
    "node_modules:\n"
)


def _ask_memory(call: ToolCall, roots: tuple[str, ...]) -> list[ToolCall]:
    del roots
    command, taken = _command_of(call.arguments, _MEMORY_COMMANDS)
    taken |= {name: _remembered(taken[name]) for name in ("path", "to") if name in taken}
    return [ToolCall(call.id, f"memory_{command}", taken)]


def _answer_memory(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    if result.refusal is not None:
        return _block(
            results, _MEMORY.get(str(given.get("command")), _EDITOR).of(result.refusal, given)
        )
    if given["command"] != "view":
        snippet = result.details.get("content_snippet", "")
        said = _REMEMBERED[given["command"]].format_map({**given, "snippet": snippet})
        return _block(results, said)
    if "entries_total" in result.details:
        return _block(results, _LISTED.format(path=given["path"]) + result.content)
    rows = _viewed(result, lambda number, text: f"{number}\t{text}")
    return _block(results, f"Here's the content of {given['path']} with line numbers:\n{rows}")


# --- Anthropic: bash_20250124 ------------------------------------------------------------------


def _ask_bash(call: ToolCall, roots: tuple[str, ...]) -> list[ToolCall]:
    del roots
    given = call.arguments
    if given.get("restart") is True:
        return [ToolCall(call.id, "shell_stop", {"session": _BASH})]
    taken = _renamed(given, {"command": "command"}, "restart")
    return [ToolCall(call.id, "run_shell", {**taken, "session": _BASH})]


def _answer_bash(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    refusal, details = result.refusal, result.details
    # Where nothing ran yet there is no session to end.
    is_anew = refusal is None or refusal.code == InvalidArgumentsError.code
    if given.get("restart") is True and is_anew:
        return {"content": "Bash session restarted", "is_error": False}
    if refusal is not None:
        return _block(results, refusal.as_text())
    said = [str(details[name]).removesuffix("\n") for name in ("stdout", "stderr")]
    if details["exit_code"] and not details["timed_out"]:
        said.append(f"[exit code {details['exit_code']}]")
    said += details.get("remarks", ())
    is_error = bool(details["timed_out"] or details["exit_code"])
    return {"content": "\n".join(filter(None, said)), "is_error": is_error}


# --- OpenAI: apply_patch -----------------------------------------------------------------------

_PATCH_TOOLS: Final = {
    "create_file": ("create_file", "Created"),
    "update_file": ("patch_file", "Updated"),
    "delete_file": ("delete_file", "Deleted"),
}
_PATCH: Final = Words(
    {
        PathNotFoundError.code: "Error: File not found at path '{path}'",
        PathExistsError.code: "Error: apply_patch cannot create {path} because it already exists. "
        "Use an update_file operation to change an existing file.",
    }
)


def _ask_patch(call: ToolCall, roots: tuple[str, ...]) -> list[ToolCall]:
    given, kind = call.arguments, call.arguments.get("type")
    if not isinstance(kind, str) or kind not in _PATCH_TOOLS:
        raise InvalidArgumentsError(
            f"unknown operation {quote(kind)}",
            where="type",
            hint=f"the operations are: {', '.join(_PATCH_TOOLS)}",
        )
    names = _PATH if kind == "delete_file" else {**_PATH, "diff": "diff"}
    taken = _renamed(given, names, "type")
    taken["path"] = _rooted(taken["path"], roots)
    if kind == "create_file":
        # Threat: what stands there already was not shown to the model, and would be gone.
        taken |= {"content": _created(taken.pop("diff")), "if_version": ABSENT}
    return [ToolCall(call.id, _PATCH_TOOLS[kind][0], taken)]


def _answer_patch(given: Given, results: Results) -> dict[str, Json]:
    (result,) = results
    refusal, kind = result.refusal, str(given.get("type"))
    if refusal is not None:
        if kind == "create_file" and refusal.code == FileChangedError.code:
            refusal = Refusal(PathExistsError.code, refusal.error)
        return {"status": "failed", "output": _PATCH.of(refusal, given)}
    said = f"{_PATCH_TOOLS[kind][1]} {given['path']}"
    return {"status": "completed", "output": "\n".join([said, *_remarks(result)])}


def _created(diff: Json) -> Json:
    from paddock.text.v4a import created_content  # noqa: PLC0415 - for who creates by a patch

    if not isinstance(diff, str):
        return diff
    # Half of a surrogate pair is refused by the tool, with its place.
    return created_content(diff.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")


# --- OpenAI: shell -----------------------------------------------------------------------------


def _ask_shell(call: ToolCall, roots: tuple[str, ...]) -> list[ToolCall]:
    del roots
    given = call.arguments
    commands, milliseconds = given.get("commands"), given.get("timeout_ms")
    if not isinstance(commands, list) or not commands:
        raise InvalidArgumentsError(
            f"commands must be a list of commands, not {quote(commands)}",
            where="commands",
            hint='give at least one, as ["ls"]',
        )
    listed, more = cast("list[Json]", commands), dict[str, Json]()
    if milliseconds is not None:
        # Ours counts in seconds: never less than what was asked for.
        is_whole = type(milliseconds) is int
        more["timeout"] = -(-milliseconds // 1000) if is_whole else milliseconds
    ids = [call.id] if len(listed) == 1 else [f"{call.id}.{n + 1}" for n in range(len(listed))]
    return [
        ToolCall(each, "run_shell", {"command": command, **more})
        for each, command in zip(ids, listed, strict=True)
    ]


def _answer_shell(given: Given, results: Results) -> dict[str, Json]:
    rows, most = [_ran(result) for result in results], given.get("max_output_length")
    if type(most) is not int:
        return {"output": rows}
    _cut(rows, max(0, most))
    return {"max_output_length": most, "output": rows}


def _ran(result: ToolResult) -> dict[str, Json]:
    if result.refusal is not None:
        outcome = {"type": "exit", "exit_code": 1}
        return {"stdout": "", "stderr": result.refusal.as_text(), "outcome": outcome}
    details = result.details
    outcome = {"type": "exit", "exit_code": details["exit_code"]}
    remarks = "\n".join(details.get("remarks", ()))
    stderr = str(details["stderr"])
    if remarks:
        stderr = f"{stderr.removesuffix(chr(10))}\n{remarks}\n".lstrip("\n")
    return {
        "stdout": details["stdout"],
        "stderr": stderr,
        "outcome": {"type": "timeout"} if details["timed_out"] else outcome,
    }


def _cut(rows: list[dict[str, Json]], most: int) -> None:
    """Leave `most` characters of all output together, the first ones, and say what is missing."""
    left, missing = most, 0
    for row in rows:
        for name in ("stdout", "stderr"):
            text = row[name]
            row[name] = text[:left]
            missing += max(0, len(text) - left)
            left = max(0, left - len(text))
    if missing:
        rows[-1]["stderr"] += f"[{missing} more characters: max_output_length is {most}]"


_DIALECTS: Final[Mapping[str, NativeDialect]] = {
    "str_replace_based_edit_tool": NativeDialect(_ask_editor, _answer_editor),
    "bash": NativeDialect(_ask_bash, _answer_bash),
    "memory": NativeDialect(_ask_memory, _answer_memory),
    "apply_patch_call": NativeDialect(_ask_patch, _answer_patch),
    "shell_call": NativeDialect(_ask_shell, _answer_shell),
}
