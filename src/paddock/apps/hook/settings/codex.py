"""Install and remove the hook's tables in Codex's config.toml: one block between comments. Pure.

The block is appended at the end and nothing else is changed. Its first comment records how the
text before it ended. A change is written only if every other table keeps its value.
"""

import re
import tomllib
from typing import Any, Final

from paddock.apps.hook.settings.claude import EVENTS, JUDGED, LAUNCHER, Program, timeout_of
from paddock.errors import ConfigError
from paddock.pattern import lazy_pattern

CANNOT: Final = (
    (
        "Codex runs a call when its hook fails or takes too long. The hook turns every failure that"
        " it can detect into a refusal; a hook that is killed refuses nothing."
    ),
    "Codex does not support `ask`: where a rule asks, the call is denied.",
    (
        "Codex silently skips hooks that the user has not trusted: trust this one in its terminal"
        " interface, or start Codex with --dangerously-bypass-hook-trust."
    ),
    (
        "The hook's input does not contain the working directory of a command: relative paths are"
        " resolved from the session's directory."
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
    # No second begin comment inside: the user may have kept one.
    rf"^(?:{'|'.join(map(re.escape, _BEGINS))})\n"
    rf"(?:(?!# >>> paddock hook).*\n)*?{re.escape(_END)}\n",
    re.MULTILINE,
)


def command_line(program: Program, event: str) -> str:
    """Threat: Codex lets a call run when its hook fails: every failure must exit with 2."""
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
    """Add the block, replacing an older one. Raises: ConfigError: the file is malformed."""
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
    """Remove the block. Raises: ConfigError: the meaning of the rest would change."""
    if text.count(_END) > 1:
        raise ConfigError(
            "the file contains Paddock's block more than once", where=file, hint="remove it by hand"
        )
    found = _BLOCK.search(text)
    if found is None:
        return text
    begin, end = found.span()
    if text[begin] == "\n" and end < len(text):
        # Keep the newline that we added: the text after our block needs it.
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
    """Return True if Paddock created the file and nothing else is `left` in it."""
    found = _BLOCK.search(text)
    return not left and found is not None and found[0].startswith(f"{_BEGIN_OF_NEW_FILE}\n")


def has_ours(text: str, file: str) -> bool:
    del file
    return _BLOCK.search(text) is not None and LAUNCHER in text


def _require_toml(text: str, file: str) -> None:
    hint = "fix the file first; nothing was changed"
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what = f"the configuration with Paddock's tables is not valid TOML: {error}"
        raise ConfigError(what, where=file, hint=hint) from None
    if not isinstance(values.get("hooks", {}), dict):
        raise ConfigError("hooks: expected a table", where=file, hint=hint)


def _require_same(text: str, left: str, own: str, file: str) -> None:
    """Raises: ConfigError unless `left` means the same as `text` without our tables."""
    hint = f"remove the lines from {_BEGIN[:18]!r} to {_END!r} by hand; nothing was changed"
    try:
        before, after, ours = map(tomllib.loads, (text, left, own))
    except tomllib.TOMLDecodeError as error:
        what = f"the configuration with or without Paddock's tables is not valid TOML: {error}"
        raise ConfigError(what, where=file, hint=hint) from None
    try:
        rest, groups = _split_hooks(before, ours)
        is_same = not ours and (rest, groups) == _split_hooks(after, {})
    except (AttributeError, KeyError, TypeError, ValueError):
        # `hooks` has another type, or one of our tables was extended.
        is_same = False
    if not is_same:
        what = "text outside Paddock's block extends its tables, and would change without them"
        raise ConfigError(what, where=file, hint=hint)


def _split_hooks(values: dict[str, Any], ours: dict[str, Any]) -> tuple[str, dict[str, str]]:
    """Return the rest of the configuration, and each event's groups without ours, as `repr`.

    Compared as values, true would equal 1, and NaN would not equal itself.
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
