"""Opening the directory that an agent works in."""

from pathlib import Path

from paddock.history.keeping import Keeper
from paddock.plane.agent_files import AgentRecord
from paddock.plane.workspaces import require_as_declared
from paddock.workspace import Workspace


def open_workspace_of(
    record: AgentRecord, keeper: Keeper | None = None, name: str | None = None
) -> Workspace:
    """The workspace of an agent that was read; `keeper` and `name` as `Workspace.open` has them.

    Threat: a link comes in its way between the look at it and here. What was opened is asked,
    and from then on it is held by its descriptor.

    Raises:
        ConfigError: it is another directory than the declared one, or cannot be opened.
        HostError: as `Workspace.open`.
    """
    workspace = Workspace.open(str(record.workspace), keeper=keeper, name=name)
    try:
        require_as_declared(record, Path(workspace.real_root))
    except BaseException:
        workspace.close()
        raise
    return workspace
