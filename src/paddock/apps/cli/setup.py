"""`paddock init`, `where`, `trust` and `agent`: a governed project, and who works in it."""

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, add_common, require_named
from paddock.apps.cli.project import environment_of, find_project, find_site, use_project
from paddock.assembly.project import Project, is_made_with_dev, read_project, report_of
from paddock.errors import ConfigError
from paddock.plane.agent_files import AgentRecord
from paddock.plane.agents import NewAgent
from paddock.plane.discover import ProjectRoot
from paddock.plane.dual_gate import ToolProfile
from paddock.plane.environment import operator_key_path
from paddock.plane.report import MADE_WITH_DEV, WhereReport
from paddock.text.show import show_name
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.assembly.agents import AgentStep


class Init:
    summary = (
        "Write a commented paddock.toml with the defaults, and make the project's plane\n"
        "(outside the project) with one agent, main. The file is trusted as it is written. With\n"
        "--bare, make DIR a plane of its own, whose agent, admin, works on the plane itself.\n"
        "Again: changes nothing."
    )
    examples = (
        "  paddock init\n  paddock init path/to/project\n  paddock init --bare path/to/plane --dev"
    )

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", nargs="?", metavar="DIR", help="default: here")
        parser.add_argument("--bare", action="store_true", help="make a bare plane")
        parser.add_argument(
            "--dev",
            action="store_true",
            help="a bare plane's tool_profile is development, one half of the dual gate",
        )

    def run(self, options: Options, console: Console) -> int:
        from paddock.assembly.opening import init_project

        require_named("DIR", options.directory)
        directory = Path(console.directory / (options.directory or options.plane or "."))
        if options.bare:
            return _make_bare(directory, options, console)
        if options.dev:
            console.warn("note: --dev changes nothing here; only a bare plane has a tool_profile")
        result = init_project(directory, environment_of(console))
        _warn_of_tracked(result.root, console)
        if options.json:
            console.write_json(
                {
                    "status": "ok",
                    "root": str(result.root.path),
                    "plane": str(result.plane.layout.root),
                    "policy": str(result.policy_file),
                    "made": [str(path) for path in result.made],
                    "already": result.already,
                    "trusted": [] if result.trust is None else [str(result.trust.path)],
                }
            )
            return 0
        if result.already:
            console.say(f"{result.root.path} is a governed project already; nothing changed")
        for path in result.made:
            console.say(f"made {path}")
        if result.trust is not None:
            console.say(
                f"trusted {result.trust.path.name} as it stands: it grants nothing beyond the "
                "defaults; after an edit by hand: paddock trust"
            )
        return 0


def _warn_of_tracked(root: ProjectRoot, console: Console) -> None:
    from paddock.policy.questions.lint import describe_tracked, find_tracked_secrets
    from paddock.sandbox.git.tracked import list_tracked

    policy = read_project(root, environment_of(console)).policy
    paths = find_tracked_secrets(policy, list_tracked(root.path))
    if paths:
        console.warn(f"note: {describe_tracked(paths)}; paddock policy lint says what to do")


def say_key(console: Console) -> None:
    key = operator_key_path(environment_of(console))
    console.say(f"the operator's key, with which changes are approved: {key}")


def _make_bare(directory: Path, options: Options, console: Console) -> int:
    from paddock.assembly.bootstrap import init_bare_plane

    profile: ToolProfile = "development" if options.dev else "production"
    made, project = init_bare_plane(directory, environment_of(console), profile)
    root, policy = made.layout.root, project.files.project
    if options.json:
        shown: dict[str, Json] = {
            "status": "ok",
            "root": str(root),
            "plane": str(root),
            "policy": None if policy is None else str(policy.path),
            "made": [str(path) for path in made.made],
            "already": not made.made,
            "registered": made.registered,
            "dual_gate": project.gate.as_json(),
        }
        console.write_json(shown)
        return 0
    if not made.made:
        console.say(f"{root} is a bare plane already; nothing changed")
        if project.gate.tool_profile != profile:
            console.say(f"its tool_profile stays {project.gate.tool_profile}")
    for path in made.made:
        if path.parent == made.layout.config:
            console.say(f"made {path}")
    if made.made:
        typed = shlex.quote(show_name(str(root)))
        console.say(
            f"{len(made.made)} files in all: "
            f"paddock --plane {typed} package list names their packages"
        )
        if not options.dev:
            say_key(console)
    console.say(f"dual gate {project.gate}")
    if options.dev and made.made:
        console.warn("note: made with --dev: nobody approves or signs what changes this plane")
    if not made.registered:
        console.warn(
            f"note: this plane was not made here; name it with --plane {root},"
            f" or look at it and accept it: paddock trust {root}"
        )
    return 0


INIT = Init()


class Where:
    summary = (
        "Show where the root, its plane, its policy files and its ledgers are.\n"
        "The root is the nearest directory at or above this one with a policy file; where there\n"
        "is none the nearest with .git, else this directory. In a bare plane it is the plane."
    )
    examples = "  paddock where\n  paddock where --json | jq -r .plane"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """No options of its own."""

    def run(self, options: Options, console: Console) -> int:
        """Print the report. Raises: ConfigError, after what is so whatever the policy is."""
        try:
            report = report_of(find_project(options, console))
        except ConfigError:
            _show(find_site(options, console).report(), options, console)
            raise
        _show(report, options, console)
        return 0


def _show(report: WhereReport, options: Options, console: Console) -> None:
    if options.json:
        console.write_json(report.as_json())
        return
    console.say(f"root     {report.root}")
    console.say(f"plane    {report.plane}")
    for path in report.policy or ():
        console.say(f"policy   {path}")
    if not report.policy:
        console.say(f"policy   {'not known' if report.policy is None else 'built-in defaults'}")
    for name, path in report.ledgers.items():
        console.say(f"ledger   {name:<12}{path}")
    console.say(f"user     {report.user_config}")
    if report.gate is not None:
        console.say(f"gate     dual gate {report.gate}")
    if report.made_with_dev:
        console.say(f"note     {MADE_WITH_DEV}")


WHERE = Where()


class Trust:
    summary = (
        "Show what a project's policy grants beyond the defaults and, after a yes, trust it.\n"
        "Trust is in this path and these bytes: a changed file has to be trusted again."
    )
    examples = "  paddock trust\n  paddock trust path/to/clone --yes"

    def configure(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("directory", nargs="?", metavar="DIR", help="default: here")
        parser.add_argument("--yes", action="store_true", help="do not ask")

    def run(self, options: Options, console: Console) -> int:
        from paddock.assembly.trust import review_trust, trust_policy

        require_named("DIR", options.directory)
        named = options.directory or options.plane
        override = None if named is None else console.directory / named
        environment = environment_of(console)
        review = review_trust(console.directory, environment, override)
        # Whoever is asked sees what it grants, whatever the form of the answer.
        (console.warn if options.json else console.say)(review.summary)
        if review.is_trusted and not review.agents.steps:
            return self._end(options, console, "trusted already", trusted=True)
        if not options.yes and not console.agrees("trust this policy? [y/N] "):
            return self._end(options, console, "not trusted", trusted=False)
        left = {
            step.new.name for step in review.agents.steps if _is_refused(step, options, console)
        }
        review = replace(review, agents=review.agents.without(left))
        trust_policy(review, environment, by="--yes" if options.yes else "person")
        return self._end(options, console, "trusted", trusted=True)

    def _end(self, options: Options, console: Console, said: str, *, trusted: bool) -> int:
        if options.json:
            console.write_json({"status": "ok" if trusted else "error", "trusted": trusted})
        else:
            console.say(said)
        return 0 if trusted else 1


def _is_refused(step: "AgentStep", options: Options, console: Console) -> bool:
    """Threat: a clone gives its agent a home directory, in a list that nobody reads to its end."""
    if not step.is_outside:
        return False
    if options.yes:
        console.warn(
            f"note: {step.new.name} is left as it is: --yes is no answer about a workspace"
            " outside of the project; paddock trust asks"
        )
        return True
    where = show_name(str(step.workspace))
    return not console.agrees(f"let {step.new.name} work in {where}, outside of it? [y/N] ")


TRUST = Trust()


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
        project = use_project(options, console)
        actions = {
            "create": self._create,
            "show": self._show,
            "remove": self._remove,
            "list": self._list,
        }
        return actions[options.action](project, options, console)

    def _create(self, project: Project, options: Options, console: Console) -> int:
        from paddock.assembly.agents import create_agent

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
        from paddock.assembly.agents import remove_agent

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


AGENT = AgentsCommand()
