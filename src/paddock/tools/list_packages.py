"""`list_packages`: what is installed on the plane."""

from dataclasses import dataclass
from typing import Final

from paddock.packages.rows import PackageRow, State
from paddock.text.show import show_name
from paddock.tools.arguments import ArgumentType
from paddock.tools.outputs import result_schema
from paddock.tools.spec import READS, Ports, Tool, ToolOutput, ToolSpec
from paddock.values.actions import Action
from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class ListPackagesArguments(ArgumentType):
    """Arguments of `list_packages`: none."""


@dataclass(frozen=True, slots=True)
class ListPackagesPlan:
    """There is nothing to choose."""

    actions: tuple[Action, ...] = (Action("package", "list", "*"),)


class ListPackages:
    """Each package with its state, looked at now."""

    def resolve(self, arguments: ListPackagesArguments, ports: Ports) -> ListPackagesPlan:
        del arguments, ports
        return ListPackagesPlan()

    def run(self, plan: ListPackagesPlan, ports: Ports) -> ToolOutput:
        """Raises: HostError, LedgerDamagedError."""
        del plan
        rows = () if ports.packages is None else ports.packages.list_all()
        content = "\n".join(map(_line, rows)) or "[no packages are installed]"
        return ToolOutput(content, {"count": len(rows), "packages": [_row(row) for row in rows]})


def _line(row: PackageRow) -> str:
    # Threat: a title holds what a stranger wrote; only what has a fixed form is shown.
    if not row.version:
        return f"{show_name(row.package_id)}  {row.state}"
    parts = (row.package_id, row.version, row.tier, row.framework_id, row.spec_id, row.state)
    changed = f"  {len(row.failures)} files" if row.failures else ""
    return "  ".join(parts) + changed


def _row(row: PackageRow) -> dict[str, Json]:
    return {
        "package_id": row.package_id,
        "version": row.version,
        "tier": row.tier,
        "framework": row.framework_id,
        "spec": row.spec_id,
        "state": row.state,
    }


_TEXT: Final[Json] = {"type": "string"}

SPEC: Final = ToolSpec(
    name="list_packages",
    title="List packages",
    description=(
        "List the installed packages: id, version, tier, framework, spec and state. The state is "
        "installed, changed (a file is not as the package brought it), changing (right now) or "
        "damaged."
    ),
    toolset="core",
    arguments=ListPackagesArguments,
    effects=READS,
    output_schema=result_schema(
        {
            "count": {"type": "integer", "description": "How many packages there are."},
            "packages": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "package_id": _TEXT,
                        "version": _TEXT,
                        "tier": _TEXT,
                        "framework": _TEXT,
                        "spec": _TEXT,
                        "state": {"enum": [str(state) for state in State]},
                    },
                    "required": ["package_id", "version", "tier", "framework", "spec", "state"],
                    "additionalProperties": False,
                },
            },
        }
    ),
)


def list_packages_tool() -> Tool[ListPackagesArguments]:
    """The tool, ready to register."""
    return Tool(SPEC, ListPackages())
