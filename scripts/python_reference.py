"""The page of the public names: signatures, and what their docstrings say."""

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from inspect import cleandoc
from typing import Any, cast

import paddock
from paddock.runtime import program

ORDER = (
    "open",
    "AgentSpec",
    "Permissions",
    "Policy",
    "check",
    "format_action",
    "Runtime",
    "Tools",
    "LastingShell",
    "open_session",
    "Session",
    "Provider",
    "TurnListener",
    "ToolCall",
    "ToolResult",
    "Refusal",
    "Bounds",
    "Approver",
    "ApprovalRequest",
    "Approval",
    "Action",
    "Decision",
    "Outcome",
    "RuleMatch",
    "Context",
    "ToolOutput",
    "Change",
    "Tool",
    "ToolSpec",
    "Effects",
    "ArgumentType",
    "needed_text",
    "plain_text",
    "optional_text",
    "optional_integer",
    "flag",
)
"""Every public name but the errors, as somebody meets them."""
RETURNED = {
    "Runtime": (program.Executed, program.EntryList, program.ListedEntry),
    "LastingShell": (program.LastingProcess,),
}
"""What methods return, though no program has to import it."""
_OURS = cast("Any", ...)
"""In place of a default that has no short form."""
_HOMES = re.compile(r"\b(?:[a-z_]+\.)+(?=[A-Z])")


def python_page(made: str) -> Iterator[str]:
    """The page's parts. Raises: ValueError where a public name is not on it."""
    families = [name for name in paddock.__all__ if name.endswith("Error")]
    left = set(paddock.__all__) - set(families) - set(ORDER) - {"__version__"}
    if left:
        raise ValueError(f"not on the page: {sorted(left)}")
    yield f"# Python\n\n{made}"
    yield "Everything that `import paddock` offers. Importing it loads no SDK; each name is loaded"
    yield "when it is first used. [The guide](../guides/embed.md) shows them at work.\n"
    for name in ORDER:
        yield from _name(name, getattr(paddock, name))
        for each in RETURNED.get(name, ()):
            yield from _name(each.__name__, each)
    yield "## Errors\n"
    yield "What a model can act on is the result of its call. These are raised, for whoever runs"
    yield "it; the [codes](errors.md) tell more.\n"
    yield "| name | when |\n| --- | --- |"
    for name in families:
        yield f"| `{name}` | {_first(getattr(paddock, name))} |"
    yield ""


def _name(name: str, what: Any) -> Iterator[str]:
    if not inspect.isclass(what):
        yield f"## {name}\n\n```\npaddock.{name}{_signature(what)}\n```\n"
        yield _prose(what.__doc__)
        return
    yield f"## {name}\n\n{_prose(what.__doc__)}"
    fields = dict(_fields(what))
    if fields:
        yield "| field | |\n| --- | --- |"
        for field, about in fields.items():
            yield f"| `{field}` | {about} |"
        yield ""
    for member, value in vars(what).items():
        if member.startswith("_") or member in fields:
            continue
        if isinstance(value, property):
            yield f"### {name}.{member}\n\n{_prose(value.__doc__)}"
        elif inspect.isfunction(value) or isinstance(value, classmethod | staticmethod):
            function = value if inspect.isfunction(value) else value.__func__
            yield f"### {name}.{member}\n\n```\n{member}{_signature(function)}\n```\n"
            yield _prose(function.__doc__)


def _signature(what: Callable[..., Any]) -> str:
    """As it is written, without `self` and without the modules of types."""
    signature = inspect.signature(what)
    parameters = [
        each.replace(default=_OURS) if " at 0x" in repr(each.default) else each
        for each in signature.parameters.values()
    ]
    said = str(signature.replace(parameters=parameters))
    said = _HOMES.sub("", said).replace("(self, ", "(").replace("(self)", "()")
    said = said.replace("(cls, ", "(").replace("'", "").replace(" = Ellipsis", " = ...")
    if len(said) <= 80:
        return said
    inside, _, end = said[1:].rpartition(")")
    parts = re.split(r", (?![^\[(]*[\])])", inside)
    return "(\n" + "".join(f"    {part},\n" for part in parts) + ")" + end


def _fields(kind: type) -> Iterator[tuple[str, str]]:
    """A field, its type, and the text below it. Of an enumeration each member."""
    body = cast("ast.ClassDef", ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]).body
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.AnnAssign):
            name, shown = ast.unparse(statement.target), f"`{ast.unparse(statement.annotation)}`"
        elif isinstance(statement, ast.Assign):
            name, shown = ast.unparse(statement.targets[0]), ""
        else:
            continue
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(cleandoc(str(after.value.value)).split())
        if not name.startswith("_"):
            said = ": ".join(part for part in (shown.replace("'", ""), text) if part)
            yield name, said.replace("|", "\\|")


def _first(kind: type) -> str:
    return cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _prose(text: str | None) -> str:
    """A docstring as paragraphs; what is indented is a list."""
    parts = []
    for paragraph in cleandoc(text or "").split("\n\n"):
        head, *rows = paragraph.split("\n")
        if head in ("Args:", "Raises:"):
            parts.append(f"{head}\n\n" + "\n".join(_raised(rows)))
        elif paragraph.startswith("    "):
            parts.append(f"```python\n{textwrap.dedent(paragraph)}\n```")
        else:
            parts.append(paragraph)
    return "\n\n".join(parts) + "\n"


def _raised(rows: list[str]) -> Iterator[str]:
    for row in textwrap.dedent("\n".join(rows)).split("\n"):
        yield f"  {row.strip()}" if row.startswith(" ") else f"- {row}"
