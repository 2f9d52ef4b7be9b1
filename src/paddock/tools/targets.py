"""The actions that a resolved path stands for, and its name for the host."""

from paddock.values.actions import Action
from paddock.workspace import ReadPath, Workspace, WorkspacePath, WritePath


def path_actions(category: str, operation: str, path: ReadPath | WritePath) -> tuple[Action, ...]:
    """One action for the path as asked, and one for where a link leads.

    Threat: a rule on the name of a link says nothing about its target, and a
    rule on the target says nothing about the link: both are judged.
    """
    asked = Action(category, operation, path.asked.relative)
    if path.real == path.asked:
        return (asked,)
    return (asked, Action(category, operation, path.real.relative))


def absolute(workspace: Workspace, path: WorkspacePath) -> str:
    """The path for the host: never shown to a model."""
    if path.relative == ".":
        return workspace.root
    return f"{workspace.root.rstrip('/')}/{path.relative}"
