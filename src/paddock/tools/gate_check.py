"""`gate_check`: what the gates say of the plane."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from paddock import limits
from paddock.errors import InvalidArgumentsError
from paddock.gates.results import (
    ALL_GATES,
    PLANE_GATES,
    GateResult,
    Gates,
    Status,
    count_of,
    not_applicable,
)
from paddock.packages.rows import Failure
from paddock.text.show import show_name
from paddock.tools.arguments import ArgumentType, filled_text
from paddock.tools.outputs import result_schema
from paddock.tools.spec import READS, Ports, Shown, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action
from paddock.values.calls import Json

ALL: Final = "all"
_WORDS: Final = {
    Status.PASS: "pass",
    Status.FAIL: "FAIL",
    Status.NOT_APPLICABLE: "not applicable",
}


@dataclass(frozen=True, slots=True)
class GateCheckArguments(ArgumentType):
    """Arguments of `gate_check`."""

    gate: str = filled_text("One gate, or all.", ALL, (ALL, *PLANE_GATES))


@dataclass(frozen=True, slots=True)
class GateCheckPlan:
    names: tuple[str, ...]
    actions: tuple[Action, ...]


class GateCheck:
    """Each gate looks now; acceptance commands do not run."""

    def resolve(self, arguments: GateCheckArguments, ports: Ports) -> GateCheckPlan:
        """Raises: InvalidArgumentsError for a gate that there is not."""
        del ports
        name = arguments.gate
        if name != ALL and name not in ALL_GATES:
            shown = show_name(name[: limits.message_value_chars_max])
            raise InvalidArgumentsError(
                f"Unknown gate: {shown}. Valid: {ALL}, {', '.join(ALL_GATES)}",
                where="gate",
                hint="give one of these, or leave gate out for all",
            )
        names = PLANE_GATES if name == ALL else (name,)
        return GateCheckPlan(names, (Action("gate", "check", name),))

    def run(self, plan: GateCheckPlan, ports: Ports) -> ToolOutput:
        """Raises: HostError, LedgerBusyError, LedgerFullError."""
        rows = [_Row(result, ports.shown) for result in _check(ports.gates, plan.names)]
        results = [row.result for row in rows]
        counts: dict[str, Json] = {
            "passed": count_of(results, Status.PASS),
            "failed": count_of(results, Status.FAIL),
            "not_applicable": count_of(results, Status.NOT_APPLICABLE),
        }
        said = (f"{counts['passed']} passed", f"{counts['failed']} failed")
        last = f"{', '.join(said)}, {counts['not_applicable']} not applicable"
        content = "\n".join([*(row.text() for row in rows), last])
        return ToolOutput(content, {"gates": [row.as_json() for row in rows], **counts})


def _check(gates: Gates | None, names: Sequence[str]) -> tuple[GateResult, ...]:
    if gates is None:
        return tuple(not_applicable(name, "this is no bare plane") for name in names)
    return gates.check(names)


class _Row:
    """One gate's answer, without files that the agent may not know of."""

    def __init__(self, result: GateResult, shown: Shown) -> None:
        self.result = result
        self._shown = [each for each in result.failures if _is_shown(each, shown)]
        self._hidden = len(result.failures) - len(self._shown)

    def text(self) -> str:
        """For the model."""
        result = self.result
        note = f"  {show_name(result.note)}" if result.note else ""
        lines = [f"{result.gate}  {_WORDS[result.status]}  {result.checks} checks{note}"]
        listed = self._shown[: limits.gate_failures_listed_max]
        lines += [f"  {show_name(str(failure))}" for failure in listed]
        more = len(self._shown) - len(listed)
        if more:
            lines.append(f"  [{more} more failures are not listed]")
        if self._hidden:
            lines.append(f"  [{self._hidden} failures of files that are not shown]")
        return "\n".join(lines)

    def as_json(self) -> Json:
        """For the host."""
        result = self.result
        return {
            "name": result.gate,
            "status": result.status,
            "passed": result.status is Status.PASS,
            "checks": result.checks,
            "failures": _failures(self._shown),
            "note": result.note,
        }


def _is_shown(failure: Failure, shown: Shown) -> bool:
    return not failure.file or shown.is_shown(failure.file)


def _failures(failures: Sequence[Failure]) -> list[Json]:
    return [{"file": each.file, "reason": each.reason} for each in failures]


_COUNT: Final[Json] = {"type": "integer"}
_TEXT: Final[Json] = {"type": "string"}

SPEC: Final = ToolSpec(
    name="gate_check",
    title="Check gates",
    description=(
        "Check the plane's gates: files and ownership (G0B), specs and frameworks (G1, "
        "G1-COMPLETE), approvals (G2), dependencies (G3), acceptance (G4, told from its last run), "
        "signatures (G5), ledgers (G6). Each passes, fails with files and reasons, or is not "
        "applicable, which is no pass."
    ),
    toolset="core",
    arguments=GateCheckArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "passed": _COUNT,
            "failed": _COUNT,
            "not_applicable": _COUNT,
            "gates": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "name": _TEXT,
                        "status": {"enum": [str(status) for status in Status]},
                        "passed": {"type": "boolean"},
                        "checks": _COUNT,
                        "failures": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "properties": {"file": _TEXT, "reason": _TEXT},
                                "required": ["file", "reason"],
                                "additionalProperties": False,
                            },
                        },
                        "note": _TEXT,
                    },
                    "required": ["name", "status", "passed", "checks", "failures", "note"],
                    "additionalProperties": False,
                },
            },
        }
    ),
)


def gate_check_tool() -> Tool[GateCheckArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, GateCheck())
