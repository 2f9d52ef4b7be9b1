"""Every exception that Paddock raises. Codes are API, messages are not.

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
    │   ├── SessionChangedError          session.changed
    │   ├── LedgerUnknownError           ledger.unknown
    │   ├── LedgerBusyError              ledger.busy
    │   ├── LedgerFullError              ledger.full
    │   ├── StorageFullError             storage.full
    │   └── InternalToolError            internal
    ├── UsageError                       who typed or called it     (exit 2)
    ├── ConfigError                      the operator               (exit 3)
    ├── IntegrityError                   the auditor; work stops    (exit 4)
    │   └── LedgerDamagedError           ledger.damaged
    ├── HostError                        the operator of the host   (exit 5)
    │   ├── ModelFailedError             model.failed
    │   └── BudgetExhaustedError         budget.exhausted
    └── InternalError                    a bug; please report it    (exit 70)

The right column names who can act. A message says what happened, with the offending value
quoted, in lower case and without a full stop; `where` names the file, line or field; `hint` says
what to do next. A ToolError never has a host path, which a model must not see.
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
        if hint:
            # Python shows a note below the message of an exception that nobody catches.
            self.add_note(f"hint: {hint}")

    def render(self) -> str:
        """Return `error[code]: message`, and `where:` and `hint:` lines if they are set."""
        lines = [f"error[{self.code}]: {self.message}"]
        if self.where:
            lines.append(f"  where: {self.where}")
        if self.hint:
            lines.append(f"  hint:  {self.hint}")
        return "\n".join(lines)


class ToolError(PaddockError):
    """An error that the model can act on; it becomes an error result."""

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
    """A tool of the program failed; unless it raised a ToolError, its effect is not known."""

    code = "tool.failed"


class PathError(ToolError):
    """A path that cannot be used as asked."""

    code = "path.invalid"


class PathTraversalError(PathError):
    """The path is outside the workspace."""

    code = "path.escapes_root"


class InvalidPathError(PathError):
    """The path is empty, too long, or has NUL or control characters."""

    code = "path.invalid"


class PathThroughLinkError(PathError):
    """A directory on the way to a written path is a symlink."""

    code = "path.through_link"


class PathNotFoundError(PathError):
    """The path does not exist."""

    code = "path.not_found"


class PathNotAFileError(PathError):
    """The path is a directory, not a file."""

    code = "path.not_a_file"


class PathNotADirectoryError(PathError):
    """The path, or a parent of it, is not a directory."""

    code = "path.not_a_directory"


class SpecialFileError(PathError):
    """The path is a FIFO, socket or device."""

    code = "path.special_file"


class ReadOnlyPathError(PathError):
    """This user may not write the file or its directory."""

    code = "path.read_only"


class PathExistsError(PathError):
    """The path already exists and is not overwritten."""

    code = "path.exists"


class DirectoryNotEmptyError(PathError):
    """The directory is not empty, so it is neither moved nor deleted."""

    code = "path.not_empty"


class TextError(ToolError):
    """The content does not allow the requested operation."""

    code = "text.encoding"


class StringNotFoundError(TextError):
    """The old text does not occur in the file."""

    code = "text.not_found"


class AmbiguousMatchError(TextError):
    """The old text occurs in the file more than once."""

    code = "text.ambiguous"


class TextUnchangedError(TextError):
    """Old and new text are the same."""

    code = "text.unchanged"


class FileChangedError(TextError):
    """The file has changed since the caller, or the holder of the lock, read it."""

    code = "text.changed"


class BinaryFileError(TextError):
    """The file or text has a NUL byte."""

    code = "text.binary"


class TextEncodingError(TextError):
    """The file or text is not UTF-8; the message says where."""

    code = "text.encoding"


class TextTooLargeError(TextError):
    """The file or text exceeds a limit of `paddock.limits`."""

    code = "text.too_large"


class InvalidPatternError(ToolError):
    """The regular expression or glob is not valid."""

    code = "pattern.invalid"


class PermissionDeniedError(ToolError):
    """Policy denies the action."""

    code = "policy.denied"


class ForbiddenPathError(PermissionDeniedError):
    """The agent's permissions exclude the path."""

    code = "policy.forbidden"


class ProtectedPathError(PermissionDeniedError):
    """The path is protected, or belongs to Paddock."""

    code = "policy.protected"


class GeneratedPathError(PermissionDeniedError):
    """Only commands may write the path."""

    code = "policy.generated"


class SecretPathError(PermissionDeniedError):
    """The path is secret: agents may neither read nor write it."""

    code = "policy.secret"


class ApprovalError(ToolError):
    """The action needs an approval and did not get it."""

    code = "approval.unavailable"


class ApprovalUnavailableError(ApprovalError):
    """No approver could be asked."""

    code = "approval.unavailable"


class ApprovalRefusedError(ApprovalError):
    """The approver denied the request."""

    code = "approval.refused"


class ApprovalExpiredError(ApprovalError):
    """The answer came too late, or its subject has changed since."""

    code = "approval.expired"


class CallCancelledError(ToolError):
    """The call was cancelled; the hint describes its effect so far."""

    code = "call.cancelled"


class CallDroppedError(ToolError):
    """The call did not run: its turn was cut short, or its work order ended."""

    code = "call.dropped"


class SandboxUnavailableError(ToolError):
    """This host cannot enforce the policy on a command."""

    code = "sandbox.unavailable"


class SessionChangedError(ToolError):
    """The session changed after the command was judged; the command did not run."""

    code = "session.changed"


class LedgerUnknownError(ToolError):
    """The call ran, but its outcome could not be recorded."""

    code = "ledger.unknown"


class LedgerBusyError(ToolError):
    """Another process holds the ledger's lock or changes packages; the message says which."""

    code = "ledger.busy"


class LedgerFullError(ToolError):
    """No space is left for the ledger, so no call runs."""

    code = "ledger.full"


class StorageFullError(ToolError):
    """No space is left for the file; its old content is unchanged."""

    code = "storage.full"


class InternalToolError(ToolError):
    """A bug in one of Paddock's tools; the message has an id to report."""

    code = "internal"


class UsageError(PaddockError):
    """The command line, or an argument of a Python call, is not valid."""

    code = "usage"


class ConfigError(PaddockError):
    """A policy, agent or settings file cannot be loaded."""

    code = "config.invalid"


class IntegrityError(PaddockError):
    """Data that must not change has changed. Work stops."""

    code = "integrity"


class LedgerDamagedError(IntegrityError):
    """A ledger fails verification; the message says at which line."""

    code = "ledger.damaged"


class HostError(PaddockError):
    """The host could not perform the operation."""

    code = "host"


class ModelFailedError(HostError):
    """A model could not be reached, or its response was not usable."""

    code = "model.failed"


class BudgetExhaustedError(HostError):
    """A budget has fewer tokens left than the request may need, so it is not sent."""

    code = "budget.exhausted"


class InternalError(PaddockError):
    """A bug in Paddock."""

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
"""Code → the class that callers of the Python API catch."""
