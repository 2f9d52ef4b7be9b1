"""Every exception that Paddock raises. Codes are API, wording is not.

    PaddockError
    ├── ToolError                        the model can act; becomes an error result
    │   ├── InvalidArgumentsError        args.invalid
    │   │   └── UnknownArgumentError     args.unknown
    │   ├── UnknownToolError             tool.unknown
    │   ├── ToolFailedError              tool.failed
    │   ├── PathError
    │   │   ├── PathTraversalError       path.escapes_root
    │   │   ├── InvalidPathError         path.invalid
    │   │   ├── PathThroughLinkError     path.through_link
    │   │   ├── PathNotFoundError        path.not_found
    │   │   ├── PathNotAFileError        path.not_a_file
    │   │   ├── PathNotADirectoryError   path.not_a_directory
    │   │   ├── SpecialFileError         path.special_file
    │   │   ├── ReadOnlyPathError        path.read_only
    │   │   ├── PathExistsError          path.exists
    │   │   └── DirectoryNotEmptyError   path.not_empty
    │   ├── TextError
    │   │   ├── StringNotFoundError      text.not_found
    │   │   ├── AmbiguousMatchError      text.ambiguous
    │   │   ├── TextUnchangedError       text.unchanged
    │   │   ├── FileChangedError         text.changed
    │   │   ├── BinaryFileError          text.binary
    │   │   ├── TextEncodingError        text.encoding
    │   │   └── TextTooLargeError        text.too_large
    │   ├── InvalidPatternError          pattern.invalid
    │   ├── PermissionDeniedError        policy.denied
    │   │   ├── ForbiddenPathError       policy.forbidden
    │   │   ├── ProtectedPathError       policy.protected
    │   │   ├── GeneratedPathError       policy.generated
    │   │   └── SecretPathError          policy.secret
    │   ├── ApprovalError
    │   │   ├── ApprovalUnavailableError approval.unavailable
    │   │   ├── ApprovalRefusedError     approval.refused
    │   │   └── ApprovalExpiredError     approval.expired
    │   ├── CallCancelledError           call.cancelled
    │   ├── CallDroppedError             call.dropped
    │   ├── SandboxUnavailableError      sandbox.unavailable
    │   ├── LedgerUnknownError           ledger.unknown
    │   ├── LedgerBusyError              ledger.busy
    │   ├── LedgerFullError              ledger.full
    │   ├── StorageFullError             storage.full
    │   └── InternalToolError            internal
    ├── UsageError                       the person typing          (exit 2)
    ├── ConfigError                      the operator               (exit 3)
    ├── IntegrityError                   the auditor; work stops    (exit 4)
    │   └── LedgerDamagedError           ledger.damaged
    ├── HostError                        the operator of the host   (exit 5)
    │   ├── ModelFailedError             model.failed
    │   └── BudgetExhaustedError         budget.exhausted
    └── InternalError                    us; please report          (exit 70)

A message says what happened with the offending value quoted, in lower case and without a full
stop; `where` says in which file, line or field; `hint` says what to do next. None of them holds
a host path that a model must not see, unless the class is not a ToolError.
"""

from typing import ClassVar


class PaddockError(Exception):
    """Base of all. `code` is stable; `message`, `where` and `hint` are text."""

    code: ClassVar[str] = "internal"

    def __init__(self, message: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.where = where
        self.hint = hint

    def render(self) -> str:
        """`error[code]: message`, then `where:` and `hint:` lines where there are any."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  hint:  {self.hint}")
        return "\n".join(lines)


class ToolError(PaddockError):
    """The model can act on it: the door turns it into an error result."""

    code = "tool.failed"


class InvalidArgumentsError(ToolError):
    """An argument is missing, of the wrong type, out of range or given twice."""

    code = "args.invalid"


class UnknownArgumentError(InvalidArgumentsError):
    """The tool has no argument of that name."""

    code = "args.unknown"


class UnknownToolError(ToolError):
    """No tool of that name exists for this agent."""

    code = "tool.unknown"


class ToolFailedError(ToolError):
    """A tool of the embedding program failed; what it did by then is not known."""

    code = "tool.failed"


class PathError(ToolError):
    """A path that cannot be used as asked."""

    code = "path.invalid"


class PathTraversalError(PathError):
    """The path leads out of the workspace."""

    code = "path.escapes_root"


class InvalidPathError(PathError):
    """NUL or control characters, too long, or empty."""

    code = "path.invalid"


class PathThroughLinkError(PathError):
    """A write whose parent directory is reached through a link."""

    code = "path.through_link"


class PathNotFoundError(PathError):
    """Nothing stands there."""

    code = "path.not_found"


class PathNotAFileError(PathError):
    """A directory stands where a file is wanted."""

    code = "path.not_a_file"


class PathNotADirectoryError(PathError):
    """Something else stands where a directory is wanted."""

    code = "path.not_a_directory"


class SpecialFileError(PathError):
    """A FIFO, socket or device."""

    code = "path.special_file"


class ReadOnlyPathError(PathError):
    """The file or its directory may not be written by us."""

    code = "path.read_only"


class PathExistsError(PathError):
    """Something stands there already and is never overwritten."""

    code = "path.exists"


class DirectoryNotEmptyError(PathError):
    """A directory with entries is neither moved nor deleted."""

    code = "path.not_empty"


class TextError(ToolError):
    """The content does not fit what was asked."""

    code = "text.encoding"


class StringNotFoundError(TextError):
    """The old text does not stand in the file."""

    code = "text.not_found"


class AmbiguousMatchError(TextError):
    """The old text stands in the file more than once."""

    code = "text.ambiguous"


class TextUnchangedError(TextError):
    """Old and new text are the same."""

    code = "text.unchanged"


class FileChangedError(TextError):
    """The file is no longer what the caller, or the lock's holder, read."""

    code = "text.changed"


class BinaryFileError(TextError):
    """A NUL byte where text is wanted."""

    code = "text.binary"


class TextEncodingError(TextError):
    """Not UTF-8; the message says where."""

    code = "text.encoding"


class TextTooLargeError(TextError):
    """Over a limit of `paddock.limits`."""

    code = "text.too_large"


class InvalidPatternError(ToolError):
    """A regular expression or glob that cannot be used."""

    code = "pattern.invalid"


class PermissionDeniedError(ToolError):
    """Policy says no."""

    code = "policy.denied"


class ForbiddenPathError(PermissionDeniedError):
    """The agent's own permissions exclude the path."""

    code = "policy.forbidden"


class ProtectedPathError(PermissionDeniedError):
    """A protected path, or one of Paddock's own files."""

    code = "policy.protected"


class GeneratedPathError(PermissionDeniedError):
    """Only commands write there."""

    code = "policy.generated"


class SecretPathError(PermissionDeniedError):
    """Neither read nor written by any agent."""

    code = "policy.secret"


class ApprovalError(ToolError):
    """An `ask` that did not end in a yes."""

    code = "approval.unavailable"


class ApprovalUnavailableError(ApprovalError):
    """Nobody could be asked."""

    code = "approval.unavailable"


class ApprovalRefusedError(ApprovalError):
    """Somebody said no."""

    code = "approval.refused"


class ApprovalExpiredError(ApprovalError):
    """The answer came too late, or for something that has changed since."""

    code = "approval.expired"


class CallCancelledError(ToolError):
    """Somebody stopped the call; the hint says what it left behind."""

    code = "call.cancelled"


class CallDroppedError(ToolError):
    """The call was not run: its turn was cut, or its work order ended."""

    code = "call.dropped"


class SandboxUnavailableError(ToolError):
    """This host cannot enforce the policy on a command."""

    code = "sandbox.unavailable"


class LedgerUnknownError(ToolError):
    """The call ran, and its outcome could not be recorded."""

    code = "ledger.unknown"


class LedgerBusyError(ToolError):
    """Another process holds the ledger's lock, or changes packages; the message says which."""

    code = "ledger.busy"


class LedgerFullError(ToolError):
    """No space is left for the ledger: nothing runs."""

    code = "ledger.full"


class StorageFullError(ToolError):
    """No space is left for the file; its old content stands."""

    code = "storage.full"


class InternalToolError(ToolError):
    """A defect of ours inside a tool; the message holds an id to report."""

    code = "internal"


class UsageError(PaddockError):
    """The command line was not understood."""

    code = "usage"


class ConfigError(PaddockError):
    """A policy, agent or settings file that does not load."""

    code = "config.invalid"


class IntegrityError(PaddockError):
    """Something that must not change has changed. Work stops."""

    code = "integrity"


class LedgerDamagedError(IntegrityError):
    """A ledger does not verify; the message says at which line."""

    code = "ledger.damaged"


class HostError(PaddockError):
    """This host could not do it."""

    code = "host"


class ModelFailedError(HostError):
    """A model could not be asked, or its answer could not be used."""

    code = "model.failed"


class BudgetExhaustedError(HostError):
    """A scope has fewer tokens left than a request may need: it is not sent."""

    code = "budget.exhausted"


class InternalError(PaddockError):
    """A defect of ours."""

    code = "internal"


def _tool_errors(base: type[ToolError]) -> dict[str, type[ToolError]]:
    found: dict[str, type[ToolError]] = {}
    for sub in base.__subclasses__():
        found.update(_tool_errors(sub))
        found[sub.code] = sub
    return found


TOOL_ERRORS: dict[str, type[ToolError]] = _tool_errors(ToolError) | {
    InvalidArgumentsError.code: InvalidArgumentsError,
    PermissionDeniedError.code: PermissionDeniedError,
    InvalidPathError.code: InvalidPathError,
    TextEncodingError.code: TextEncodingError,
    ApprovalUnavailableError.code: ApprovalUnavailableError,
}
"""Code → the class that a caller of the Python API catches."""
