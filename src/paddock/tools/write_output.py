"""`write_output`: a new file under `outputs/`, never in the place of another."""

from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.errors import InvalidArgumentsError, PathExistsError
from paddock.text.edit import require_content
from paddock.text.show import name_notices, quote, show_name
from paddock.tools.arguments import ArgumentType, needed_text, plain_text
from paddock.tools.effects import change_of_write
from paddock.tools.outputs import result_schema
from paddock.tools.spec import Effects, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.calls import Json
from paddock.values.decisions import Action
from paddock.workspace import Expected, Workspace, WritePath, WriteReceipt

_FOLDER: Final = "outputs"
_SUFFIX: Final = ".md"
_NAME_BYTES_MAX: Final = (
    limits.name_bytes_max - len(f" ({limits.outputs_numbered_max})") - len(_SUFFIX)
)
"""So that the last number fits too."""


@dataclass(frozen=True, slots=True)
class WriteOutputArguments(ArgumentType):
    """Arguments of `write_output`."""

    name: str = needed_text(
        "Name without a directory and without .md; a number is added if it is taken."
    )
    content: str = plain_text("The whole text.", is_content=True)


@dataclass(frozen=True, slots=True)
class WriteOutputPlan:
    """What will be written: under the first name that is free, told by its number."""

    name: str
    number: int
    content: bytes
    actions: tuple[Action, ...]


class WriteOutput:
    """Two writers with one name get two files, whichever processes they are in."""

    def resolve(self, arguments: WriteOutputArguments, ports: Ports) -> WriteOutputPlan:
        """Raises: ToolError for an unusable name or content."""
        name = arguments.name
        _require_name(name)
        content = require_content(arguments.content, "content")
        number = _first_free(ports.workspace, name, 0)
        # Where none is free, the last name is judged: the refusal of policy comes first.
        numbers_last = limits.outputs_numbered_max
        action = _action(name, min(number, numbers_last))
        return WriteOutputPlan(name, number, content, (action,))

    def run(self, plan: WriteOutputPlan, ports: Ports) -> ToolOutput:
        """Raises: ToolError; then nothing was written."""
        number = plan.number
        while number <= limits.outputs_numbered_max:
            # Threat: another writer takes the name that was judged, and the next one is
            # a path that policy has not seen.
            if number != plan.number and not ports.shown.allows(_action(plan.name, number)):
                raise PathExistsError(
                    f"{quote(_path(plan.name, plan.number))} was taken meanwhile, and the next "
                    "free name needs a decision of its own",
                    hint="call again",
                )
            receipt = _write_new(ports.workspace, _path(plan.name, number), plan.content)
            if receipt is not None:
                return _output(receipt)
            number = _first_free(ports.workspace, plan.name, number + 1)
        raise PathExistsError(
            f"{quote(_path(plan.name, 0))} exists, and so do its "
            f"{limits.outputs_numbered_max} numbered names",
            hint="choose another name",
        )


def _require_name(name: str) -> None:
    """Refuse what would be more than one component, or end in .md twice."""
    problem = ""
    if "/" in name or "\\" in name:
        problem = "holds a slash or a backslash"
    elif name in {".", ".."}:
        problem = "names a directory"
    elif name.lower().endswith(_SUFFIX):
        problem = "ends in .md, which is added"
    elif len(name.encode()) > _NAME_BYTES_MAX:
        problem = f"is over {_NAME_BYTES_MAX} bytes"
    if problem:
        raise InvalidArgumentsError(
            f"name {quote(name)} {problem}", where="name", hint="give a plain name, such as report"
        )


def _path(name: str, number: int) -> str:
    numbered = f"{name} ({number})" if number else name
    return f"{_FOLDER}/{numbered}{_SUFFIX}"


def _action(name: str, number: int) -> Action:
    return Action("output", "write", _path(name, number))


def _first_free(workspace: Workspace, name: str, number: int) -> int:
    """The first number from `number` on whose name is free; one over the last where none is."""
    while number <= limits.outputs_numbered_max:
        # The entry itself: a link that leads to nothing is a name that is taken.
        if not workspace.resolve_entry(_path(name, number)).exists:
            break
        number += 1
    return number


def _write_new(workspace: Workspace, path: str, content: bytes) -> WriteReceipt | None:
    """The receipt of a new file, or None where the name is taken by now."""
    entry = workspace.resolve_entry(path)
    if entry.exists:
        return None
    # Not by resolve_write, which follows a link that takes the place meanwhile.
    place = WritePath(entry.path, entry.path, exists=False)
    try:
        return workspace.write_file(place, content, expected=Expected.ABSENT)
    except PathExistsError:
        return None


def _output(receipt: WriteReceipt) -> ToolOutput:
    path = receipt.path.relative
    shown = show_name(path)
    said = [
        f"Wrote {shown} ({receipt.bytes_written} bytes). Use the path {shown} to read it back.",
        *(f"[{note}]" for note in (*name_notices([path]), *receipt.notes)),
    ]
    details: dict[str, Json] = {
        "path": path,
        "bytes_written": receipt.bytes_written,
        "version": receipt.version,
    }
    changes = (change_of_write(receipt, "created"),)
    return ToolOutput("\n".join(said), details, changes, receipt.bytes_written)


SPEC: Final = ToolSpec(
    name="write_output",
    title="Write output",
    description=(
        f"Write a result for people to {_FOLDER}/NAME.md. Nothing is ever overwritten: if the "
        "name is taken, a number is added. The answer tells the path to read it back."
    ),
    toolset="output",
    arguments=WriteOutputArguments,
    effects=Effects(reads_only=False),
    output_schema=result_schema(
        {
            "path": {"type": "string", "description": "Relative to the workspace root."},
            "bytes_written": {"type": "integer"},
            "version": {"type": "string", "description": "sha256 of the bytes written."},
        }
    ),
)


def write_output_tool() -> Tool[WriteOutputArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, WriteOutput())
