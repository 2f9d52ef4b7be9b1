"""`paddock init`, `where`, `trust`, `agent` and `completion`."""

import argparse
import json
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from paddock.apps import command
from paddock.apps.console import EXIT_NO, Console
from paddock.assembly.project import is_made_with_dev, read_project, report_of
from paddock.errors import ConfigError, UsageError
from paddock.plane.agents import AgentRecord, AgentSpec
from paddock.plane.create import PACKAGES_TEMPLATE, POLICY_TEMPLATE
from paddock.plane.discover import ProjectRoot
from paddock.plane.environment import ToolProfile, operator_key_path
from paddock.plane.records import MADE_WITH_DEV, WhereReport
from paddock.text.show import show_name
from paddock.values.calls import Json

if TYPE_CHECKING:
    from paddock.assembly.agents import AgentStep

_DIRECTORY = command.opt("directory", "DIR", "default: the current directory", nargs="?")


def _init(options: command.Options, console: Console) -> command.Reply:
    from paddock.assembly.project_open import init_project
    from paddock.policy.questions.lint import describe_tracked, find_tracked_secrets
    from paddock.sandbox.git.tracked import list_tracked

    command.require_named("DIR", options.directory)
    directory = Path(console.directory / (options.directory or options.plane or "."))
    if options.bare and options.network:
        hint = "set packages = true under [network] in its policy, then: paddock network show"
        raise UsageError("--network is only for a project", where="--bare", hint=hint)
    if options.bare:
        return _make_bare(directory, options, console)
    if options.dev:
        console.warn("note: --dev has no effect here; only a bare plane has a tool_profile")
    policy = PACKAGES_TEMPLATE if options.network else POLICY_TEMPLATE
    result = init_project(directory, command.environment_of(console), policy)
    own = read_project(result.root, command.environment_of(console)).policy
    paths = find_tracked_secrets(own, list_tracked(result.root.path))
    if paths:
        console.advise(f"note: {describe_tracked(paths)}; for what to do: paddock policy lint")
    root, trust = result.root.path, result.trust
    value: dict[str, Json] = {
        "status": "ok",
        "root": str(root),
        "plane": str(result.plane.layout.root),
        "policy": str(result.policy_file),
        "made": [str(path) for path in result.made],
        "already": result.already,
        "trusted": [] if trust is None else [trust.path],
    }
    text: list[str] = []
    if result.already:
        text.append(f"{show_name(str(root))} is a governed project already; nothing changed")
    text += [f"created {show_name(str(path))}" for path in result.made]
    if trust is not None:
        grants = "only the [network] packages setting" if options.network else "nothing"
        text.append(
            f"trusted {result.policy_file.name} as written: it grants {grants} beyond the "
            "defaults; after you edit it: paddock trust"
        )
    if options.network:
        hosts = _open_network(result.root, console)
        value["packages"] = list(hosts)
        text += [f"commands may reach {each} (package clients)" for each in hosts]
    return command.Reply(value, text)


def _open_network(root: ProjectRoot, console: Console) -> list[str]:
    from paddock.apps.cli.network import refresh_packages
    from paddock.assembly.project_open import open_root

    environment = command.environment_of(console)
    kept = refresh_packages(read_project(root, environment))
    if not open_root(root, environment).policy.settings.network.packages:
        console.advise(
            "note: the existing policy does not allow packages: set packages = true under "
            "[network] in it, then paddock trust"
        )
        return []
    return [each.action.split()[1] for each in kept.rules]


def operator_key_note(console: Console) -> str:
    key = operator_key_path(command.environment_of(console))
    return f"the operator's key, which signs approvals of changes: {key}"


def _make_bare(directory: Path, options: command.Options, console: Console) -> command.Reply:
    from paddock.assembly.bootstrap import init_bare_plane

    profile: ToolProfile = "development" if options.dev else "production"
    made, project = init_bare_plane(directory, command.environment_of(console), profile)
    root, policy, gate = made.layout.root, project.files.project, project.gate
    value: dict[str, Json] = {
        "status": "ok",
        "root": str(root),
        "plane": str(root),
        "policy": None if policy is None else str(policy.path),
        "made": [str(path) for path in made.made],
        "already": not made.made,
        "registered": made.registered,
        "dual_gate": gate.as_json(),
    }
    text: list[str] = []
    if made.made:
        text += [f"created {path}" for path in made.made if path.parent == made.layout.config]
        typed = shlex.quote(show_name(str(root)))
        text.append(
            f"{len(made.made)} files in all: "
            f"paddock --plane {typed} package list names their packages"
        )
        text += [] if options.dev else [operator_key_note(console)]
    else:
        text.append(f"{root} is a bare plane already; nothing changed")
        if gate.tool_profile != profile:
            text.append(f"its tool_profile stays {gate.tool_profile}")
    text.append(f"dual gate {gate}")
    if not options.json and options.dev and made.made:
        console.warn("note: made with --dev: changes to this plane need no approval or signature")
    if not options.json and not made.registered:
        console.warn(
            f"note: you did not create this plane; name it with --plane {root},"
            f" or review and accept it: paddock trust {root}"
        )
    return command.Reply(value, text)


INIT = command.Command(
    "Set up a project: write a commented paddock.toml with the default policy, trust it, and\n"
    "create the project's plane (outside the project) with one agent, main. With --bare,\n"
    "make DIR a bare plane, a plane without a project, whose agent, admin, works on the\n"
    "plane itself. A second run changes nothing.",
    "  paddock init\n  paddock init path/to/project\n  paddock init --bare path/to/plane --dev",
    _DIRECTORY,
    command.flag("--bare", "create a bare plane"),
    command.flag("--dev", "with --bare: tool_profile = development, and changes without approval"),
    command.opt("--network", about="allow the hosts of your package clients", choices=["packages"]),
    do=_init,
)


def _where(options: command.Options, console: Console) -> command.Reply:
    try:
        report = report_of(command.find_project(options, console))
    except ConfigError:
        site = command.find_site(options, console).report()
        command.Reply(site.as_json(), _where_rows(site)).show(options, console)
        raise
    return command.Reply(report.as_json(), _where_rows(report))


def _where_rows(report: WhereReport) -> Iterator[str]:
    yield f"root     {show_name(str(report.root.path))}"
    yield f"plane    {show_name(str(report.layout.root))}"
    for path in report.policy or ():
        yield f"policy   {show_name(str(path))}"
    if not report.policy:
        yield f"policy   {'not known' if report.policy is None else 'built-in defaults'}"
    for name, path in report.layout.ledger_paths().items():
        yield f"ledger   {name:<12}{show_name(str(path))}"
    yield f"user     {show_name(str(report.environment.user_config))}"
    if report.gate is not None:
        yield f"gate     dual gate {report.gate}"
    if report.made_with_dev:
        yield f"note     {MADE_WITH_DEV}"


WHERE = command.Command(
    "Show where the root, its plane, its policy files and its ledgers are.\n"
    "The root is the nearest directory, here or above, with a policy file; else the nearest\n"
    "with .git; else the current directory. In a bare plane it is the plane.",
    "  paddock where\n  paddock where --json | jq -r .plane",
    do=_where,
)


def _trust(options: command.Options, console: Console) -> command.Reply:
    from paddock.assembly.trust import review_trust, trust_policy

    command.require_named("DIR", options.directory)
    named = options.directory or options.plane
    override = None if named is None else console.directory / named
    environment = command.environment_of(console)
    review = review_trust(console.directory, environment, override)
    # The user sees what the policy grants before the question, with --json too.
    (console.warn if options.json else console.say)(review.summary)
    if review.is_trusted and not review.agents.steps:
        return command.Reply({"status": "ok", "trusted": True}, "trusted already")
    if not options.yes and not console.agrees("trust this policy? [y/N] "):
        return command.Reply({"status": "error", "trusted": False}, "not trusted", EXIT_NO)
    left = {step.new.name for step in review.agents.steps if _is_refused(step, options, console)}
    review = replace(review, agents=review.agents.without(left))
    trust_policy(review, environment, by="--yes" if options.yes else "person")
    return command.Reply({"status": "ok", "trusted": True}, "trusted")


def _is_refused(step: "AgentStep", options: command.Options, console: Console) -> bool:
    """Threat: a clone grants its agent a home directory, deep in a list that is not read."""
    if not step.is_outside:
        return False
    if options.yes:
        console.advise(
            f"note: {step.new.name} is left unchanged: --yes does not approve a workspace"
            " outside the project; to be asked: paddock trust"
        )
        return True
    where = show_name(str(step.workspace))
    return not console.agrees(f"let {step.new.name} work in {where}, outside the project? [y/N] ")


TRUST = command.Command(
    "Show what a project's policy grants beyond the defaults, ask, and trust it.\n"
    "Until a policy is trusted it can only restrict. Trust covers this path and this\n"
    "content: a changed file must be trusted again.",
    "  paddock trust\n  paddock trust path/to/clone --yes",
    _DIRECTORY,
    command.flag("--yes", "do not ask"),
    do=_trust,
)


def _create(options: command.Options, console: Console) -> command.Reply:
    from paddock.assembly.agents import create_agent

    project = command.use_project(options, console)
    workspace = toolsets = None
    if options.workspace is not None:
        command.require_named("--workspace", options.workspace)
        workspace = Path(console.directory / options.workspace)
    if options.toolsets is not None:
        toolsets = tuple(part.strip() for part in options.toolsets.split(","))
    new = AgentSpec(options.name, options.profile, workspace, options.parent, toolsets)
    record = create_agent(project, new)
    said = f"created agent {record.agent.name}; it works in {record.workspace}"
    return command.Reply({"status": "ok", "agent": _json(record)}, said)


def _list(options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    records = project.agents.read_all()
    if is_made_with_dev(project):
        console.warn(f"note: {MADE_WITH_DEV}")
    return command.Reply([_json(record) for record in records], map(_row, records))


def _row(record: AgentRecord) -> str:
    agent = record.agent
    parent = f" under {agent.parent}" if agent.parent else ""
    return f"{agent.name:<20}{agent.profile:<12}{record.workspace}{parent}"


def _show(options: command.Options, console: Console) -> command.Reply:
    shown = _json(command.use_project(options, console).agents.read(options.name))
    return command.Reply(shown, (f"{name:<12}{_text(value)}" for name, value in shown.items()))


def _remove(options: command.Options, console: Console) -> command.Reply:
    from paddock.assembly.agents import remove_agent

    project = command.use_project(options, console)
    removed = remove_agent(project, options.name)
    return command.Reply(
        {"status": "ok", "removed": removed.name, "kept": str(removed.kept)},
        f"removed agent {removed.name}; its declaration is kept at {removed.kept}",
    )


def _json(record: AgentRecord) -> dict[str, Json]:
    agent = record.agent
    return {
        **command.fields(agent, "name", "profile"),
        "workspace": str(record.workspace),
        **command.fields(agent, "parent", "toolsets"),
        "permissions": command.fields(agent.permissions, "read", "write", "forbidden"),
    }


def _text(value: Json) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


_NAME = command.opt("name", "NAME", "name of the agent")

AGENT = command.Command(
    "Create, list, show and remove agents. An agent is a name with a policy profile and a\n"
    "workspace; only people can change agents.",
    "  paddock agent create writer --profile standard\n"
    "  paddock agent create reader --parent main --profile locked --workspace .\n"
    "  paddock agent list",
    command.Part(
        "create",
        "create an agent",
        _create,
        _NAME,
        command.opt(
            "--profile", "NAME", "its policy profile (default: standard)", default="standard"
        ),
        command.opt(
            "--workspace",
            "DIR",
            "the directory it works in (default: a new empty one; with --parent the only other"
            " choice is the parent's, such as . in a project)",
        ),
        command.opt("--parent", "NAME", "an agent whose permissions it never exceeds"),
        command.opt("--toolsets", "A,B", "the toolsets it may use (default: all of its parent's)"),
    ),
    command.Part("show", "show an agent", _show, _NAME),
    command.Part("remove", "remove an agent", _remove, _NAME),
    command.Part("list", "list all agents", _list),
)

# Completions are computed when the key is pressed: a shell need not load every command at
# its start, and a newer Paddock completes its own commands.
_SCRIPTS: Final = {
    "bash": """\
_paddock() {
    COMPREPLY=($(paddock completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _paddock paddock
""",
    "fish": """\
function __paddock_words
    paddock completion fish -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null
end
complete -c paddock -n __fish_use_subcommand -f
complete -c paddock -a "(__paddock_words)"
""",
    "zsh": """\
#compdef paddock
_paddock() {
    compadd -- $(paddock completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)
    (( CURRENT == 2 )) || _files
}
compdef _paddock paddock
""",
}


def _complete(options: command.Options, console: Console) -> command.Reply:
    del console
    if options.words:
        *before, word = options.words
        if word == "=":
            word = ""
        elif before[-1:] == ["="]:
            before.pop()  # bash splits --ledger=ho1m into three words.
        found = [each for each in _next_words(before, word) if each.startswith(word)]
        return command.Reply(list[Json](found), found)
    script = _SCRIPTS[options.shell]
    return command.Reply({"shell": options.shell, "script": script}, script.removesuffix("\n"))


def _next_words(before: list[str], word: str) -> Iterable[str]:
    from paddock.apps.cli.main import COMMANDS, load_command
    from paddock.tools.toolsets import TOOLS

    if not before:
        return COMMANDS
    name, *rest = before
    if name not in COMMANDS:
        return ()
    if name == "call" and not rest and not word.startswith("-"):
        return sorted(tool.name for tool in TOOLS)
    return command.make_parser(load_command(name), name).next_words(rest, word)


COMPLETION = command.Command(
    "Print a completion script for bash, zsh or fish.",
    '  eval "$(paddock completion bash)"\n  paddock completion fish | source',
    command.opt("shell", choices=sorted(_SCRIPTS)),
    command.opt("words", None, argparse.SUPPRESS, nargs="*"),
    do=_complete,
)
