"""A search in one file shows what stands in it, so it asks for what `view` asks for."""

from dataclasses import dataclass

from paddock.errors import ToolError
from paddock.tools.spec import Ports, Shown
from paddock.tools.targets import path_actions
from paddock.values.decisions import Action
from paddock.workspace import ReadPath


def viewing_actions(path: ReadPath, ports: Ports) -> tuple[Action, ...]:
    """To view the file, where that is not allowed anyway; nothing for a directory.

    Of a directory each file is judged by itself, and what may not be viewed has no rows.
    """
    if ports.shown.may_view(path.real.relative):
        return ()
    try:
        with ports.workspace.open_file(path):
            return path_actions("file", "view", path)
    except ToolError:
        return ()  # no file, or none that can be read: the search itself says which


@dataclass(frozen=True, slots=True)
class ShownWith:
    """What an agent is shown, and one file besides: viewing it was decided on for this call."""

    shown: Shown
    path: str

    def is_shown(self, relative: str) -> bool:
        return self.shown.is_shown(relative)

    def may_view(self, relative: str) -> bool:
        return relative == self.path or self.shown.may_view(relative)

    def allows(self, action: Action) -> bool:
        return self.shown.allows(action)


def shown_for(actions: tuple[Action, ...], path: ReadPath, ports: Ports) -> Shown:
    """What this call is shown: with its own file, where `viewing_actions` were decided on."""
    if any(action.category == "file" for action in actions):
        return ShownWith(ports.shown, path.real.relative)
    return ports.shown
