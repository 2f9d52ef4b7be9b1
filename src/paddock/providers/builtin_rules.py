"""Map plain English sentences to calls of Paddock's tools: the rules of the built-in model.

A rule is a pattern for a whole sentence, and the calls that fulfil it, best first, because the
available tools depend on the agent. The first matching rule counts.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.values.calls import Json


class Wish(Struct, frozen=True):
    tool: str
    arguments: Mapping[str, Json]


Wishes = tuple[Wish, ...]
Match = re.Match[str]

TEXT: Final = r"""(?:"[^"]*"|'[^']*'|`[^`]*`|“[^”]*”)"""
_PATH: Final = r"""(?:"[^"]+"|'[^']+'|`[^`]+`|[^\s"'`,;]+)"""
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
"""Folders of a plane that users call by their last part."""
_PLAIN_FILES: Final = frozenset({"makefile", "dockerfile", "license", "readme", "copying"})
"""Files without a suffix."""

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
_HO1M: Final = frozenset(
    {"LLM_CALL", "TOOL_INTENT", "TOOL_RESULT", "TOOL_DENIED", "WO_COMPLETED", "WO_FAILED"}
)
_HO2M: Final = frozenset(
    {
        "SESSION_START",
        "SESSION_END",
        "TURN_RECORDED",
        "WO_PLANNED",
        "WO_DISPATCHED",
        "WO_CHAIN_COMPLETE",
        "QUALITY_GATE",
        "ESCALATION",
        "DEGRADATION",
    }
)
_EVENTS: Final = (
    (r"turns?", "TURN_RECORDED"),
    (r"escalations?", "ESCALATION"),
    (r"quality gates?", "QUALITY_GATE"),
    (r"(?:denied|refused)(?: tools?| calls?)*|denials?|refusals?", "TOOL_DENIED"),
    (r"(?:model|llm) (?:calls?|exchanges?)", "LLM_CALL"),
    (r"tool (?:calls?|intents?)", "TOOL_INTENT"),
    (r"tool results?", "TOOL_RESULT"),
)
"""Names of events in a sentence, and their types."""


def unquoted(text: str) -> str:
    if len(text) >= 2 and (text[0], text[-1]) in {('"', '"'), ("'", "'"), ("`", "`"), ("“", "”")}:
        return text[1:-1]
    return text.rstrip("?!.,:") or text


# Arguments from a sentence.


def _path(found: Match) -> str:
    given = found.groupdict().get("path")
    return _clean(given) if given else "."


def _clean(given: str) -> str:
    path = unquoted(given)
    # "the root directory", and the folder itself.
    return "." if path.lower() in {"root", "here", "workspace", "/", "./"} else path


def _folder(found: Match) -> str:
    path = _path(found)
    return _FOLDERS.get(path.lower(), path)


def _to(found: Match) -> str:
    return _clean(found["to"])


def _given(name: str) -> Callable[[Match], str]:
    return lambda found: unquoted(found[name])


_text, _old, _new = map(_given, ("text", "old", "new"))


def _name(found: Match) -> str:
    return found.groupdict().get("glob") or unquoted(found["name"])


def _command(found: Match) -> str:
    given = found.groupdict().get("text") or found["command"].strip()
    return unquoted(given) if re.fullmatch(TEXT, given) else given


def _gate(found: Match) -> str:
    gate = found.groupdict().get("gate")
    return gate.upper() if gate else "all"


def _regex(found: Match) -> str:
    text = found.groupdict().get("word") or _text(found)
    try:
        re.compile(text)
    except re.error:
        return re.escape(text)
    return text


# Tools and their arguments: each is a constant, or a function of the matched sentence.

_Ways = tuple[tuple[str, Mapping[str, "str | bool | Callable[[Match], str]"]], ...]

_PACKAGES: Final[_Ways] = (("list_packages", {}),)
_GATES: Final[_Ways] = (("gate_check", {"gate": _gate}),)
_LIST: Final[_Ways] = (
    ("list_files", {"path": _folder}),
    ("ls", {"path": _path}),
    ("view", {"path": _path}),
)
_OUTPUT: Final[_Ways] = (("write_output", {"name": _name, "content": _text}),)
_WRITE: Final[_Ways] = (
    ("write_file_dev", {"path": _path, "content": _text, "create_dirs": True}),
    ("create_file", {"path": _path, "content": _text}),
)
_REPLACE: Final[_Ways] = (
    ("edit_file_dev", {"path": _path, "old_string": _old, "new_string": _new}),
    ("str_replace", {"path": _path, "old_str": _old, "new_str": _new}),
)
_FIND: Final[_Ways] = (
    ("find", {"pattern": _name, "path": _path}),
    ("list_files", {"path": _path, "glob": _name}),
)
_SEARCH: Final[_Ways] = (
    ("grep_dev", {"pattern": _regex, "path": _path}),
    ("grep", {"pattern": _regex, "path": _path}),
)
_MOVE: Final[_Ways] = (("move_file", {"path": _path, "to": _to}),)
_DELETE: Final[_Ways] = (("delete_file", {"path": _path}),)
_RUN: Final[_Ways] = (
    ("run_shell_dev", {"command": _command}),
    ("run_shell", {"command": _command}),
)


def _ledger(found: Match) -> Wishes:
    said = found[0]
    exact = re.search(r"\b[A-Z]+(?:_[A-Z]+)+\b", said)
    spoken = (e for words, e in _EVENTS if re.search(rf"\b(?:{words})\b", said, re.IGNORECASE))
    event = exact[0] if exact else next(spoken, "")
    holder = "ho1m" if event in _HO1M else "ho2m" if event in _HO2M else "governance"
    named = [_LEDGERS[word] for word in re.findall(r"\w+", said.lower()) if word in _LEDGERS]
    arguments: dict[str, Json] = {"ledger": named[-1] if named else holder}
    if event:
        arguments["event_type"] = event
    count = re.search(r"\b(?:last|newest|latest|recent) (\d{1,6})\b", said, re.IGNORECASE)
    if count:
        arguments["max_entries"] = int(count[1])
    return (Wish("query_ledger", arguments),)


def _read(found: Match) -> Wishes:
    path = _path(found)
    if "file" not in found[0].lower().split() and not _is_like_a_file(path):
        return ()
    first, last = found["first"], found["last"]
    arguments: dict[str, Json] = {"path": path}
    if first is not None:
        arguments["offset"] = int(first)
        arguments["limit"] = 1 if last is None else max(1, int(last) - int(first) + 1)
    return (Wish("read_file", arguments), Wish("view", arguments))


def _list_unless_file(found: Match) -> Wishes:
    return () if _is_like_a_file(_path(found)) else _fill(_LIST, found)


def _is_like_a_file(path: str) -> bool:
    last = path.rpartition("/")[2].lower()
    has_suffix = "." in last and last not in {".", ".."}
    return has_suffix or "/" in path or last in _PLAIN_FILES


def _fill(ways: _Ways, found: Match) -> Wishes:
    return tuple(
        Wish(tool, {name: v(found) if callable(v) else v for name, v in arguments.items()})
        for tool, arguments in ways
    )


# The rules. A space matches any white space, `<name>` a group of that kind, and `{in}` phrases such
# as "in the src directory" and "under src".
_KINDS: Final = {
    "path": _PATH,
    "to": _PATH,
    "name": _PATH,
    "glob": r"[^\s\"'`]*[*?][^\s\"'`]*",
    "text": TEXT,
    "old": TEXT,
    "new": TEXT,
    "word": r"[^\s\"'`]+",
    "command": r".+",
    "gate": r"G\d[AB]?(?:-COMPLETE)?",
    "first": r"\d{1,9}",
    "last": r"\d{1,9}",
}
_PARTS: Final = {
    "{in}": "(?: {here}| {at} (?:the )?(?:{dir} )?<path>(?: {dir})?)?",
    "{enter}": "(?:{show}|ls|dir|open|what(?:'s| is) in)",
    "{put}": "(?:write|create|make|save|put)",
    "{show}": "(?:show(?: me)?|list|give me|display|get|query|print)",
    "{file}": "(?:the |a |an )?(?:new )?(?:file )?",
    "{with}": "(?:with|containing|and) (?:the )?(?:(?:contents?|text|line)(?: of|:)? )?",
    "{read}": "(?:read|show(?: me)?|open|view|cat|display|print|what(?:'s| is) in)",
    "{lines}": "(?:,? (?:from )?lines? <first>(?:(?:-| to |–)<last>)?)?",
    "{all}": "(?:all )?(?:of )?(?:the )?",
    "{plain}": r"[^\"'`]*",
    "{ledger}": r"(?<![\w./-])ledgers?(?![\w/-])",
    "{here}": "(?:(?:in )?here|in (?:this|the current) {dir})",
    "{at}": "(?:in|under|inside|below|at|of)",
    "{dir}": "(?:directory|folder|dir)",
}
_TABLE: Final[tuple[tuple[str, _Ways | Callable[[Match], Wishes]], ...]] = (
    ("(?:run|do|start|perform|execute) (?:the |a |{all})gate(?:s| checks?)?", _GATES),
    ("(?:run|check|show|is|verify|test) (?:the )?(?:gate )?<gate>(?: .*)?", _GATES),
    ("(?:run the )?gate checks?(?: (?:for|of) <gate>)?", _GATES),
    ("(?:check|verify|test) {all}gates", _GATES),
    ("(?:do|are) {all}gates (?:pass|passing|hold|holding|green|ok)", _GATES),
    ("(?:what|which) (?:frameworks|packages|specs)(?: .*)?", _PACKAGES),
    ("{show} {all}(?:installed )?(?:frameworks|packages|specs)(?: .*)?", _PACKAGES),
    ("(?:{show}|what(?:'s| is| are| happened)?|which|how many) {plain}{ledger}{plain}", _ledger),
    (r"{show} {plain}\b(?:events|entries)\b{plain}", _ledger),
    ("(?:write|save|make|create) (?:an? )?output (?:named|called) <name> {with}<text>", _OUTPUT),
    ("{put} {file}(?:(?:at|to|in|named|called) )?<path> {with}<text>", _WRITE),
    (
        "(?:write|save|put) (?:the )?(?:text |content )?<text> (?:to|into|in|at) {file}<path>",
        _WRITE,
    ),
    ("(?:replace|change) <old> (?:with|by|to|into) <new> in {file}<path>", _REPLACE),
    ("in {file}<path>,? (?:replace|change) <old> (?:with|by|to|into) <new>", _REPLACE),
    ("find {all}files? (?:named|called|matching|like) <name>{in}", _FIND),
    ("find {all}<glob>(?: files)?{in}", _FIND),
    ("(?:search|grep|look|find)(?: for)? (?:the (?:text|word|pattern) )?<text>{in}", _SEARCH),
    ("(?:search for|grep(?: for)?|look for) <word>{in}", _SEARCH),
    ("(?:move|rename) {file}<path> (?:to|as|into) <to>", _MOVE),
    ("(?:delete|remove) {file}<path>", _DELETE),
    ("(?:run|execute) (?:the )?(?:shell )?(?:command|line):? <command>", _RUN),
    ("(?:run|execute) <text>", _RUN),
    (r"\$ <command>", _RUN),
    ("(?:what|which) files (?:are|do (?:i|we|you) have)(?: there)?{in}", _LIST),
    ("{show} {all}(?:files|contents?){in}", _LIST),
    ("what(?:'s| is) {here}", _LIST),
    ("{enter} (?:the )?{dir} <path>", _LIST),
    ("{enter} (?:the )?<path> {dir}", _LIST),
    ("what(?:'s| is) in (?:the )?<path>", _list_unless_file),
    ("(?:ls|dir)(?: <path>)?", _LIST),
    ("{read} (?:the )?(?:contents? of )?{file}<path>(?: file)?{lines}", _read),
)


def _compile(source: str) -> re.Pattern[str]:
    for name, part in _PARTS.items():
        source = source.replace(name, part)
    source = re.sub(r"(?<!\?P)<(\w+)>", _group, source)
    return re.compile(source.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


def _group(found: Match) -> str:
    return f"(?P<{found[1]}>{_KINDS[found[1]]})"


_RULES: Final = tuple((_compile(source), meaning) for source, meaning in _TABLE)


_PLEASE: Final = lazy_pattern(
    r"^(?:please|now|ok(?:ay)?|(?:can|could|would|will)\s+you|let's"
    r"|i(?:'d|\s+would)\s+like\s+(?:you\s+)?to)[\s,]+",
    re.IGNORECASE,
)

_END: Final = lazy_pattern(r"(?<=[\w\"'`”)*])[.?!]+\s*$")
"""The end of a sentence, but not a path that is a dot."""


def find_wishes(sentence: str) -> Wishes:
    said = sentence.strip()
    while (shorter := _PLEASE.sub("", said)) != said:
        said = shorter
    said = _END.sub("", said)
    for pattern, meaning in _RULES:
        found = pattern.fullmatch(said)
        wishes = found and (meaning(found) if callable(meaning) else _fill(meaning, found))
        if wishes:
            return wishes
    return ()
