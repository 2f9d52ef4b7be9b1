"""Programs that start another program named in their words: `env`, `nice`, `xargs`, `sh -c`.

A row says how to find the command (sources: the manual pages). Where an option is not in its
row, or its value cannot be told, every later word may be the program: a deny stays whole.
"""

import re
from typing import Final

from msgspec import Struct

from paddock.pattern import lazy_pattern
from paddock.policy.commands.words import Word

ASSIGNMENT: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
HARMLESS: Final = lazy_pattern(
    r"(?:(?:CI|NODE_ENV|RAILS_ENV|RACK_ENV|APP_ENV|FLASK_ENV|DEBUG|VERBOSE|LOG_LEVEL|RUST_LOG|TZ"
    r"|RUST_BACKTRACE|LANG|LC_[A-Z]+|NO_COLOR|FORCE_COLOR|CLICOLOR|CLICOLOR_FORCE|COLUMNS|LINES"
    r"|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE)=(?P<quote>['\"]?)[\w.,:*@+-]*(?P=quote)"
    r"|(?:GIT_PAGER|PAGER|MANPAGER)=cat)",
    re.ASCII,
)
"""Assignments of names that no program runs by, with values that name no file."""
SHELLS: Final = frozenset(
    "sh bash dash zsh ksh ash rbash mksh fish csh tcsh yash posh oksh elvish nu xonsh".split()
)
RUNNING_INPUT: Final = frozenset("ssh su runuser at batch sg newgrp parallel".split())
"""Besides shells: programs to which a here-document is commands, or words of them."""
INTERPRETERS: Final = lazy_pattern(
    r"(?:python[\d.]*|pypy[\d.]*|perl[\d.]*|ruby[\d.]*|node|nodejs|deno|bun|php[\d.]*|lua[\d.]*"
    r"|tclsh[\d.]*|Rscript|osascript|pwsh|ed|ex|bc|dc|gdb|sqlite3|psql|mysql)"
)
"""Programs that run what stands on their input when no program is named."""
LOADERS: Final = lazy_pattern(r"ld-linux.*\.so.*|ld-musl.*\.so.*|ld\.so.*|ld64\.so.*", re.DOTALL)


class Wrapper(Struct, frozen=True):
    """How `names` take their options before the command that they start.

    `flags` and `valued` are letters, `words` long options without a value, `settings` with one;
    `operands` words stand before the command (-1: any number); `assigns`: `NAME=value` words do;
    `joins`: a shell gets all words joined; with `prints` nothing is started.
    """

    names: tuple[str, ...]
    flags: str = ""
    valued: str = ""
    words: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    operands: int = 0
    assigns: bool = False
    joins: bool = False
    prints: str = ""


_ROWS: Final = (
    Wrapper(("env",), "iv0", "uC", ("--ignore-environment", "--null", "--debug"),
            ("--unset", "--chdir"), assigns=True),
    Wrapper(("command",), "p", prints="vV"),
    Wrapper(("builtin", "nohup", "busybox", "toybox", "unbuffer", "chronic", "caffeinate",
             "eatmydata", "fakeroot", "catchsegv", "noglob", "nocorrect", "then", "do", "else",
             "-")),
    Wrapper(("repeat", "setuidgid", "gosu", "su-exec", "runcon", "chpst"), operands=1),
    Wrapper(("exec",), "cl", "a"),
    Wrapper(("nice",), "", "n", (), ("--adjustment",)),
    Wrapper(("time",), "pvaqV", "of", ("--portability", "--verbose", "--append", "--quiet"),
            ("--output", "--format")),
    Wrapper(("timeout", "gtimeout"), "vfp", "ks",
            ("--foreground", "--preserve-status", "--verbose"), ("--kill-after", "--signal"),
            operands=1),
    Wrapper(("sudo",), "AbEHknPSKN", "ughpCrtTUDR",
            ("--non-interactive", "--preserve-env", "--set-home", "--stdin", "--background"),
            ("--user", "--group", "--host", "--prompt", "--chdir", "--chroot"), assigns=True),
    Wrapper(("xargs", "gxargs"), "0oprtx", "adEILnPs",
            ("--null", "--interactive", "--verbose", "--no-run-if-empty", "--exit", "--open-tty"),
            ("--arg-file", "--delimiter", "--max-lines", "--max-args", "--max-procs",
             "--max-chars", "--replace", "--eof")),
    Wrapper(("watch",), "tbegcpqwx", "n", ("--no-title", "--beep", "--errexit", "--exec"),
            ("--interval",), joins=True),
    Wrapper(("parallel", "hyperfine", "concurrently", "watchexec", "entr", "nodemon"), joins=True),
    Wrapper(("npx", "bunx", "pipx", "uvx"), "yq", "p", ("--yes", "--no"), ("--package",)),
    Wrapper(tuple(
        "unshare nsenter setpriv prlimit numactl systemd-run firejail bwrap xvfb-run dbus-run- "
        "session script su runuser proot start-stop-daemon coproc gdb valgrind perf rlwrap "
        "faketime softlimit ssh-agent torsocks proxychains proxychains4 setarch linux32 linux64 "
        "i386 x86_64 nix-shell sg pkexec cgexec aa-exec cpulimit chrt taskset flock chroot doas "
        "strace ltrace tini dumb-init nq emulate dtach stdbuf setsid ionice "
    .split()), operands=-1),
)  # fmt: skip
WRAPPERS: Final = {name: row for row in _ROWS for name in row.names}

NESTING: Final = {
    program: frozenset(subcommands.split())
    for programs, subcommands in (
        ("uv poetry pipenv hatch pdm rye rustup conda mamba micromamba pixi devbox", "run"),
        ("bundle mise direnv npm pnpm yarn corepack asdf", "exec"),
        ("nix", "run develop shell"),
        ("cargo", "watch"),
        ("tmux", ("new new-session neww new-window splitw split-window respawnp respawn-pane "
                 "respawnw respawn-window run run-shell if if-shell pipep pipe-pane popup "
                 "display-popup send send-keys")),
    )
    for program in programs.split()
}  # fmt: skip
"""Programs with subcommands that start another program: `uv run pytest`."""

GIT_BEFORE: Final = frozenset(
    {"--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs", "--no-replace-objects",
     "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--version", "-v", "--help"}
)  # fmt: skip
"""Options of git before its subcommand that are harmless, and take no value."""
GIT_BEFORE_VALUED: Final = frozenset(
    {"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path", "--super-prefix",
     "--config-env", "--attr-source"}
)  # fmt: skip


CHANGERS: Final = frozenset(
    ". alias bind cd compgen complete compopt coproc declare dirs enable eval exec export fc "
    "getopts hash history let local logout mapfile popd pushd read readarray readonly select set "
    "shopt source suspend trap typeset ulimit umask unalias unset".split()
)
"""Builtins after which a later word of the line may mean something else."""


def change_by(name: str) -> str:
    return f"{name} can change what a later word of the line means"


class CommandStart(Struct, frozen=True):
    """Where commands may start among words: at `places`, or (`unsure`) at any from `after` on."""

    places: tuple[int, ...] = ()
    unsure_after: int = 0


def find_start(words: tuple[Word, ...], at: int, end: int, row: Wrapper) -> CommandStart:
    index = at + 1
    while index < end:
        word = words[index]
        text = word.text
        if not word.is_literal:
            return CommandStart(unsure_after=index)
        if text == "--":
            index += 1
            break
        if text == "-":
            index += 1
            continue
        if not text.startswith("-"):
            break
        step = _option_words(text, row)
        if step == 0:
            return CommandStart(unsure_after=index)
        if step < 0:
            return CommandStart()
        index += step
    while row.assigns and index < end and ASSIGNMENT.match(words[index].text):
        index += 1
    if row.operands < 0:
        return CommandStart(unsure_after=index)
    index += row.operands
    return CommandStart(places=(index,)) if index < end else CommandStart()


def _option_words(text: str, row: Wrapper) -> int:
    """Return how many words the option takes; 0: cannot be told, -1: nothing is started."""
    if text.startswith("--"):
        name, equals, _ = text.partition("=")
        if name in row.settings:
            return 1 if equals else 2
        return 1 if name in row.words else 0
    for place, letter in enumerate(text[1:], 2):
        if letter in row.prints:
            return -1
        if letter in row.valued:
            return 1 if len(text) > place else 2
        if letter not in row.flags and not letter.isdigit():
            return 0
    return 1


def find_executed(words: tuple[Word, ...], at: int, end: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    index = at + 1
    while index < end:
        if words[index].text in ("-exec", "-execdir", "-ok", "-okdir"):
            start = index + 1
            while index < end and words[index].text not in (";", "+"):
                index += 1
            found.append((start, index))
        index += 1
    return found


class ShellCall(Struct, frozen=True):
    script: int = 0
    file: int = 0


def find_script(words: tuple[Word, ...], at: int, end: int) -> ShellCall | None:
    index, takes_text = at + 1, False
    while index < end:
        text = words[index].text
        if text in ("--help", "--version"):
            return None
        if text in ("--", "-"):
            index += 1
            break
        if text[:1] not in ("-", "+") or not text:
            break
        index += 1
        if text in ("--rcfile", "--init-file"):
            index += 1
        elif not text.startswith("--"):
            takes_text = takes_text or (text[0] == "-" and "c" in text)
            # -o NAME and -O NAME, once for each letter.
            index += sum(letter in "oO" for letter in text[1:])
            if "s" in text and text[0] == "-" and not takes_text:
                return ShellCall()
    if index >= end:
        return ShellCall()
    return ShellCall(script=index) if takes_text else ShellCall(file=index)
