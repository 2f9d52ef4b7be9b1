"""Map plain English sentences to calls of Paddock's tools: the rules of the built-in model.

A rule is a pattern for a whole sentence, and the calls that fulfil it, best first, because the
available tools depend on the agent. The first matching rule counts.
"""

import re
from collections.abc import Mapping
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
    "LLM_CALL TOOL_INTENT TOOL_RESULT TOOL_DENIED WO_COMPLETED WO_FAILED".split()
)
_HO2M: Final = frozenset(
    "SESSION_START SESSION_END TURN_RECORDED WO_PLANNED WO_DISPATCHED WO_CHAIN_COMPLETE"
    " QUALITY_GATE ESCALATION DEGRADATION".split()
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


def _values(found: Match) -> dict[str, Json]:
    """Return what a matched sentence says, by the names that `KnownTool.arguments` uses."""
    given = {name: text for name, text in found.groupdict().items() if text is not None}
    said = {name: unquoted(text) for name, text in given.items()}
    # "the root directory", and the folder itself.
    here = {"root", "here", "workspace", "/", "./"}
    places = {name: said.get(name, ".") for name in ("path", "to")}
    places = {name: "." if path.lower() in here else path for name, path in places.items()}
    command = (given.get("text") or given.get("command", "")).strip()
    first, last = given.get("first"), given.get("last")
    return {
        **said,
        **places,
        "folder": _FOLDERS.get(places["path"].lower(), places["path"]),
        "name": given.get("glob") or said.get("name"),
        "regex": _regex(given.get("word") or said.get("pattern", "")),
        "command": unquoted(command) if re.fullmatch(TEXT, command) else command,
        "gate": given["gate"].upper() if "gate" in given else "all",
        "offset": int(first) if first else None,
        "limit": max(1, int(last or first) - int(first) + 1) if first else None,
        "create_dirs": True,
        **_ledger_values(found[0]),
    }


def _regex(text: str) -> str:
    try:
        re.compile(text)
    except re.error:
        return re.escape(text)
    return text


def _ledger_values(said: str) -> dict[str, Json]:
    exact = re.search(r"\b[A-Z]+(?:_[A-Z]+)+\b", said)
    spoken = (e for words, e in _EVENTS if re.search(rf"\b(?:{words})\b", said, re.IGNORECASE))
    event = exact[0] if exact else next(spoken, None)
    holder = "ho1m" if event in _HO1M else "ho2m" if event in _HO2M else "governance"
    named = [_LEDGERS[word] for word in re.findall(r"\w+", said.lower()) if word in _LEDGERS]
    count = re.search(r"\b(?:last|newest|latest|recent) (\d{1,6})\b", said, re.IGNORECASE)
    return {
        "ledger": named[-1] if named else holder,
        "event_type": event,
        "max_entries": int(count[1]) if count else None,
    }


def _is_of_a_file(found: Match) -> bool:
    path = str(_values(found)["path"])
    last = path.rpartition("/")[2].lower()
    has_suffix = "." in last and last not in {".", ".."}
    is_like_one = has_suffix or "/" in path or last in _PLAIN_FILES
    return is_like_one or "file" in found[0].lower().split()


class KnownTool(Struct, frozen=True):
    """`arguments` are names, or name=value where `_values` calls the value otherwise."""

    example: str
    arguments: str = ""
    lead: str = ""
    """The words before its result."""


TOOLS: Final = {
    "list_packages": KnownTool("what frameworks are installed?", lead="Installed:"),
    "query_ledger": KnownTool(
        "show me turn events from the session ledger",
        "ledger event_type max_entries",
        "From the ledger:",
    ),
    "list_files": KnownTool(
        "what files are in the kernel directory?", "path=folder glob=name", "Files:"
    ),
    "read_file": KnownTool("read HOT/config/policy.toml", "path offset limit"),
    "gate_check": KnownTool("run the gate check", "gate", "The gates say:"),
    "write_file_dev": KnownTool(
        'write a file at HO2/scratch/note.txt with the content "hello"',
        "path content=text create_dirs",
    ),
    "edit_file_dev": KnownTool(
        'replace "old" with "new" in HO2/scratch/note.txt', "path old_string=old new_string=new"
    ),
    "grep_dev": KnownTool(
        'search for "def handle_turn" in the HO2 directory', "pattern=regex path", "Found:"
    ),
    "run_shell_dev": KnownTool('run "ls -l"', "command"),
    "view": KnownTool("show me README.md", "path offset limit"),
    "create_file": KnownTool(
        'write a file at notes.md with the content "hello"', "path content=text"
    ),
    "str_replace": KnownTool(
        'replace "old" with "new" in notes.md', "path old_str=old new_str=new"
    ),
    "move_file": KnownTool("move notes.md to old/notes.md", "path to"),
    "delete_file": KnownTool("delete notes.md", "path"),
    "grep": KnownTool('search for "def main" in src', "pattern=regex path", "Found:"),
    "find": KnownTool("find *.py in src", "pattern=name path", "Found:"),
    "ls": KnownTool("list the files in src", "path", "Files:"),
    "write_output": KnownTool(
        'write an output named report with the content "done"', "name content=text"
    ),
    "run_shell": KnownTool('run "git status"', "command"),
}

_LIST: Final = "list_files ls view"
_WRITE: Final = "write_file_dev create_file"
_REPLACE: Final = "edit_file_dev str_replace"
_FIND: Final = "find list_files"
_GREP: Final = "grep_dev grep"
_RUN: Final = "run_shell_dev run_shell"
_READ: Final = "read_file view"

# The rules. A space matches any white space, `<name>` a group of that kind, and `{in}` phrases such
# as "in the src directory" and "under src".
_KINDS: Final = {
    "path": _PATH,
    "to": _PATH,
    "name": _PATH,
    "glob": r"[^\s\"'`]*[*?][^\s\"'`]*",
    "text": TEXT,
    "pattern": TEXT,
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
_TABLE: Final = (
    ("(?:run|do|start|perform|execute) (?:the |a |{all})gate(?:s| checks?)?", "gate_check"),
    ("(?:run|check|show|is|verify|test) (?:the )?(?:gate )?<gate>(?: .*)?", "gate_check"),
    ("(?:run the )?gate checks?(?: (?:for|of) <gate>)?", "gate_check"),
    ("(?:check|verify|test) {all}gates", "gate_check"),
    ("(?:do|are) {all}gates (?:pass|passing|hold|holding|green|ok)", "gate_check"),
    ("(?:what|which) (?:frameworks|packages|specs)(?: .*)?", "list_packages"),
    ("{show} {all}(?:installed )?(?:frameworks|packages|specs)(?: .*)?", "list_packages"),
    (
        "(?:{show}|what(?:'s| is| are| happened)?|which|how many) {plain}{ledger}{plain}",
        "query_ledger",
    ),
    (r"{show} {plain}\b(?:events|entries)\b{plain}", "query_ledger"),
    (
        "(?:write|save|make|create) (?:an? )?output (?:named|called) <name> {with}<text>",
        "write_output",
    ),
    ("{put} {file}(?:(?:at|to|in|named|called) )?<path> {with}<text>", _WRITE),
    (
        "(?:write|save|put) (?:the )?(?:text |content )?<text> (?:to|into|in|at) {file}<path>",
        _WRITE,
    ),
    ("(?:replace|change) <old> (?:with|by|to|into) <new> in {file}<path>", _REPLACE),
    ("in {file}<path>,? (?:replace|change) <old> (?:with|by|to|into) <new>", _REPLACE),
    ("find {all}files? (?:named|called|matching|like) <name>{in}", _FIND),
    ("find {all}<glob>(?: files)?{in}", _FIND),
    ("(?:search|grep|look|find)(?: for)? (?:the (?:text|word|pattern) )?<pattern>{in}", _GREP),
    ("(?:search for|grep(?: for)?|look for) <word>{in}", _GREP),
    ("(?:move|rename) {file}<path> (?:to|as|into) <to>", "move_file"),
    ("(?:delete|remove) {file}<path>", "delete_file"),
    ("(?:run|execute) (?:the )?(?:shell )?(?:command|line):? <command>", _RUN),
    ("(?:run|execute) <text>", _RUN),
    (r"\$ <command>", _RUN),
    ("(?:what|which) files (?:are|do (?:i|we|you) have)(?: there)?{in}", _LIST),
    ("{show} {all}(?:files|contents?){in}", _LIST),
    ("what(?:'s| is) {here}", _LIST),
    ("{enter} (?:the )?{dir} <path>", _LIST),
    ("{enter} (?:the )?<path> {dir}", _LIST),
    ("{read} (?:the )?(?:contents? of )?{file}<path>(?: file)?{lines}", _READ),
    ("what(?:'s| is) in (?:the )?<path>", _LIST),
    ("(?:ls|dir)(?: <path>)?", _LIST),
)


def _compile(source: str) -> re.Pattern[str]:
    for name, part in _PARTS.items():
        source = source.replace(name, part)
    source = re.sub(r"(?<!\?P)<(\w+)>", _group, source)
    return re.compile(source.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


def _group(found: Match) -> str:
    return f"(?P<{found[1]}>{_KINDS[found[1]]})"


_RULES: Final = tuple((_compile(source), tools) for source, tools in _TABLE)


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
    for pattern, tools in _RULES:
        found = pattern.fullmatch(said)
        if found and (tools != _READ or _is_of_a_file(found)):
            values = _values(found)
            return tuple(Wish(tool, _arguments(tool, values)) for tool in tools.split())
    return ()


def _arguments(tool: str, values: Mapping[str, Json]) -> dict[str, Json]:
    pairs = (argument.partition("=") for argument in TOOLS[tool].arguments.split())
    given = {name: values[value or name] for name, _, value in pairs}
    return {name: value for name, value in given.items() if value is not None}
