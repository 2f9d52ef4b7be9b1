"""Our entries in Codex's config.toml: one block between two comments, put in and taken out. Pure.

Tables of an array can stand at the end of any TOML file, so the block goes there and
nothing else is touched. What the first comment says tells how the text before it ended.
"""

import re
import tomllib
from typing import Final

from paddock.apps.hook.settings.claude import EVENTS, JUDGED, LAUNCHER, Program, timeout_of
from paddock.errors import ConfigError

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
"""What this client cannot honour."""

_EVENTS: Final = tuple(event for event in EVENTS if event != "PostToolUseFailure")
_BEGIN: Final = "# >>> paddock hook (paddock hook uninstall --client codex takes it out)"
_BEGIN_AFTER_OPEN_LINE: Final = f"{_BEGIN[:-1]}; the line above had no end)"
_BEGIN_OF_NEW_FILE: Final = f"{_BEGIN[:-1]}; the file was made for it)"
_BEGINS: Final = (_BEGIN, _BEGIN_AFTER_OPEN_LINE, _BEGIN_OF_NEW_FILE)
_END: Final = "# <<< paddock hook"
_PLAIN: Final = re.compile(r"[a-z-]+", re.ASCII | re.IGNORECASE)
_BLOCK: Final = re.compile(
    rf"(?:\n(?={re.escape(_BEGIN_AFTER_OPEN_LINE)}))?"
    # No other beginning in between: somebody may have kept that line.
    rf"^(?:{'|'.join(map(re.escape, _BEGINS))})\n"
    rf"(?:(?!# >>> paddock hook).*\n)*?{re.escape(_END)}\n",
    re.MULTILINE,
)


def command_line(program: Program, event: str) -> str:
    """The line that the client's shell runs.

    # Threat: this client lets a call run when its hook fails. Whatever keeps the
    interpreter from answering ends in status 2, which it honours.
    """
    words = (program.python, *program.arguments("codex"))
    start = " ".join(word if _PLAIN.fullmatch(word) else _quoted(word) for word in words)
    if event not in JUDGED:
        return start
    repair = "paddock hook cannot run; repair: paddock hook install --client codex"
    return f"{start} || {{ echo '{repair}' >&2; exit 2; }}"


def block(program: Program, begin: str = _BEGIN) -> str:
    """Our tables with their comments."""
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
    """The configuration with our block, an older one replaced; None where there is none yet.

    Raises:
        ConfigError: it is no TOML, or `hooks` has another form.
    """
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
    """The configuration without our block. Raises: ConfigError where it cannot be told."""
    if text.count(_END) > 1:
        raise ConfigError(
            "our block stands there more than once", where=file, hint="take it out by hand"
        )
    return _BLOCK.sub("", text)


def is_installed(text: str, program: Program) -> bool:
    """Whether the block is there as it would be put in now."""
    found = _BLOCK.search(text)
    return found is not None and found[0].lstrip("\n") in [
        block(program, begin) for begin in _BEGINS
    ]


def is_made(text: str) -> bool:
    """Whether the file was made for our block."""
    found = _BLOCK.search(text)
    return found is not None and found[0].startswith(f"{_BEGIN_OF_NEW_FILE}\n")


def has_ours(text: str) -> bool:
    """Whether there is a block of ours, an old one too."""
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


def _quoted(path: str) -> str:
    return "'" + path.replace("'", "'\\''") + "'"


def _toml(text: str) -> str:
    # A basic string (TOML 1.0): the escapes of JSON, for text without control characters.
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
