"""The file that an installed hook command names: `python -I -S launch.py [--client NAME]`.

Nothing is on the path but the interpreter's own library: no site packages, nothing from
the environment or the current directory. The lean modules are loaded as members of a
package whose other `__init__` files do not run; only for what they leave undecided is
the environment's library put on the path and the package loaded as it is.

Whatever happens, a call that cannot be decided is refused: by the JSON of a denial, and
where even that cannot be written by exit status 2 with one line that names the repair.
"""

import _signal
import posix
import sys

ANSWER_TIMEOUT_S = 25
"""As `limits.hook_answer_timeout_s`: some clients let a call run when a hook takes too long."""
READ_BYTES = 1 << 20
INPUT_BYTES_MAX = 64_000_000
_STDOUT = 1
_PLACE = __file__.rpartition("/apps/hook/")[0]


class StoppedError(BaseException):
    """A signal or the time limit ended the decision."""


def _stop(number: int, _frame: object) -> None:
    raise StoppedError(f"signal {number}")


def _read() -> bytes:
    parts: list[bytes] = []
    size = 0
    while size <= INPUT_BYTES_MAX:
        part = posix.read(0, READ_BYTES)
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _write(answer: bytes) -> None:
    """Write the whole answer. One call takes it, but for a pipe that is full."""
    rest = memoryview(answer)
    while rest:
        rest = rest[posix.write(_STDOUT, rest) :]


def _lean(data: bytes, client: str, variables: dict[str, str]) -> tuple[bytes | None, bool]:
    """The lean answer, None where it is left to the full path; and whether there is an image."""
    stub = type(sys)
    for name in ("paddock", "paddock.apps", "paddock.apps.hook"):
        module = stub(name)
        module.__path__ = [_PLACE + name[7:].replace(".", "/")]
        sys.modules[name] = module
    from paddock.apps.hook.lean import door
    from paddock.apps.hook.lean.asked import ShapeError
    from paddock.apps.hook.lean.declined import DeclinedError

    attempt = door.Attempt(data, client, variables)
    try:
        return attempt.answer(), True
    except (DeclinedError, ShapeError):
        return None, attempt.has_image


def _full(data: bytes, client: str, variables: dict[str, str], has_image: bool) -> bytes:
    for name in [name for name in sys.modules if name.partition(".")[0] == "paddock"]:
        del sys.modules[name]
    import os
    import site

    # Without -S this happens at every start; here only when the library is needed.
    sys.path.append(_PLACE.rpartition("/")[0])
    site.main()
    from paddock.apps.hook.full import Given, answer

    program = (sys.executable, "-m", "paddock.apps.cli.main")
    given = Given(data, client, variables, os.getcwd(), program, keeps_image=not has_image)
    return answer(given)


def _environment() -> dict[str, str]:
    """As `os.environ`, without the import."""
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for name, value in posix.environ.items()
    }


def _refusal(reason: str) -> bytes:
    """A denial in which nothing has to be escaped."""
    said = "".join(c if c.isalnum() or c in " .,:;()_-/" else " " for c in reason[:400])
    return (
        '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",'
        f'"permissionDecisionReason":"{said}"}},"systemMessage":"{said}"}}\n'
    ).encode("ascii", "replace")


def main() -> int:
    """Answer one event. Returns the exit status where the answer could not be written."""
    has_read = False
    try:
        for number in (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT, _signal.SIGALRM):
            _signal.signal(number, _stop)
        _signal.alarm(ANSWER_TIMEOUT_S)
        arguments = sys.argv[1:]
        client = arguments[1] if arguments[:1] == ["--client"] and len(arguments) == 2 else ""
        data = _read()
        has_read = True
        variables = _environment()
        answer, has_image = _lean(data, client, variables)
        if answer is None:
            answer = _full(data, client, variables, has_image)
    except BaseException as error:  # The door: nothing may let a call run undecided.
        kind = type(error).__name__
        what = "the decision was stopped" if kind == "StoppedError" else f"{kind}: {error}"
        answer = _refusal(
            f"Paddock could not decide ({what}). Repair: paddock hook install, then paddock doctor"
        )
    try:
        _write(answer)
    except BaseException as error:  # The door, as above: without an answer, the status refuses.
        said = f"paddock hook: the answer cannot be written ({type(error).__name__})"
        posix.write(2, f"{said}; the call is refused: paddock hook status\n".encode())
        return 2
    return 0


if __name__ == "__main__":
    posix._exit(main())
