"""A client's command, changed so that its shell has Paddock run it in the sandbox.

Threat: quotes in a command that end the argument in which it stands: what follows them would run
outside. A property test has both shells read what is made here.
"""

from _json import encode_basestring_ascii, make_encoder

from paddock.apps.hook.lean.places import Scene, find_place, relative

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from paddock.apps.hook.lean.asked import Asked


class Holding:
    """A program, and for whom it runs commands; `kind`: of a client's agent, in that of `agent`."""

    def __init__(
        self, program: "Sequence[str]", root: str, agent: str, kind: str, workspace: str
    ) -> None:
        self.program = program
        self.root = root
        self.agent = agent
        self.kind = kind
        self.workspace = workspace


def find_directory(asked: "Asked", scene: Scene, holding: "Holding | None", base: str) -> str:
    """Return where it would run; empty for none, or in the background. Raises: ShapeError."""
    if holding is None or asked.input.get("run_in_background"):
        return ""
    return relative(find_place(base, base, scene).real, holding.workspace)


def wants_out(asked: "Asked") -> bool:
    given = asked.input
    return (
        given.get("dangerouslyDisableSandbox") not in (None, False)
        or given.get("with_escalated_permissions") not in (None, False)
        or given.get("sandbox_permissions") not in (None, "use_default")
    )


def changed_input(asked: "Asked", holding: Holding, directory: str, ticket: str = "") -> str:
    command = asked.input.get("command")
    if type(command) is not str or "\0" in command:
        return ""
    words = [*holding.program, "--plane", holding.root, "--agent", holding.agent]
    words += ["--directory", directory]
    limit_ms = asked.input.get("timeout")
    for name, value in (
        ("--limit-ms", str(limit_ms) if type(limit_ms) is int and limit_ms > 0 else ""),
        ("--kind", holding.kind),
        ("--call", asked.call_id),
        ("--ticket", ticket),
    ):
        if value:
            words.append(f"{name}={value}")
    start = " ".join(quote(word) for word in words)
    changed = dict(asked.input)
    changed["command"] = changed_line(f'{start} "--shell=$$" -- {quote(command)}')
    return "".join(_encode(changed, 0))


def changed_line(start: str) -> str:
    return (
        f"{{ __paddock=$({start} 3>&1 >&4 4>&-); }} 4>&1; __paddock_status=$?; "
        '[ -z "$__paddock" ] || builtin cd -- "$__paddock"; (exit "$__paddock_status")'
    )


def quote(word: str) -> str:
    """Quote for bash or zsh: in single quotes nothing but their end means anything."""
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _refuse(value: object) -> str:
    raise TypeError(f"a {type(value).__name__} in an input")


_encode = make_encoder(None, _refuse, encode_basestring_ascii, None, ":", ",", False, False, False)
