"""What a sentence that was recognised means, as calls to Paddock's own tools.

A wish names several ways to fulfil it, best first: which of these tools there are
depends on the agent.
"""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from paddock.values.calls import Json


class Wish(Struct, frozen=True):
    tool: str
    arguments: Mapping[str, Json]


Wishes = tuple[Wish, ...]

Match = re.Match[str]

TEXT: Final = r"""(?:"[^"]*"|'[^']*'|`[^`]*`|“[^”]*”)"""
PATH: Final = r"""(?:"[^"]+"|'[^']+'|`[^`]+`|[^\s"'`,;]+)"""
_FOLDERS: Final = {
    "kernel": "HOT/kernel",
    "config": "HOT/config",
    "configuration": "HOT/config",
    "scripts": "HOT/scripts",
    "schemas": "HOT/schemas",
    "registries": "HOT/registries",
    "installed": "HOT/installed",
    "contracts": "HO1/contracts",
    "scratch": "HO2/scratch",
}
"""Folders of a plane that people call by their last name."""

_LEDGERS: Final = {
    "session": "ho2m",
    "sessions": "ho2m",
    "ho2m": "ho2m",
    "execution": "ho1m",
    "executor": "ho1m",
    "trace": "ho1m",
    "ho1m": "ho1m",
    "governance": "governance",
    "system": "governance",
}
_EVENTS: Final = (
    (r"turns?", "TURN_RECORDED", "ho2m"),
    (r"escalations?", "ESCALATION", "ho2m"),
    (r"quality gates?", "QUALITY_GATE", "ho2m"),
    (r"(?:denied|refused)(?: tools?| calls?)*|denials?|refusals?", "TOOL_DENIED", "ho1m"),
    (r"(?:model|llm) (?:calls?|exchanges?)", "LLM_CALL", "ho1m"),
    (r"tool (?:calls?|intents?)", "TOOL_INTENT", "ho1m"),
    (r"tool results?", "TOOL_RESULT", "ho1m"),
)
"""How events are called, their type, and the ledger that holds them."""
_HOLDERS: Final = {
    **dict.fromkeys(
        (
            "SESSION_START",
            "SESSION_END",
            "TURN_RECORDED",
            "WO_PLANNED",
            "WO_DISPATCHED",
            "WO_CHAIN_COMPLETE",
            "QUALITY_GATE",
            "ESCALATION",
            "DEGRADATION",
        ),
        "ho2m",
    ),
    **dict.fromkeys(
        (
            "LLM_CALL",
            "TOOL_INTENT",
            "TOOL_RESULT",
            "TOOL_DENIED",
            "WO_COMPLETED",
            "WO_FAILED",
        ),
        "ho1m",
    ),
}
"""Which ledger holds an event that is called by its type."""
_PLAIN_FILES: Final = frozenset({"makefile", "dockerfile", "license", "readme", "copying"})
"""Files that have no suffix."""


def unquoted(text: str) -> str:
    """The inside of quotation marks, else the text without a sentence's end."""
    if len(text) >= 2 and (text[0], text[-1]) in {('"', '"'), ("'", "'"), ("`", "`"), ("“", "”")}:
        return text[1:-1]
    return text.rstrip("?!.,:") or text


def _path(found: Match) -> str:
    given = found.groupdict().get("path")
    return _clean(given) if given else "."


def _clean(given: str) -> str:
    path = unquoted(given)
    # "the root directory", and the folder itself.
    return "." if path.lower() in {"root", "here", "workspace", "/", "./"} else path


def mean_list_packages(found: Match) -> Wishes:
    return (Wish("list_packages", {}),)


def mean_gate_check(found: Match) -> Wishes:
    name = found.groupdict().get("gate")
    return (Wish("gate_check", {"gate": name.upper() if name else "all"}),)


def mean_list_files(found: Match) -> Wishes:
    path = _path(found)
    in_plane = _FOLDERS.get(path.lower(), path)
    return (
        Wish("list_files", {"path": in_plane}),
        Wish("ls", {"path": path}),
        Wish("view", {"path": path}),
    )


def mean_list_unless_file(found: Match) -> Wishes:
    return () if _is_like_a_file(_path(found)) else mean_list_files(found)


def mean_read(found: Match) -> Wishes:
    """A file, or lines of it; nothing where it is not called like a file."""
    path = _clean(found["path"])
    if "file" not in found[0].lower().split() and not _is_like_a_file(path):
        return ()
    first = found["first"]
    window: dict[str, Json] = {}
    if first is not None:
        window["offset"] = int(first)
        last = found["last"]
        window["limit"] = 1 if last is None else max(1, int(last) - int(first) + 1)
    return (
        Wish("read_file", {"path": path, **window}),
        Wish("view", {"path": path, **window}),
    )


def _is_like_a_file(path: str) -> bool:
    last = path.rpartition("/")[2].lower()
    has_suffix = "." in last and last not in {".", ".."}
    return has_suffix or "/" in path or last in _PLAIN_FILES


def mean_write(found: Match) -> Wishes:
    path, content = _clean(found["path"]), unquoted(found["text"])
    return (
        Wish("write_file_dev", {"path": path, "content": content, "create_dirs": True}),
        Wish("create_file", {"path": path, "content": content}),
    )


def mean_replace(found: Match) -> Wishes:
    path, old, new = _clean(found["path"]), unquoted(found["old"]), unquoted(found["new"])
    return (
        Wish("edit_file_dev", {"path": path, "old_string": old, "new_string": new}),
        Wish("str_replace", {"path": path, "old_str": old, "new_str": new}),
    )


def mean_search(found: Match) -> Wishes:
    return _grep(unquoted(found["text"]), _path(found))


def mean_search_word(found: Match) -> Wishes:
    return _grep(found["word"], _path(found))


def _grep(text: str, path: str) -> Wishes:
    pattern = _regex(text)
    return (
        Wish("grep_dev", {"pattern": pattern, "path": path}),
        Wish("grep", {"pattern": pattern, "path": path}),
    )


def _regex(text: str) -> str:
    """The text as a pattern; where it is none, the characters themselves."""
    try:
        re.compile(text)
    except re.error:
        return re.escape(text)
    return text


def mean_find(found: Match) -> Wishes:
    return _glob(unquoted(found["name"]), _path(found))


def mean_find_anywhere(found: Match) -> Wishes:
    return _glob(unquoted(found["path"]), ".")


def mean_find_glob(found: Match) -> Wishes:
    return _glob(found["glob"], _path(found))


def _glob(pattern: str, path: str) -> Wishes:
    return (
        Wish("find", {"pattern": pattern, "path": path}),
        Wish("list_files", {"path": path, "glob": pattern}),
    )


def mean_move(found: Match) -> Wishes:
    return (Wish("move_file", {"path": _clean(found["path"]), "to": _clean(found["to"])}),)


def mean_delete(found: Match) -> Wishes:
    return (Wish("delete_file", {"path": _clean(found["path"])}),)


def mean_output(found: Match) -> Wishes:
    name = unquoted(found["name"])
    return (Wish("write_output", {"name": name, "content": unquoted(found["text"])}),)


def mean_shell(found: Match) -> Wishes:
    command = found["command"].strip()
    return _run(unquoted(command) if re.fullmatch(TEXT, command) else command)


def mean_shell_text(found: Match) -> Wishes:
    return _run(unquoted(found["text"]))


def _run(command: str) -> Wishes:
    return (Wish("run_shell_dev", {"command": command}), Wish("run_shell", {"command": command}))


def mean_ledger(found: Match) -> Wishes:
    said = found[0]
    arguments: dict[str, Json] = {}
    event, ledger = _event(said)
    named = [_LEDGERS[word] for word in re.findall(r"\w+", said.lower()) if word in _LEDGERS]
    arguments["ledger"] = named[-1] if named else ledger or "governance"
    if event:
        arguments["event_type"] = event
    count = re.search(r"\b(?:last|newest|latest|recent) (\d{1,6})\b", said, re.IGNORECASE)
    if count:
        arguments["max_entries"] = int(count[1])
    return (Wish("query_ledger", arguments),)


def _event(said: str) -> tuple[str, str]:
    """The event's type and the ledger that holds it; "" where it is not said, or not known."""
    exact = re.search(r"\b[A-Z]+(?:_[A-Z]+)+\b", said)
    if exact is not None:
        return exact[0], _HOLDERS.get(exact[0], "")
    for words, event, ledger in _EVENTS:
        if re.search(rf"\b(?:{words})\b", said, re.IGNORECASE):
            return event, ledger
    return "", ""
