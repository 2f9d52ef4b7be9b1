"""Writing a whole file: what every tool that does so has in common."""

from paddock.errors import PathExistsError
from paddock.tools.spec import Ports
from paddock.tools.versions import ABSENT, refusal_of_presence, telling_what_changed
from paddock.workspace import Expected, WritePath, WriteReceipt


def write_whole(
    ports: Ports,
    path: WritePath,
    content: bytes,
    if_version: str | None,
    *,
    create_parents: bool = True,
) -> WriteReceipt:
    """Put `content` at `path`, in place of what has the version `if_version`.

    Raises: ToolError; then the old content stands. FileChangedError where it has another
        version, or something stands where nothing was to; it says what changed.
    """
    expected, version = Expected.AS_RESOLVED, if_version
    if if_version == ABSENT:
        expected, version = Expected.ABSENT, None
    elif if_version is None:
        # Of two that write one path at once, both succeed, one after the other.
        expected = Expected.ANYTHING
    with telling_what_changed(if_version, path.real, ports):
        try:
            return ports.workspace.write_file(
                path, content, if_version=version, expected=expected, create_parents=create_parents
            )
        except PathExistsError:
            if expected is not Expected.ABSENT:
                raise
            raise refusal_of_presence(path, ports) from None
