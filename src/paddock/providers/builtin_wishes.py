"""What a person asks for in plain English: the rules by which the built-in model reads.

Each rule is a pattern for a whole sentence and what it means; the first that fits counts.
"""

import re
from collections.abc import Callable
from typing import Final

from paddock.providers import builtin_meanings as meanings
from paddock.providers.builtin_meanings import Wishes

_PLEASE: Final = re.compile(
    r"^(?:please|now|ok(?:ay)?|(?:can|could|would|will)\s+you|let's"
    r"|i(?:'d|\s+would)\s+like\s+(?:you\s+)?to)[\s,]+",
    re.IGNORECASE,
)

_END: Final = re.compile(r"(?<=[\w\"'`”)*])[.?!]+\s*$")
"""A sentence's end; a path that is a dot is none."""

# The rules. A space stands for any white space, `<name>` for a group of that kind, and
# `{in}` for "in the src directory", "under src" and the like.
_KINDS: Final = {
    "path": meanings.PATH,
    "to": meanings.PATH,
    "name": meanings.PATH,
    "glob": r"[^\s\"'`]*[*?][^\s\"'`]*",
    "text": meanings.TEXT,
    "old": meanings.TEXT,
    "new": meanings.TEXT,
    "word": r"[^\s\"'`]+",
    "command": r".+",
    "gate": r"G\d[AB]?(?:-COMPLETE)?",
    "first": r"\d{1,9}",
    "last": r"\d{1,9}",
}
_PARTS: Final = {
    "{in}": "(?: {here}| {at} (?:the )?(?:{dir} )?<path>(?: {dir})?)?",
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
_SOURCES: Final[tuple[tuple[str, Callable[[meanings.Match], Wishes]], ...]] = (
    (
        "(?:run|do|start|perform|execute) (?:the |a |{all})gate(?:s| checks?)?",
        meanings.mean_gate_check,
    ),
    (
        "(?:run|check|show|is|verify|test) (?:the )?(?:gate )?<gate>(?: .*)?",
        meanings.mean_gate_check,
    ),
    ("(?:run the )?gate checks?(?: (?:for|of) <gate>)?", meanings.mean_gate_check),
    ("(?:check|verify|test) {all}gates", meanings.mean_gate_check),
    ("(?:do|are) {all}gates (?:pass|passing|hold|holding|green|ok)", meanings.mean_gate_check),
    ("(?:what|which) (?:frameworks|packages|specs)(?: .*)?", meanings.mean_list_packages),
    (
        "{show} {all}(?:installed )?(?:frameworks|packages|specs)(?: .*)?",
        meanings.mean_list_packages,
    ),
    (
        "(?:{show}|what(?:'s| is| are| happened)?|which|how many) {plain}{ledger}{plain}",
        meanings.mean_ledger,
    ),
    (r"{show} {plain}\b(?:events|entries)\b{plain}", meanings.mean_ledger),
    (
        "(?:write|save|make|create) (?:an? )?output (?:named|called) <name> {with}<text>",
        meanings.mean_output,
    ),
    (
        "(?:write|create|make|save|put) {file}(?:(?:at|to|in|named|called) )?<path> {with}<text>",
        meanings.mean_write,
    ),
    (
        "(?:write|save|put) (?:the )?(?:text |content )?<text> (?:to|into|in|at) {file}<path>",
        meanings.mean_write,
    ),
    ("(?:replace|change) <old> (?:with|by|to|into) <new> in {file}<path>", meanings.mean_replace),
    ("in {file}<path>,? (?:replace|change) <old> (?:with|by|to|into) <new>", meanings.mean_replace),
    ("find {all}files? (?:named|called|matching|like) <path>", meanings.mean_find_anywhere),
    ("find {all}files? (?:named|called|matching|like) <name>{in}", meanings.mean_find),
    ("find {all}<glob>(?: files)?{in}", meanings.mean_find_glob),
    (
        "(?:search|grep|look|find)(?: for)? (?:the (?:text|word|pattern) )?<text>{in}",
        meanings.mean_search,
    ),
    ("(?:search for|grep(?: for)?|look for) <word>{in}", meanings.mean_search_word),
    ("(?:move|rename) {file}<path> (?:to|as|into) <to>", meanings.mean_move),
    ("(?:delete|remove) {file}<path>", meanings.mean_delete),
    ("(?:run|execute) (?:the )?(?:shell )?(?:command|line):? <command>", meanings.mean_shell),
    ("(?:run|execute) <text>", meanings.mean_shell_text),
    (r"\$ <command>", meanings.mean_shell),
    ("(?:what|which) files (?:are|do (?:i|we|you) have)(?: there)?{in}", meanings.mean_list_files),
    ("{show} {all}(?:files|contents?){in}", meanings.mean_list_files),
    ("what(?:'s| is) {here}", meanings.mean_list_files),
    ("(?:{show}|ls|dir|open|what(?:'s| is) in) (?:the )?{dir} <path>", meanings.mean_list_files),
    ("(?:{show}|ls|dir|open|what(?:'s| is) in) (?:the )?<path> {dir}", meanings.mean_list_files),
    ("what(?:'s| is) in (?:the )?<path>", meanings.mean_list_unless_file),
    ("(?:ls|dir)(?: <path>)?", meanings.mean_list_files),
    ("{read} (?:the )?(?:contents? of )?{file}<path>(?: file)?{lines}", meanings.mean_read),
)


def _compile(source: str) -> re.Pattern[str]:
    for name, part in _PARTS.items():
        source = source.replace(name, part)
    source = re.sub(r"(?<!\?P)<(\w+)>", _group, source)
    return re.compile(source.replace(" ", r"\s+"), re.IGNORECASE | re.DOTALL)


def _group(found: meanings.Match) -> str:
    return f"(?P<{found[1]}>{_KINDS[found[1]]})"


_RULES: Final = tuple((_compile(source), meaning) for source, meaning in _SOURCES)


def find_wishes(sentence: str) -> Wishes:
    """Ways to do what the sentence asks for; none where no rule knows it."""
    said = sentence.strip()
    while (shorter := _PLEASE.sub("", said)) != said:
        said = shorter
    said = _END.sub("", said)
    for pattern, meaning in _RULES:
        found = pattern.fullmatch(said)
        wishes = () if found is None else meaning(found)
        if wishes:
            return wishes
    return ()
