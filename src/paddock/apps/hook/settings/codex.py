"""Our entries in Codex's config.toml: one block between two comments, put in and taken out. Pure.

The block stands at the end and nothing else is touched. The first comment tells how the text
before it ended. What is written says what it said before, without our tables, or is not written.
"""

import re
import tomllib
from typing import Any, Final

from paddock.apps.hook.settings.claude import EVENTS, JUDGED, LAUNCHER, Program, timeout_of
from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern

CANNOT: Final = (
    (
        "Codex runs a call when its hook fails or takes too long. Every failure that the command"
        " can see is made a refusal; a hook that is killed refuses nothing."
    ),
    "Codex does not know `ask`: where a rule asks, the call is denied.",
    (
        "Codex skips hooks that nobody has trusted, and does not say so: trust this one in its"
        " terminal interface, or start it with --dangerously-bypass-hook-trust."
    ),
    (
        "The working directory of a single command is not in the hook's input: relative paths are"
        " taken from the session's directory."
    ),
)

_EVENTS: Final = tuple(event for event in EVENTS if event != "PostToolUseFailure")
_BEGIN: Final = "# >>> paddock hook (paddock hook uninstall --client codex takes it out)"
_BEGIN_AFTER_OPEN_LINE: Final = f"{_BEGIN[:-1]}; the line above had no end)"
_BEGIN_OF_NEW_FILE: Final = f"{_BEGIN[:-1]}; the file was made for it)"
_BEGINS: Final = (_BEGIN, _BEGIN_AFTER_OPEN_LINE, _BEGIN_OF_NEW_FILE)
_END: Final = "# <<< paddock hook"
_PLAIN: Final = lazy_pattern(r"[a-z-]+", re.ASCII | re.IGNORECASE)
_BLOCK: Final = lazy_pattern(
    rf"(?:\n(?={re.escape(_BEGIN_AFTER_OPEN_LINE)}))?"
    # No other beginning in between: somebody may have kept that line.
    rf"^(?:{'|'.join(map(re.escape, _BEGINS))})\n"
    rf"(?:(?!# >>> paddock hook).*\n)*?{re.escape(_END)}\n",
    re.MULTILINE,
)


def command_line(program: Program, event: str) -> str:
    """Threat: this client lets a call run when its hook fails: every failure ends in status 2."""
    words = (program.python, *program.arguments("codex"))
    start = " ".join(word if _PLAIN.fullmatch(word) else _quoted(word) for word in words)
    if event not in JUDGED:
        return start
    repair = "paddock hook cannot run; repair: paddock hook install --client codex"
    return f"{start} || {{ echo '{repair}' >&2; exit 2; }}"


def block(program: Program, begin: str = _BEGIN) -> str:
    rows = [begin]
    for event in _EVENTS:
        rows += [
            f"[[hooks.{event}]]",
            f"[[hooks.{event}.hooks]]",
            'type = "command"',
            f"command = {_toml(command_line(program, event))}",
            f"timeout = {timeout_of(event)}",
        ]
    return "\n".join([*rows, _END, ""])


def installed(text: str | None, file: str, program: Program) -> str:
    """Put our block in for an older one. Raises: ConfigError: no TOML, or another `hooks`."""
    if text is None:
        return block(program, _BEGIN_OF_NEW_FILE)
    _require_toml(text, file)
    is_new = is_made(text)
    text = uninstalled(text, file)
    if is_new and not text:
        return block(program, _BEGIN_OF_NEW_FILE)
    is_open = bool(text) and not text.endswith("\n")
    added = f"\n{block(program, _BEGIN_AFTER_OPEN_LINE)}" if is_open else block(program)
    _require_toml(text + added, file)
    return text + added


def uninstalled(text: str, file: str) -> str:
    """Take our block out. Raises: ConfigError: the rest would not say what it says now."""
    if text.count(_END) > 1:
        raise ConfigError(
            "our block stands there more than once", where=file, hint="take it out by hand"
        )
    found = _BLOCK.search(text)
    if found is None:
        return text
    begin, end = found.span()
    if text[begin] == "\n" and end < len(text):
        # The line end that we added: what was written behind our block needs it by now.
        begin += 1
    left = text[:begin] + text[end:]
    _require_same(text, left, found[0], file)
    return left


def is_installed(text: str, file: str, program: Program) -> bool:
    del file
    found = _BLOCK.search(text)
    blocks = [block(program, begin) for begin in _BEGINS]
    return found is not None and found[0].lstrip("\n") in blocks


def is_made(text: str, left: str = "") -> bool:
    """Return whether nothing is `left` of a configuration that was made for us."""
    found = _BLOCK.search(text)
    return not left and found is not None and found[0].startswith(f"{_BEGIN_OF_NEW_FILE}\n")


def has_ours(text: str, file: str) -> bool:
    del file
    return _BLOCK.search(text) is not None and LAUNCHER in text


def _require_toml(text: str, file: str) -> None:
    hint = "mend the file first; nothing was changed"
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what = f"the configuration is no TOML with our tables: {error}"
        raise ConfigError(what, where=file, hint=hint) from None
    if not isinstance(values.get("hooks", {}), dict):
        raise ConfigError("hooks is no table", where=file, hint=hint)


def _require_same(text: str, left: str, own: str, file: str) -> None:
    """Raises: ConfigError unless `left` says what `text` says without our tables."""
    hint = f"take out by hand what stands from {_BEGIN[:18]!r} to {_END!r}; nothing was changed"
    try:
        before, after, ours = map(tomllib.loads, (text, left, own))
    except tomllib.TOMLDecodeError as error:
        what = f"the configuration is no TOML with our tables or without them: {error}"
        raise ConfigError(what, where=file, hint=hint) from None
    try:
        rest, groups = _taken_apart(before, ours)
        is_same = not ours and (rest, groups) == _taken_apart(after, {})
    except (AttributeError, KeyError, TypeError, ValueError):
        # Something of another kind stands there, or one of our tables holds more than ours.
        is_same = False
    if not is_same:
        what = "something beside our block is part of its tables, and would change without them"
        raise ConfigError(what, where=file, hint=hint)


def _taken_apart(values: dict[str, Any], ours: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return what is no hook, and the groups of each event without ours; as written out.

    By value, true would be 1, and no NaN itself.
    """
    hooks: dict[str, list[Any]] = values.pop("hooks", {})
    for event, groups in ours.pop("hooks", {}).items():
        for group in groups:
            hooks[event].remove(group)
    return repr(values), {event: repr(groups) for event, groups in hooks.items() if groups != []}


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


def _toml(text: str) -> str:
    # A basic string (TOML 1.0): the escapes of JSON, for text without control characters.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
