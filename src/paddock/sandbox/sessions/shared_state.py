"""Share a network and /tmp between a session's commands; pass shell state from one to the next.

The state is not kept in a process: the shell exports it when it ends. It is untrusted input from
the agent; policy judges its next line together with it (`preamble`), and the next shell reads it
first (`script`).
"""

import os
import re
import shlex
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock import limits
from paddock.pattern import lazy_pattern
from paddock.sandbox.inside.protocol import ENDED_IN
from paddock.values.entries import is_plain

if TYPE_CHECKING:
    from paddock.network.wall import Wall
    from paddock.sandbox.launcher import RunningLauncher


class SharedSpace(Struct, eq=False):
    running: "RunningLauncher"
    name: str
    spaces: tuple[int, ...] = ()
    """User and network namespace, and the name server's socket if names are answered."""
    network: "Wall | None" = None

    @property
    def name_server(self) -> str:
        """Return its address; only for a network that is served."""
        with socket.socket(fileno=os.dup(self.spaces[2])) as questions:
            return str(questions.getsockname()[0])

    def close(self) -> None:
        """Release it; its commands have ended."""
        spaces, self.spaces = self.spaces, ()
        if self.network is not None:
            # It owns the descriptors.
            self.network.end()
            self.network = None
        else:
            for fd in spaces:
                os.close(fd)
        if self.running.owner == os.getpid():
            self.running.remove(self.name)


# --- shell state ----------------------------------------------------------------

_LEFT: Final = os.fsdecode(ENDED_IN)
_NAMES_AT: Final = "/run/names"
_NOW_AT: Final = "/run/now"
_EXPORTED_AT: Final = "/run/exported"
_OURS: Final = "__paddock"
"""The only variable that the script uses. It uses only builtins, so it starts no process."""
_BEGINS: Final = f"""unset BASH_ENV
{{ shopt -p; set +o; printf '\\0'; }} >|{_LEFT}
compgen -v >|{_NAMES_AT}"""
_LEAVES: Final = f"""trap '{{ shopt -p; set +o; printf "\\0"; command pwd -P; printf "\\0"
alias -p; declare -f; declare -Fx; printf "\\0"
compgen -e >|{_EXPORTED_AT}
if compgen -A function >/dev/null; then
compgen -v >|{_NOW_AT}
compgen -e >>{_NAMES_AT}
IFS= read -rd "" {_OURS} <{_NAMES_AT} || :
set -- "
${{{_OURS}}}PIPESTATUS
_
{_OURS}
"
while IFS= read -r {_OURS}; do case $1 in *"
${_OURS}
"*) ;; *) declare -p "${_OURS}";; esac; done <{_NOW_AT}; fi; printf "\\0"
while IFS= read -r {_OURS}; do
[[ -v ${_OURS} ]] && printf "%s=%s\\0" "${_OURS}" "${{!{_OURS}}}"
done <{_EXPORTED_AT}; printf "\\0"; }} >>{_LEFT} 2>/dev/null' EXIT
"""
"""Exports shell state, separated by NULs: the initial options; on exit the options, directory,
definitions, exported variables and, if there are functions, the variables that were not there at
the start.
"""
PREAMBLE_CHARS_MAX: Final = limits.command_chars_max // 2
"""The rest is for the line that is judged after it."""
_PARTS: Final = 5
_NAME: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = lazy_pattern(r"BASH_FUNC_[^=]*%%=.*", re.DOTALL)
_OPTION: Final = lazy_pattern(r"(?:shopt -[su]|set [-+]o) [a-z_0-9-]+")
_NEVER_KEPT: Final = frozenset(
    {"_", _OURS, "SHLVL", "PWD", "OLDPWD", "BASH_ENV", "SHELLOPTS", "BASHOPTS"}
)


class Snapshot(Struct, frozen=True):
    """Initial state of a shell; an empty one is that of a new shell."""

    directory: str = ""
    """Absolute path, as the command saw it."""
    exported: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    """Variables that a command starts with, and this shell has unset."""
    options: tuple[str, ...] = ()
    definitions: str = ""

    @property
    def preamble(self) -> str:
        """Return the text to judge before a line: all state that can change its meaning."""
        lines = [f"unset {name}" for name in self.unset]
        lines += [*self._exports(), *self.options, self.definitions]
        return "".join(f"{each}\n" for each in lines if each)

    def script(self) -> bytes:
        """Return the script that bash reads before the line, to restore this state."""
        # `set` options come last: tracing and errexit must not apply to the script itself.
        late = [each for each in self.options if each.startswith("set")]
        early = [each for each in self.options if not each.startswith("set")]
        lines = [_BEGINS, *early]
        lines += [f"unset {name}" for name in self.unset]
        lines += [*self._exports(), self.definitions]
        if self.directory:
            gone = "paddock: the working directory of the session no longer exists"
            there = f"builtin cd -- {shlex.quote(self.directory)}"
            lines.append(f"{there} || echo {shlex.quote(gone)} >&2")
        text = "\n".join(lines) + f"\n{_LEAVES}" + "; ".join(late)
        return text.encode("utf-8", "surrogateescape")

    def _exports(self) -> Iterator[str]:
        for name, value in self.exported:
            # A judged line must not contain unprintable characters or bytes that are not text.
            quoted = shlex.quote(value)
            if not value.replace("\n", "").isprintable():
                escaped = (
                    chr(each) if chr(each).isalnum() and each < 0x80 else f"\\{each:03o}"
                    for each in value.encode("utf-8", "surrogateescape")
                )
                quoted = f"$'{''.join(escaped)}'"
            yield f"export {name}={quoted}"


NEW: Final = Snapshot()


def read_snapshot(left: bytes, given: Mapping[str, str], never: frozenset[str]) -> Snapshot | None:
    """Read a shell's exported state; return None if it cannot be read, or judged.

    `given` are the variables that the shell was started with; `never` are names not to keep.
    """
    *parts, variables = left.decode("utf-8", "surrogateescape").split("\0", _PARTS)
    if len(parts) != _PARTS or not variables.endswith("\0\0"):
        return None
    # Functions use variables that are not exported, for example those that `deactivate` restores.
    began, now, where, definitions, of_functions = parts
    definitions += of_functions
    before = set(began.splitlines())
    options = [line for line in now.splitlines() if line not in before]
    if any(_OPTION.fullmatch(each) is None for each in options):
        return None
    exported: dict[str, str] = {}
    for entry in variables.split("\0"):
        name, _, value = entry.partition("=")
        if _FUNCTION.fullmatch(entry) is None and _NAME.fullmatch(name):
            exported[name] = value
    found = Snapshot(
        where.removesuffix("\n"),
        tuple(
            sorted(
                (name, value)
                for name, value in exported.items()
                if given.get(name) != value and _is_kept(name) and name not in never
            )
        ),
        tuple(sorted(name for name in given if name not in exported and _is_kept(name))),
        tuple(each for each in options if not each.endswith("o noexec")),
        definitions.strip("\n"),
    )
    preamble = found.preamble
    return found if len(preamble) <= PREAMBLE_CHARS_MAX and is_plain(preamble) else None


def _is_kept(name: str) -> bool:
    """Threat: the dynamic loader's variables act before the shell runs."""
    return name not in _NEVER_KEPT and not name.startswith("LD_")
