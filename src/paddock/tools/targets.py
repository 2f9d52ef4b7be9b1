"""The actions that a resolved path stands for, and its name for the host."""

from paddock.values.decisions import Action
from paddock.values.quick import quick
from paddock.workspace import ReadPath, Workspace, WorkspacePath, WritePath


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


def absolute(workspace: Workspace, path: WorkspacePath) -> str:
    """The path for the host: never shown to a model."""
    if path.relative == ".":
        return workspace.root
    return f"{workspace.root.rstrip('/')}/{path.relative}"
