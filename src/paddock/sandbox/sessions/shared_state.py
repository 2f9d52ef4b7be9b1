"""What the commands of one session share, and what one of them leaves to the next.

They share a directory for /tmp and a network. What is left is an export, no process: the shell
itself writes it when it ends. Nothing in it is believed: it is the agent's word, which its next
line is judged with (`preamble`) and begins with (`script`).
"""

import contextlib
import os
import re
import secrets
import shlex
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from paddock import limits
from paddock.pattern import lazy_pattern
from paddock.sandbox.inside.protocol import ENDED_IN, HOST_IDS_FIRST
from paddock.sandbox.values import SandboxPlan
from paddock.storage.atomic import host_error
from paddock.values.entries import is_plain

if TYPE_CHECKING:
    from paddock.network.wall import Wall
    from paddock.sandbox.launcher import RunningLauncher


class SharedSpace(Struct, eq=False):
    running: "RunningLauncher"
    name: str
    spaces: tuple[int, ...] = ()
    """User and network namespace, and the name server's socket where names are answered."""
    network: "Wall | None" = None

    def close(self) -> None:
        """Let it go; its commands have ended."""
        spaces, self.spaces = self.spaces, ()
        if self.network is not None:
            # It has taken the descriptors over.
            self.network.end()
            self.network = None
        else:
            for fd in spaces:
                os.close(fd)
        if self.running.owner == os.getpid():
            self.running.remove(self.name)


def open_space(running: "RunningLauncher", plan: SandboxPlan) -> SharedSpace:
    """Make what the commands of a session share. Raises: HostError, ConfinementError."""
    name = f"session-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as undo, host_error("a session cannot be opened"):
        os.mkdir(name, 0o700, dir_fd=running.area.fd)
        undo.callback(running.remove, name)
        if os.geteuid() == 0:
            os.chown(name, HOST_IDS_FIRST, HOST_IDS_FIRST, dir_fd=running.area.fd)
        spaces = _open_network(running, plan) if plan.network in ("loopback", "policy") else []
        undo.pop_all()
    return SharedSpace(running, name, tuple(spaces))


def _open_network(running: "RunningLauncher", plan: SandboxPlan) -> list[int]:
    is_served = plan.network == "policy"
    literals = plan.literals if is_served else ()
    from paddock.sandbox.conversation import receive_served  # noqa: PLC0415 - a line needs none

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            said = " ".join(("share", plan.network, *literals))
            running.tell(said.encode(), [theirs.fileno()])
        return receive_served(ours, 3 if is_served else 2)


# --- what a shell leaves --------------------------------------------------------

_LEFT: Final = os.fsdecode(ENDED_IN)
_NAMES_AT: Final = "/run/names"
_NOW_AT: Final = "/run/now"
_EXPORTED_AT: Final = "/run/exported"
_OURS: Final = "__paddock"
"""The one variable that this uses: no process is started for what a builtin does."""
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
"""What a shell leaves, with NULs between: the options that it began with; when it ends those that
it has, its directory, its definitions, what it exports, and where there are functions the variables
that it did not begin with.
"""
PREAMBLE_CHARS_MAX: Final = limits.command_chars_max // 2
"""The rest is for the line that is judged behind it."""
_PARTS: Final = 5
_NAME: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = lazy_pattern(r"BASH_FUNC_[^=]*%%=.*", re.DOTALL)
_OPTION: Final = lazy_pattern(r"(?:shopt -[su]|set [-+]o) [a-z_0-9-]+")
_NEVER_KEPT: Final = frozenset(
    {"_", _OURS, "SHLVL", "PWD", "OLDPWD", "BASH_ENV", "SHELLOPTS", "BASHOPTS"}
)


class Snapshot(Struct, frozen=True):
    """A state that a shell can begin with; an empty one is that of a new shell."""

    directory: str = ""
    """Absolute, as the command saw it."""
    exported: tuple[tuple[str, str], ...] = ()
    unset: tuple[str, ...] = ()
    """Variables that a command has at its start, and this shell has no more."""
    options: tuple[str, ...] = ()
    definitions: str = ""

    @property
    def preamble(self) -> str:
        """Return what a line is judged behind: all that may change what its words mean."""
        said = [f"unset {name}" for name in self.unset]
        said += [*self._exports(), *self.options, self.definitions]
        return "".join(f"{each}\n" for each in said if each)

    def script(self) -> bytes:
        """Return what bash reads before the line, from which on it is this shell."""
        # What traces or stops at errors comes last: of the rest nobody wants to hear.
        late = [each for each in self.options if each.startswith("set")]
        early = [each for each in self.options if not each.startswith("set")]
        lines = [_BEGINS, *early]
        lines += [f"unset {name}" for name in self.unset]
        lines += [*self._exports(), self.definitions]
        if self.directory:
            gone = "paddock: the directory in which the session stood is gone"
            there = f"builtin cd -- {shlex.quote(self.directory)}"
            lines.append(f"{there} || echo {shlex.quote(gone)} >&2")
        text = "\n".join(lines) + f"\n{_LEAVES}" + "; ".join(late)
        return text.encode("utf-8", "surrogateescape")

    def _exports(self) -> Iterator[str]:
        for name, value in self.exported:
            # What nobody sees, and what is no text, a line that is judged cannot hold as it is.
            said = shlex.quote(value)
            if not value.replace("\n", "").isprintable():
                escaped = (
                    chr(each) if chr(each).isalnum() and each < 0x80 else f"\\{each:03o}"
                    for each in value.encode("utf-8", "surrogateescape")
                )
                said = f"$'{''.join(escaped)}'"
            yield f"export {name}={said}"


NEW: Final = Snapshot()


def read_snapshot(left: bytes, given: Mapping[str, str], never: frozenset[str]) -> Snapshot | None:
    """Read what a shell left; None where it left nothing that can be read, or judged.

    `given` are the variables that it was started with; `never` are names that are not kept.
    """
    *parts, variables = left.decode("utf-8", "surrogateescape").split("\0", _PARTS)
    if len(parts) != _PARTS or not variables.endswith("\0\0"):
        return None
    # Functions work with variables that are nobody else's: what `deactivate` puts back.
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
    """Threat: a variable that acts before the shell could judge it, as the loader's do."""
    return name not in _NEVER_KEPT and not name.startswith("LD_")
