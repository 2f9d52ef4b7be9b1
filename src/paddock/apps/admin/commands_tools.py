"""Commands about tools and calls."""

from typing import Final

from paddock.apps.admin.blocks import Look, Span, Table, row
from paddock.apps.admin.desk import Desk
from paddock.errors import UnknownToolError, UsageError
from paddock.providers.builtin import parse_call
from paddock.text.json import parse_object
from paddock.text.show import quote
from paddock.values.calls import Json
from paddock.values.models import ToolSchema

_NUMBER_DIGITS_MAX: Final = 9


class ToolsCommand:
    usage = "/tools"
    summary = "the tools of this agent, and who may call them"

    def run(self, rest: str, desk: Desk) -> None:
        allowed = desk.session.charter.tools_allowed
        rows = [
            row(
                Span(tool.name, Look.STRONG),
                tool.spec.toolset,
                "reads" if tool.reads_only else "writes",
                "model and you" if tool.name in allowed else "you alone",
                tool.spec.title,
            )
            for tool in desk.runtime.tools.list_all()
        ]
        desk.screen.show(Table(tuple(rows), ("tool", "toolset", "effect", "called by", "what")))


class CallCommand:
    """A governed call of the operator's own."""

    usage = "/call TOOL [NAME=VALUE ...]"
    summary = "call a tool yourself, governed as every call"

    def run(self, rest: str, desk: Desk) -> None:
        """Call it, show its line and what came back."""
        name, _, given = rest.strip().partition(" ")
        if not name:
            raise UsageError("no tool was named", where="/call", hint=self.usage)
        desk.call_in_full(name, _arguments(name, given.strip(), desk))


def _arguments(name: str, given: str, desk: Desk) -> Json:
    if given.startswith("{") or not given:
        return parse_object(given or "{}")
    try:
        tool = desk.runtime.tools.get(name)
    except UnknownToolError:
        return {}  # The door answers, and records it.
    schema = ToolSchema(name, "", tool.binder.schema)
    call = parse_call(f"{name} {given}", {name: schema})
    if call is None:
        raise UsageError(
            f"{quote(given)} is neither a JSON object nor NAME=VALUE",
            where=f"/call {name}",
            hint=f'such as /call {name} {{"path": "."}}, or path=.',
        )
    return dict(call.arguments)


class ExpandCommand:
    """One call in full."""

    usage = "/expand [NUMBER]"
    summary = "a call in full (default: the last)"

    def run(self, rest: str, desk: Desk) -> None:
        """Show it."""
        asked = rest.strip().removeprefix("#")
        number = _parse_number(asked) if asked else desk.calls.last
        shown = desk.calls.find(number)
        if shown is None:
            what = f"call {quote(rest.strip())}" if asked else "call yet"
            raise UsageError(
                f"there is no {what}",
                where="/expand",
                hint="the numbers stand on the calls' lines; older calls: /ledger ho1m",
            )
        for block in shown.in_full():
            desk.screen.show(block)


def _parse_number(asked: str) -> int:
    """A call's number; 0, which no call has, where it is none."""
    # Python converts no integer of very many digits.
    is_number = asked.isdecimal() and len(asked) <= _NUMBER_DIGITS_MAX
    return int(asked) if is_number else 0
