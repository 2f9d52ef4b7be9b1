"""Run one hook call: read the event, write the answer, and refuse the call on any error.

Only the interpreter's library is on the import path. A call that cannot be decided is refused in
JSON, or else by exit status 2 with one line that names the repair.
"""

import gc
import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal as _signal
else:
    import _signal

ANSWER_TIMEOUT_S = 25
"""Same as `limits.hook_answer_timeout_s`. Some clients run a call if the hook takes too long."""
RECORD_TIMEOUT_S = 5
"""For recording a stopped call; a client waits long enough for both."""
INPUT_BYTES_MAX = 64_000_000

_STOPPING = (_signal.SIGTERM, _signal.SIGHUP, _signal.SIGINT, _signal.SIGALRM)
_READ_BYTES = 1 << 16
_STDIN, _STDOUT, _STDERR = 0, 1, 2
_HERE = __file__.rpartition("/")[0]
_PACKAGE = _HERE.removesuffix("/apps/hook/lean")


class StoppedError(BaseException):
    """A signal or the time limit ended the decision."""


def main() -> int:
    # The process is too short-lived for garbage collection, which costs time.
    gc.disable()
    try:
        _require_streams()
        for number in _STOPPING:
            _signal.signal(number, _stop)
        _signal.alarm(ANSWER_TIMEOUT_S)
        # The parent process may have blocked them.
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, _STOPPING)
        answer = _answer()
    except BaseException as error:  # Fail closed: no error may let a call run undecided.
        kind = type(error).__name__
        what = "the decision was stopped" if kind == "StoppedError" else f"{kind}: {error}"
        answer = _refusal(f"Paddock could not decide ({what}). Repair: paddock hook install")
    try:
        _write(answer)
    except BaseException as error:  # Fail closed: the exit status refuses.
        said = f"paddock hook: the answer cannot be written ({type(error).__name__})"
        posix.write(_STDERR, f"{said}; the call is refused: paddock hook status\n".encode())
        return 2
    return 0


def _require_streams() -> None:
    """Refuse to start without stdout; open /dev/null for other closed standard streams.

    Threat: the next opened file, such as a ledger, gets the number and the text of a closed stream.
    """
    posix.fstat(_STDOUT)
    while (held := posix.open("/dev/null", posix.O_RDWR | posix.O_CLOEXEC)) <= _STDERR:
        pass
    posix.close(held)


def _answer() -> bytes:
    client = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=False)).get("--client", "")
    variables = _environment()
    data = _read()
    sys.path.pop(0)  # The directory of these modules.
    answer, has_image = _lean(data, client, variables)
    if answer is None:
        answer = _full(data, client, variables, has_image)
    return answer


def _lean(data: bytes, client: str, variables: "dict[str, str]") -> "tuple[bytes | None, bool]":
    """Return the answer, or None to leave it to the full path; and True if an image is usable."""
    # Bypass the package's `__init__`, which imports other modules.
    package = sys.modules["paddock"] = type(sys)("paddock")
    package.__path__ = [_PACKAGE]
    from paddock.apps.hook.lean.handler import Attempt
    from paddock.apps.hook.lean.request import DeclinedError, ShapeError

    attempt = Attempt(data, client, variables)
    try:
        return attempt.answer(), True
    except (DeclinedError, ShapeError):
        return None, attempt.has_image
    except Exception:
        if attempt.has_recorded:
            raise
        # A bug before any side effect: the full path decides from the beginning.
        return None, False


def _full(data: bytes, client: str, variables: "dict[str, str]", has_image: bool) -> bytes:
    for name in [name for name in sys.modules if name.partition(".")[0] == "paddock"]:
        del sys.modules[name]
    import os
    import site

    gc.enable()
    # `-S` left this out, because only the full path needs installed packages.
    sys.path.append(_PACKAGE.rpartition("/")[0])
    site.main()
    from paddock.apps.hook.full import HookInput, answer, record_stop

    given = HookInput(data, client, variables, os.getcwd(), keeps_image=not has_image)
    try:
        return answer(given)
    except StoppedError:
        _signal.alarm(RECORD_TIMEOUT_S)
        record_stop(given)
        _signal.alarm(0)
        raise


def _read() -> bytes:
    data = bytearray()
    while len(data) <= INPUT_BYTES_MAX and (part := posix.read(_STDIN, _READ_BYTES)):
        data += part
    return bytes(data)


def _write(answer: bytes) -> None:
    rest = memoryview(answer)
    while rest:
        rest = rest[posix.write(_STDOUT, rest) :]


def _environment() -> "dict[str, str]":
    return {
        name.decode("utf-8", "surrogateescape"): value.decode("utf-8", "surrogateescape")
        for name, value in posix.environ.items()
    }


def _refusal(reason: str) -> bytes:
    said = "".join(c if c.isalnum() or c in " .,:;()_-/" else " " for c in reason[:400])
    return (
        '{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny",'
        f'"permissionDecisionReason":"{said}"}},"systemMessage":"{said}"}}\n'
    ).encode("ascii", "replace")


def _stop(number: int, _frame: object) -> None:
    raise StoppedError(f"signal {number}")
