"""`paddock doctor` and `sandbox`: show what the host can enforce and commands may reach."""

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from paddock.apps import command
from paddock.apps.console import Console
from paddock.assembly.project import Project, is_made_with_dev
from paddock.assembly.shells import STAGING
from paddock.errors import ConfigError, PaddockError, SandboxUnavailableError, UsageError
from paddock.limits import shell_cache_bytes_max
from paddock.plane.discover import contains
from paddock.plane.environment import real_path
from paddock.plane.layout import LedgerName
from paddock.plane.records import MADE_WITH_DEV
from paddock.policy.decide import shell_for
from paddock.policy.questions.lint import TRACKED_HINT, describe_tracked, find_tracked_secrets
from paddock.policy.settings import EnforcementMode, ShellSettings
from paddock.sandbox import backends
from paddock.sandbox.facts import collect_facts
from paddock.sandbox.git.tracked import list_tracked
from paddock.sandbox.hidden import NameIndex
from paddock.sandbox.plan import CompiledPlan, ReadJudge, compile_plan, plan_digest, plan_json
from paddock.sandbox.staging_area import FOLDER, Caches
from paddock.sandbox.values import BackendVerdict, Enforcement, GitConfig
from paddock.storage.atomic import held_open, host_error
from paddock.text.show import quote
from paddock.values.calls import Json

_SHOWN_MAX: Final = 20
"""Hidden names in the table; `--json` has all."""
_MOVED: Final = "commands can change it; run programs in it by their path"
_PROJECT: Final = "this project"
_DIRECTORY: Final = "this directory"
_RECORDS: Final = "its records"
_TRACKED: Final = "tracked secrets"
_CREDENTIALS: Final = "credentials"
"""A missing credential blocks only commands that may connect, not other calls."""


def _doctor(options: command.Options, console: Console) -> command.Reply | int:
    from paddock import __version__

    findings = backends.probe_host()
    staging = command.environment_of(console).paddock_home / STAGING
    verdicts = backends.examine_host(staging)
    here = _examine_here(options, console)
    project, workspace = here.project, None
    if project is not None and verdicts[0].enforcement is Enforcement.FULL:
        staging = project.environment.paddock_home / STAGING
        workspace = backends.examine_workspace(staging, str(project.root.path))
    commands = _commands(verdicts, workspace, here.enforcement)
    if here.obstacle:
        commands = f"refused; {here.obstacle}"
    made_with_dev = project is not None and is_made_with_dev(project)
    if options.json:
        return command.Reply(
            {
                "version": __version__,
                "host": to_builtins(findings),
                "backends": [_verdict_json(verdict) for verdict in verdicts],
                "workspace": None if workspace is None else _verdict_json(workspace),
                "here": to_builtins(here.findings),
                "commands": commands,
                "made_with_dev": made_with_dev,
            },
            "",
        )
    console.say(f"paddock {__version__}")
    _say_findings(findings, console)
    console.say("backends for commands (each was tried with a command)")
    for verdict in verdicts:
        _say_verdict(verdict, verdict.backend, console)
    if workspace is not None:
        _say_verdict(workspace, "this workspace", console)
    _say_findings(here.findings, console)
    console.say(here.obstacle or f"files: fenced. commands: {commands}")
    if made_with_dev:
        console.say(f"plane: {MADE_WITH_DEV}")
    return 0


def _say_findings(findings: Iterable[backends.HostFinding], console: Console) -> None:
    for each in findings:
        _say(each.is_there, each.name, (each.found, each.remedy), console)


def _say_verdict(verdict: BackendVerdict, name: str, console: Console) -> None:
    works = verdict.enforcement is not Enforcement.NONE
    found = verdict.enforcement.value if works else verdict.cause
    _say(works, name, (found, *verdict.gaps, verdict.remedy), console)


def _say(is_there: bool, name: str, rows: tuple[str, ...], console: Console) -> None:
    mark = console.paint("yes", "32") if is_there else console.paint("no ", "33")
    console.print(f"  {mark}  ")
    console.say(f"{name:<17}{rows[0]}")
    for row in filter(None, rows[1:]):
        console.say(f"{'':<24}{row}")


def _commands(
    verdicts: tuple[BackendVerdict, ...], here: BackendVerdict | None, enforcement: EnforcementMode
) -> str:
    if here is not None and here.enforcement is Enforcement.NONE:
        return f"refused in this workspace; {here.remedy}"
    try:
        chosen = backends.choose_backend(verdicts, enforcement)
    except SandboxUnavailableError as refused:
        return f"refused; {refused.hint}"
    if chosen.backend == backends.NO_BACKEND:
        return f"unconfined (enforcement = {enforcement})"
    return f"held by {chosen.backend} ({chosen.enforcement.value})"


def _verdict_json(verdict: BackendVerdict) -> dict[str, Json]:
    named = command.fields(verdict, "backend", "enforcement", "gaps", "cause", "remedy")
    return {**named, "enforcement": verdict.enforcement.value}


class _Here(Struct, frozen=True):
    """A project, what prevents its calls from running, and the default agent's `enforcement`."""

    project: Project | None
    enforcement: EnforcementMode
    findings: tuple[backends.HostFinding, ...]

    @property
    def obstacle(self) -> str:
        wanted = (each for each in self.findings if each.name != _CREDENTIALS)
        missing = [each.name for each in wanted if not each.is_there]
        if _DIRECTORY in missing:
            return "agents cannot work in this directory itself: change to a project below it"
        return f"no call can run here until this is fixed: {', '.join(missing)}" if missing else ""


def _examine_here(options: command.Options, console: Console) -> _Here:
    environment = command.environment_of(console)
    state = environment.paddock_home
    try:
        project = command.find_project(options, console)
    except PaddockError as error:
        holds = Path(error.where or os.devnull)
        own = (state, environment.config_home)
        name = _DIRECTORY if any(contains(holds, each) for each in own) else _PROJECT
        refused = replace(_refused(error), name=name)
        return _Here(None, ShellSettings().enforcement, (refused, _records((state,))))
    places = (state, project.layout.ledger_paths()[LedgerName.HO1M].parent)
    records = _records(places)
    loads = backends.HostFinding(_PROJECT, is_there=True, found="its policy and agents load")
    findings = (loads, records, *_outside(project, console), *_credentials(project))
    try:
        findings = (*findings, *_tracked(project))
        lineage = project.agents.lineage(project.default_agent)
        chain = tuple(record.agent for record in lineage)
        shell = shell_for(project.policy_for(lineage[0]), chain)
        return _Here(project, shell.enforcement, findings)
    except UsageError:
        # The default agent does not exist yet: the first use of a project creates it.
        return _Here(project, ShellSettings().enforcement, findings)
    except PaddockError as error:
        return _Here(project, ShellSettings().enforcement, (_refused(error), records))


def _outside(project: Project, console: Console) -> tuple[backends.HostFinding, ...]:
    hook = project.policy.settings.hook
    names = backends.find_rarely_confined(console.variables.get("PATH", ""), hook.outside)
    if not names or hook.shell != "confine":
        return ()
    said = f"rarely work in the confined commands of a client: {', '.join(names)}"
    remedy = (
        f"to leave them to the client's own prompt: {backends.offered_outside(names)} in [hook]"
    )
    return (backends.HostFinding("programs", is_there=True, found=said, remedy=remedy),)


def _credentials(project: Project) -> tuple[backends.HostFinding, ...]:
    """Check that each value can be read from its source; no value is shown."""
    settings, environment = project.policy.settings.credentials, project.environment
    if not settings:
        return ()
    from paddock.network.credentials import read_all

    said = f"{', '.join(each.name for each in settings)}: each has a value"
    try:
        read_all(settings, dict(environment.variables), environment.home, os.urandom)
    except ConfigError as error:
        said, remedy = f"{error.where}: {error.message}", error.hint or ""
        return (backends.HostFinding(_CREDENTIALS, is_there=False, found=said, remedy=remedy),)
    return (backends.HostFinding(_CREDENTIALS, is_there=True, found=said),)


def _tracked(project: Project) -> tuple[backends.HostFinding, ...]:
    paths = find_tracked_secrets(project.policy, list_tracked(project.root.path))
    if not paths:
        return ()
    said = describe_tracked(paths)
    return (backends.HostFinding(_TRACKED, is_there=True, found=said, remedy=TRACKED_HINT),)


def _refused(error: PaddockError) -> backends.HostFinding:
    place = ": ".join(part for part in (error.where, error.hint) if part)
    return backends.HostFinding(_PROJECT, is_there=False, found=error.message, remedy=place)


def _records(places: tuple[Path, ...]) -> backends.HostFinding:
    for place in places:
        above = (place, *place.parents)
        existing = next((each for each in above if os.path.lexists(each)), place)
        try:
            # The file has no name, or loses it at once: nothing is left in a ledger's folder.
            tempfile.TemporaryFile(dir=existing).close()
        except OSError as error:
            return backends.HostFinding(
                _RECORDS,
                is_there=False,
                found=f"cannot write in {existing}: {os.strerror(error.errno or 0)}",
                remedy="make it writable for this user, or choose another place: PADDOCK_HOME=DIR",
            )
    return backends.HostFinding(_RECORDS, is_there=True, found="can be written")


DOCTOR = command.Command(
    "Show what this host can enforce on files and commands, and what is missing.",
    "  paddock doctor\n  paddock doctor --json",
    do=_doctor,
)


def _plan(options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    name = project.agent_named(options.agent)
    record = project.agents.read(name)
    policy, chain = project.policy_for(record), project.agents.chain(name)
    facts = collect_facts(policy, project.agents, name, console.variables)
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
    with host_error(f"cannot open the workspace {quote(facts.workspace)}"):
        opened = os.open(facts.workspace, flags)
    with held_open(opened) as root_fd:
        hidden = NameIndex(ReadJudge(policy, chain)).find(root_fd)
    compiled = compile_plan(policy, chain, facts, hidden)
    left_out: list[Json] = [{"path": each.path, "why": each.why} for each in compiled.left_out]
    value: dict[str, Json] = {
        "agent": name,
        "digest": plan_digest(compiled.plan),
        **plan_json(compiled.plan),
        "toolchains": list(compiled.toolchains),
        "left_out": left_out,
    }
    return command.Reply(value, _plan_rows(name, compiled))


def _caches(options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    record = project.agents.read(project.agent_named(options.agent))
    home = real_path(project.layout.objects / FOLDER)
    caches = Caches.of(home, str(real_path(record.workspace)))
    before = caches.size_bytes()
    is_clear = options.act == "clear" and caches.clear()
    size = 0 if is_clear else before
    facts: dict[str, Json] = {"place": str(caches.tree), "bytes": size}
    facts |= {"bytes_max": shell_cache_bytes_max, "cleared": is_clear}
    most = f"{shell_cache_bytes_max / 1e6:,.0f} MB"
    rows = (f"caches  {caches.tree}", f"size    {size / 1e6:,.1f} of {most}")
    cleared = f"cleared {caches.tree}: {before / 1e6:,.1f} MB"
    answer = command.Reply(facts, cleared if is_clear else rows)
    if options.act == "clear" and not is_clear:
        answer.show(options, console)
        raise UsageError("a running command uses the caches", hint="clear them when it has ended")
    return answer


def _plan_rows(agent: str, compiled: CompiledPlan) -> Iterator[str]:
    plan, limits = compiled.plan, compiled.plan.limits
    time = f"{limits.cpu_s} s of processor time" if limits.cpu_s else "any processor time"
    yield f"agent        {agent}"
    yield f"workspace    {plan.workspace}"
    yield f"network      {plan.network}"
    yield f"git          {plan.git}"
    yield f"commit       {plan.commit}"
    yield f"enforcement  {plan.enforcement}"
    yield (
        f"limits       {limits.processes} processes, {limits.memory_mb} MB of memory,"
        f" {limits.file_mb} MB per file, {time}"
    )
    yield from _list("readable", plan.readable, "nothing outside the workspace")
    yield from _list("toolchains", compiled.toolchains, "none found")
    yield from _list("caches", (plan.caches,) if plan.caches else (), "none")
    yield from _list("writable", plan.writable, "nothing outside the workspace")
    if plan.git_outside is not None:
        yield f"git outside  {plan.git_outside.common}"
    hidden = plan.hidden[:_SHOWN_MAX]
    more = len(plan.hidden) - len(hidden)
    if more:
        hidden = (*hidden, f"(and {more} more: --json lists them)")
    yield from _list("hidden", hidden, "nothing at present")
    yield from _list("links", tuple(f"{name} -> {text}" for name, text in plan.links), "none")
    variables = tuple(f"{name}={value}" for name, value in plan.environment)
    yield from _list("environment", variables, "nothing")
    yield from _list("git config", _git_rows(plan.git_config), "none of your settings")
    if compiled.moved_last:
        rows = tuple(f"{each}: {_MOVED}" for each in compiled.moved_last)
        yield from _list("last in PATH", rows, "")
    if compiled.left_out:
        lines = tuple(f"{each.path}: {each.why}" for each in compiled.left_out)
        yield from _list("left out", lines, "")
    yield f"policy       {plan.policy_digest}"
    yield f"plan         {plan_digest(plan)}"


def _git_rows(config: GitConfig) -> tuple[str, ...]:
    rows = [f"{key}={value}" for key, value in config.values]
    for what, text in (("ignore file", config.ignored), ("attributes", config.attributes)):
        rows += [f"{what}: {text.count(chr(10))} lines"] if text else []
    rows += [f"{name}={value}" for name, value in config.variables]
    return (*rows, *(["commits are not signed"] if config.is_signing else []))


def _list(title: str, rows: tuple[str, ...], nothing: str) -> Iterator[str]:
    for number, row in enumerate(rows or (nothing,)):
        yield f"{'' if number else title:<13}{row}"


SANDBOX = command.Command(
    "Show what the commands of an agent may read, write and reach in the sandbox.",
    "  paddock sandbox plan\n"
    "  paddock sandbox plan --agent main --json\n"
    "  paddock sandbox caches\n"
    "  paddock sandbox caches clear",
    command.Part(
        "plan",
        "show what commands may read, write and reach",
        _plan,
        command.opt("--agent", "NAME", "the agent (default: main; admin in a bare plane)"),
    ),
    command.Part(
        "caches",
        "show or clear the caches that an agent's commands keep",
        _caches,
        command.opt(
            "act",
            None,
            "show the size (default), or clear",
            nargs="?",
            choices=("show", "clear"),
            default="show",
        ),
        command.opt("--agent", "NAME", "the agent (default: main; admin in a bare plane)"),
    ),
    metavar="PART",
)
