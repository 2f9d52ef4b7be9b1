"""`paddock init`."""

import argparse
import shlex
from pathlib import Path

from paddock.apps.cli.console import Console
from paddock.apps.cli.options import Options, require_named
from paddock.apps.cli.project import environment_of
from paddock.assembly.opening import init_project
from paddock.assembly.project import read_project
from paddock.plane.discover import ProjectRoot
from paddock.plane.dual_gate import ToolProfile
from paddock.plane.environment import operator_key_path
from paddock.text.show import show_name
from paddock.values.calls import Json


class Init:
    """Make a governed project or a bare plane; a second time changes nothing and says so."""

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
        """DIR, --bare and --dev."""
        parser.add_argument("directory", nargs="?", metavar="DIR", help="default: here")
        parser.add_argument("--bare", action="store_true", help="make a bare plane")
        parser.add_argument(
            "--dev",
            action="store_true",
            help="a bare plane's tool_profile is development, one half of the dual gate",
        )

    def run(self, options: Options, console: Console) -> int:
        """Make what is missing."""
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
    """Say what git tracks of what policy calls secret."""
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


COMMAND = Init()
