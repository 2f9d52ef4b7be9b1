"""The version that a call acts on: as its caller wants it, and as it stands there.

Where the two are not the same, the refusal says what changed, to whom it may be shown.
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from paddock.errors import FileChangedError, PathNotFoundError, TextError, ToolError
from paddock.text.changes import unified_diff
from paddock.text.check import require_text
from paddock.text.show import quote, show_name
from paddock.tools.spec import Ports
from paddock.workspace import EntryPath, EntryVersion, WorkspacePath, WritePath

ABSENT: Final = "absent"
"""As `if_version`: nothing may stand there."""

IF_VERSION: Final = "Only if the file still has this version (as a view returned it)."
"""Of a tool that acts on what is there."""
IF_VERSION_OR_ABSENT: Final = (
    "Only if the file still has this version (as a view returned it), "
    f"or '{ABSENT}' for only if there is none."
)
"""Of a tool that can create a file, too."""


def pinned(wanted: str | None, found: str, path: WorkspacePath) -> str:
    """The version to act on: what is shown to an approver, and stands there now.

    Threat: a caller that names a version which is to come would have a question
    about one content answered, and act on another.

    Raises: FileChangedError where the caller wants another version.
    """
    if wanted in (None, found):
        return found
    raise FileChangedError(
        f"{quote(path.relative)} is not at version {quote(wanted)}: it is at {found}",
        hint="read it again, then repeat the call with the new version",
    )


def pinned_entry(wanted: str | EntryVersion | None, entry: EntryPath, ports: Ports) -> EntryVersion:
    """The same for what is moved or deleted, with its kind.

    Raises: FileChangedError where the caller wants another version; as `Workspace.delete`.
    """
    with telling_what_changed(wanted, entry.path, ports):
        found = ports.workspace.entry_version(entry)
        pinned(_plain(wanted), found.version, entry.path)
    return found


def pinned_file(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """The version of a file that is there, to bind an edit to.

    Raises: FileChangedError where the caller wants another version; as `Workspace.version`.
    """
    with telling_what_changed(if_version, path.real, ports):
        found = ports.workspace.version(path.real)
        return pinned(if_version, found, path.asked)


def pinned_version(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """The version of what stands there now, or its absence, to bind a write to.

    Raises: FileChangedError where the caller wants another version.
    """
    if path.exists and if_version == ABSENT:
        with telling_what_changed(if_version, path.real, ports):
            raise refusal_of_presence(path, ports)
    if path.exists:
        return pinned_file(if_version, path, ports)
    if if_version is not None and if_version != ABSENT:
        raise _refusal_of_absence(if_version, path.asked, "leave if_version out to create it")
    return ABSENT


def _refusal_of_absence(wanted: str, path: WorkspacePath, hint: str) -> FileChangedError:
    return FileChangedError(
        f"{quote(path.relative)} is not at version {quote(wanted)}: it does not exist", hint=hint
    )


def refusal_of_presence(path: WritePath, ports: Ports) -> FileChangedError:
    """What to say where the caller wants nothing to stand, and something stands."""
    try:
        stands = f"exists now, at {ports.workspace.version(path.real)}"
    except ToolError:
        stands = "exists now"  # no file, or gone again
    return FileChangedError(
        f"{quote(path.asked.relative)} {stands}",
        hint="read it, then repeat the call with its version, or use another path",
    )


@contextmanager
def telling_what_changed(
    wanted: str | EntryVersion | None, path: WorkspacePath, ports: Ports
) -> Generator[None]:
    """Have the refusal of a version that does not hold any more say what changed since.

    `path` is the real one, where the content stands.

    Raises: FileChangedError as the block does, with a diff in its hint: cut as every diff
        that a model is shown, and without what the agent may not view. Where nothing
        stands there any more it is raised in the place of a PathNotFoundError.
    """
    try:
        yield
    except PathNotFoundError as error:
        plain = _plain(wanted)
        if plain is None or plain == ABSENT:
            raise
        hint = "it was moved or deleted meanwhile; list the files"
        raise _refusal_of_absence(plain, path, hint) from error
    except FileChangedError as error:
        plain = _plain(wanted)
        difference = "" if plain is None else _difference(plain, path, ports)
        if not difference:
            raise
        # In the hint: the ledger keeps the message, and no contents of files.
        hint = f"{error.hint}; what changed:\n{difference}"
        raise FileChangedError(error.message, where=error.where, hint=hint) from error


def _plain(wanted: str | EntryVersion | None) -> str | None:
    return wanted.version if isinstance(wanted, EntryVersion) else wanted


def _kept(ports: Ports, path: WorkspacePath, version: str, bytes_max: int) -> bytes | None:
    earlier = ports.earlier
    return None if earlier is None else earlier.content(path.relative, version, bytes_max)


def _difference(wanted: str, path: WorkspacePath, ports: Ports) -> str:
    """The diff, or a word about why there is none; empty where the message says it all."""
    # Threat: an agent that may write a file and not view it would read it in the diff.
    if not ports.shown.may_view(path.relative):
        return "[no diff: it is not yours to view]"
    bytes_max = ports.limits.view_bytes_max
    try:
        now = ports.workspace.read_all(path, bytes_max).content
    except PathNotFoundError:
        return ""
    except ToolError as error:
        return f"[no diff: {error.message}]"
    before = b"" if wanted == ABSENT else _kept(ports, path, wanted, bytes_max)
    if before is None:
        return f"[no diff: what it held then is not kept; it has {len(now)} bytes now]"
    try:
        for content in (before, now):
            require_text(content, path.relative)
    except TextError:
        return f"[no diff: no text; {len(before)} bytes then, {len(now)} bytes now]"
    return unified_diff(before, now, show_name(path.relative))
