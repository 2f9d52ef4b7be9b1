"""The difference that a call would make, for whoever is asked about it.

It is made from the same content that the approval is bound to: what stands there is
read here, and shown only where its digest is the one in the request.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from paddock import limits
from paddock.errors import HostError, ToolError
from paddock.runtime.approvals import ApprovalRequest
from paddock.text.changes import is_whole_diff, unified_diff
from paddock.text.edit import require_content
from paddock.text.show import show_name
from paddock.tools.effects import ABSENT
from paddock.tools.replace import Replacement, ReplacementOfAll, Wording
from paddock.values.calls import Json
from paddock.workspace import Workspace, version_of

_READ_BYTES_MAX: Final = 400_000
_WORDING: Final = Wording("the old text does not stand there", "it is ambiguous", "")


@dataclass(frozen=True, slots=True)
class Preview:
    """A unified diff, or a word about why there is none. `is_whole`: nothing is left out."""

    text: str
    is_diff: bool = True
    is_whole: bool = True


class Previews(Protocol):
    def of(self, request: ApprovalRequest, lines_max: int) -> Preview | None:
        """What it would change; None for a call that changes no file by its arguments."""
        ...


@dataclass(frozen=True, slots=True)
class WorkspacePreviews:
    """Of calls on the workspaces of one plane. `root_of(agent)` is where an agent works."""

    root_of: Callable[[str], str]

    def of(self, request: ApprovalRequest, lines_max: int) -> Preview | None:
        if request.diff:
            return Preview(request.diff, is_whole=is_whole_diff(request.diff))
        change = _CHANGES.get(request.tool)
        path = request.arguments.get("path")
        if change is None or not isinstance(path, str):
            return None
        try:
            before = self._before(request, path)
            after = change(before or b"", request.arguments)
        except (ToolError, HostError) as error:
            return Preview(f"no diff: {error.message}", is_diff=False, is_whole=False)
        if before is None and request.target_digest != ABSENT:
            said = "no diff: what stands there is not what the question is bound to"
            return Preview(said, is_diff=False, is_whole=False)
        return _compared(before or b"", after, path, lines_max)

    def _before(self, request: ApprovalRequest, path: str) -> bytes | None:
        """The content that the request is bound to; None where nothing stands there."""
        if request.target_digest == ABSENT:
            return None
        with Workspace.open(self.root_of(request.agent)) as workspace:
            content = workspace.read_all(workspace.resolve_read(path), _READ_BYTES_MAX).content
        # Threat: the file is exchanged between the question and this look at it, and a
        # harmless difference is shown for another change.
        return content if version_of(content) == request.target_digest else None


def _compared(before: bytes, after: bytes, path: str, lines_max: int) -> Preview:
    if any(b"\0" in each[: limits.binary_probe_bytes] for each in (before, after)):
        said = f"no diff: binary, {len(before)} bytes before, {len(after)} bytes after"
        return Preview(said, is_diff=False, is_whole=False)
    if before == after:
        return Preview("no difference: the content stays the same", is_diff=False)
    text = unified_diff(before, after, show_name(path), lines_max)
    return Preview(text, is_whole=is_whole_diff(text))


def _written(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return require_content(str(arguments.get("content", "")), "content")


def _replaced(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return _replace(before, arguments, "old_str", "new_str")


def _replaced_dev(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return _replace(before, arguments, "old_string", "new_string")


def _replace(before: bytes, arguments: Mapping[str, Json], old: str, new: str) -> bytes:
    sought = require_content(str(arguments.get(old, "")), old)
    given = require_content(str(arguments.get(new, "")), new)
    name = str(arguments.get("path", ""))
    kind = ReplacementOfAll if arguments.get("replace_all") is True else Replacement
    return b"".join(kind(name, sought, given, _WORDING, may_view=False).apply(before))


def _deleted(before: bytes, arguments: Mapping[str, Json]) -> bytes:
    return b""


_CHANGES: Final[Mapping[str, Callable[[bytes, Mapping[str, Json]], bytes]]] = {
    "create_file": _written,
    "write_file_dev": _written,
    "str_replace": _replaced,
    "edit_file_dev": _replaced_dev,
    "delete_file": _deleted,
}
"""What each of these tools makes of the content that stands there."""
