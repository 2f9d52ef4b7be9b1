"""Writing a whole file: what every tool that does so has in common."""

from paddock.tools.outputs import ABSENT
from paddock.tools.spec import Ports
from paddock.tools.targets import pinned
from paddock.workspace import Expected, Workspace, WritePath, WriteReceipt


def pinned_version(if_version: str | None, path: WritePath, ports: Ports) -> str:
    """The version of what stands there now, or its absence, to bind a write to.

    Raises: FileChangedError where the caller wants another version.
    """
    found = ports.workspace.version(path.real) if path.exists else ABSENT
    return pinned(if_version, found, path.asked)


def write_whole(
    workspace: Workspace,
    path: WritePath,
    content: bytes,
    if_version: str | None,
    *,
    create_parents: bool = True,
) -> WriteReceipt:
    """Put `content` at `path`, in place of what has the version `if_version`.

    Raises: ToolError; then the old content stands.
    """
    expected = Expected.AS_RESOLVED
    if if_version == ABSENT:
        if_version, expected = None, Expected.ABSENT
    elif if_version is None:
        # Of two that write one path at once, both succeed, one after the other.
        expected = Expected.ANYTHING
    return workspace.write_file(
        path, content, if_version=if_version, expected=expected, create_parents=create_parents
    )
