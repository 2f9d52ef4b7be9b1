"""Opening the directory that an agent works in."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import require_as_declared
from paddock.storage.history import Keeper
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


@contextmanager
def workspace_with_git(record: AgentRecord, keeper: Keeper) -> Generator[Workspace]:
    """The same, with the git directory of its repository where that stands outside.

    For sets of changes that commands made: what is named `.git/…` in them lies there.

    Raises: as `open_workspace_of`.
    """
    from paddock.sandbox.host.git_outside import open_git_outside  # noqa: PLC0415 - for commands alone

    with open_workspace_of(record, keeper) as workspace:
        held = open_git_outside(workspace.real_root)
        if held is None:
            yield workspace
            return
        try:
            with workspace.with_beside(held.beside) as both:
                yield both
        finally:
            held.close()
