"""`paddock agent`."""

import argparse
import json
from pathlib import Path

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common, require_named
from paddock.apps.cli.project import use_project
from paddock.assembly.agents import create_agent, remove_agent
from paddock.assembly.lazy_packages import is_made_with_dev
from paddock.assembly.project import Project
from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import NewAgent
from paddock.plane.report import MADE_WITH_DEV
from paddock.values.calls import Json


class AgentsCommand:
    summary = "Create, list, show and remove agents. Only people change agents."
    examples = (
        "  paddock agent create writer --profile standard\n"
        "  paddock agent create reader --parent main --profile locked --workspace .\n"
        "  paddock agent list"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
        create = actions.add_parser("create", help="make an agent", allow_abbrev=False)
        create.add_argument("name", metavar="NAME")
        create.add_argument("--profile", default="standard", metavar="NAME")
        create.add_argument(
            "--workspace",
            metavar="DIR",
            help="where it works (default: an empty one of its own); with --parent "
            "that one, or the parent's, as with . in a project",
        )
        create.add_argument("--parent", metavar="NAME", help="whose permissions it never exceeds")
        create.add_argument("--toolsets", metavar="A,B", help="default: all that its parent has")
        show = actions.add_parser("show", help="show an agent", allow_abbrev=False)
        show.add_argument("name", metavar="NAME")
        remove = actions.add_parser("remove", help="remove an agent", allow_abbrev=False)
        remove.add_argument("name", metavar="NAME")
        listing = actions.add_parser("list", help="list all agents", allow_abbrev=False)
        for parsed in (create, show, remove, listing):
            add_common(parsed)

    def run(self, options: Options, console: Console) -> int:
        """Do what was asked."""
        project = use_project(options, console)
        actions = {
            "create": self._create,
            "show": self._show,
            "remove": self._remove,
            "list": self._list,
        }
        return actions[options.action](project, options, console)

    def _create(self, project: Project, options: Options, console: Console) -> int:
        workspace = None
        if options.workspace is not None:
            require_named("--workspace", options.workspace)
            workspace = Path(console.directory / options.workspace)
        toolsets = None
        if options.toolsets is not None:
            toolsets = tuple(part.strip() for part in options.toolsets.split(","))
        new = NewAgent(options.name, options.profile, workspace, options.parent, toolsets)
        record = create_agent(project, new)
        if options.json:
            console.write_json({"status": "ok", "agent": _json(record)})
        else:
            console.say(f"made agent {record.agent.name}; it works in {record.workspace}")
        return 0

    def _show(self, project: Project, options: Options, console: Console) -> int:
        record = project.agents.read(options.name)
        shown = _json(record)
        if options.json:
            console.write_json(shown)
            return 0
        for name, value in shown.items():
            console.say(f"{name:<12}{_text(value)}")
        return 0

    def _remove(self, project: Project, options: Options, console: Console) -> int:
        removed = remove_agent(project, options.name)
        if options.json:
            console.write_json({"status": "ok", "removed": removed.name, "kept": str(removed.kept)})
        else:
            console.say(f"removed agent {removed.name}; its declaration is kept at {removed.kept}")
        return 0

    def _list(self, project: Project, options: Options, console: Console) -> int:
        records = project.agents.read_all()
        if is_made_with_dev(project):
            console.warn(f"note: {MADE_WITH_DEV}")
        if options.json:
            console.write_json([_json(record) for record in records])
            return 0
        for record in records:
            agent = record.agent
            parent = f" under {agent.parent}" if agent.parent else ""
            console.say(f"{agent.name:<20}{agent.profile:<12}{record.workspace}{parent}")
        return 0


def _json(record: AgentRecord) -> dict[str, Json]:
    agent = record.agent
    return {
        "name": agent.name,
        "profile": agent.profile,
        "workspace": str(record.workspace),
        "parent": agent.parent,
        "toolsets": list(agent.toolsets),
        "permissions": {
            "read": list(agent.permissions.read),
            "write": list(agent.permissions.write),
            "forbidden": list(agent.permissions.forbidden),
        },
    }


def _text(value: Json) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


COMMAND = AgentsCommand()
