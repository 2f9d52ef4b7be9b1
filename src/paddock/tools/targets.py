"""The actions that a resolved path stands for, and its name for the host."""

from paddock.errors import FileChangedError
from paddock.text.show import quote
from paddock.values.actions import Action
from paddock.values.quick import quick
from paddock.workspace import (
    EntryPath,
    EntryVersion,
    ReadPath,
    Workspace,
    WorkspacePath,
    WritePath,
)


def path_actions(category: str, operation: str, path: ReadPath | WritePath) -> tuple[Action, ...]:
    """One action for the path as asked, and one for where a link leads.

    Threat: a rule on the name of a link says nothing about its target, and a
    rule on the target says nothing about the link: both are judged.
    """
    asked, real = path.asked, path.real
    action = quick(Action, (category, operation, asked.relative))
    if real is asked or real == asked:
        return (action,)
    return (action, Action(category, operation, real.relative))


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


def pinned_entry(
    wanted: str | EntryVersion | None, entry: EntryPath, workspace: Workspace
) -> EntryVersion:
    """The same for what is moved or deleted, with its kind.

    Raises: FileChangedError where the caller wants another version; as `Workspace.delete`.
    """
    found = workspace.entry_version(entry)
    plain = wanted.version if isinstance(wanted, EntryVersion) else wanted
    pinned(plain, found.version, entry.path)
    return found


def absolute(workspace: Workspace, path: WorkspacePath) -> str:
    """The path for the host: never shown to a model."""
    if path.relative == ".":
        return workspace.root
    return f"{workspace.root.rstrip('/')}/{path.relative}"
