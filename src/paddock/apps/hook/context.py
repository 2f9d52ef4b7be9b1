"""Resolve what a call is judged by: project, agent, compiled tables, and a command parser.

The tables are also written as the image for the fast path, with the state of every file they depend
on. No image is written for a policy that the fast path could not decide exactly as the full path.
"""

import marshal  # noqa: TID251 - sealed with a key before it is read again
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from string import ascii_letters, digits
from typing import Final

from paddock.apps.hook.confinement import BOOT, cache_files, why_client_cannot, why_host_cannot
from paddock.apps.hook.lean import image
from paddock.apps.hook.lean.judge import (
    GUARD,
    PARANOID,
    SERVED,
    LeanFinding,
    LeanLine,
    Rule,
    relative,
)
from paddock.apps.hook.lean.request import DeclinedError, HookEvent, start_of
from paddock.apps.hook.settings.claude import settings_files
from paddock.apps.hook.unconfined import read_targets
from paddock.assembly.agents import note_agents
from paddock.assembly.project import (
    Project,
    chain_of_type,
    declared_for,
    default_chain,
    planned_default_chain,
)
from paddock.assembly.project_open import open_project
from paddock.errors import ConfigError
from paddock.ledger.tail import LedgerPaths
from paddock.plane.clients import CLAUDE, CODEX, find_served
from paddock.plane.discover import (
    POLICY_MARKERS,
    PROJECT_MARKERS,
    bare_planes_below,
    registry_directory,
)
from paddock.plane.environment import read_environment, real_path
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.plane.trust import packages_path, trust_record_path
from paddock.policy.commands import parse_line
from paddock.policy.commands.programs import (
    CAUTIONS_BY_PROGRAM,
    CHANGERS,
    NESTING,
    SHELLS,
    STARTS,
    WRAPPERS,
)
from paddock.policy.commands.walk import RESERVED
from paddock.policy.commands.words import program_name
from paddock.policy.commands.writes import BY_OPTION, PROGRAMS
from paddock.policy.compiled import ASK, CONFINE, DENY, NOTHING, RULE, SECRET
from paddock.policy.decide import judge_for, shell_for
from paddock.policy.engine import Policy, Writer
from paddock.policy.pathset import (
    Comparison,
    PathList,
    compile_lists,
    compile_pattern,
    compile_permissions,
)
from paddock.policy.positions import BUILT_IN
from paddock.policy.presets import LOCKED
from paddock.policy.profiles import (
    UNREADABLE_REMEDY,
    CompiledProfile,
    LineJudge,
    judge_line,
    written_path,
)
from paddock.policy.profiles import Finding as PolicyFinding
from paddock.policy.rules import Profile, compile_rule
from paddock.storage.atomic import create_file, make_directories, replace_file, require_private
from paddock.values.calls import Json
from paddock.values.decisions import (
    Action,
    Agent,
    AgentChain,
    Outcome,
    Permissions,
    PlaneKind,
    RuleMatch,
    client_kind,
)

INTERPRETERS: Final = frozenset(
    {
        *("nodejs", "deno", "bun", "Rscript", "osascript", "pwsh", "ed", "ex", "bc", "dc"),
        *("paddock", "gdb", "sqlite3", "psql", "mysql", "apply_patch", "applypatch", "chdir", "dd"),
    }
)
"""Programs that may run their input as code, or that a client implements itself."""
_PLAIN_WORD: Final = frozenset(f"{ascii_letters}{digits}._+/-")
_LINE: Final = "hook.line"
"""The source of the hook's own questions about a line."""
IMAGES_MAX: Final = 200
"""The oldest images beyond this number are removed."""
_LAUNCH: Final = Path(__file__).with_name("launch.py")
_EVERYTHING: Final = Permissions()


class FullContext(image.HookContext):
    """A context with a parser for lines that are not plain, and each agent's permissions."""

    def __init__(
        self, project: Project, event: HookEvent, start: str, today: str, env: Mapping[str, str]
    ) -> None:
        """Raises: UsageError, ConfigError, HostError."""
        self.project = project
        self.start = start
        self.why_unconfined = why_unconfined(project, event.client, env)
        """Why commands run outside the sandbox; empty if they run in it."""
        self._chain = chain_for(project, event)
        self._judge = judge_for(project.policy, self._chain)
        is_unnamed = bool(event.agent_id) and not event.agent_type
        is_confined = not self.why_unconfined and not is_unnamed
        chains: dict[str | None, AgentChain] = {event.agent_type: self._chain}
        tables = make_tables(project, event.client, env, chains, is_confined=is_confined)
        if tables["served"] is None:
            home, root = project.environment.home, project.root.path
            is_about = event.tool.startswith(SERVED)
            served = is_about and find_served(event.client, "user", root, home, env)
            tables["served"] = served is True
        super().__init__(tables, event, start, today)

    def denials(self, path: str, is_write: bool, by_command: bool) -> list[LeanFinding]:
        found = super().denials(path, is_write, by_command)
        action = Action("file", "create" if is_write else "view", path)
        for agent in self._chain:
            for match in compile_permissions(agent).denials(action):
                rule = _rule(match)
                found.append(LeanFinding(rule[0], GUARD, match.reason, rule, match.code))
        return found

    def confined_line(self, text: str, directory: str) -> LeanLine:
        """Judge the line as `run_shell` would."""
        judge = judge_line(Action("shell", "run", text))
        said = self._judge_words(judge)
        if judge.refusal:
            return said
        named = () if directory == "." else parse_line(text).writes
        added = frozenset(filter(None, (written_path(each, directory) for each in named)))
        written = {Action("file", "create", path): None for path in sorted(added)}
        for write in judge.writes(added):
            if isinstance(write, Action):
                written[write] = None
            else:
                said.findings.append(_finding(write))
        for action in written:
            said.findings += map(_finding, self._judge.findings(action, Writer.COMMAND))
        said.targets = tuple(("create", (), action.target) for action in written)
        return said

    def is_outside(self, text: str) -> bool:
        outside = compile_outside(self.project.policy.settings.hook.outside)
        if outside is None:
            return False
        action = Action("shell", "run", text)
        judge = judge_line(action)
        said = (outside.judge_command(action, each) for each in judge.commands)
        return not judge.refusal and {each.finding.outcome for each in said} == {Outcome.ALLOW}

    def line(self, text: str, base: str) -> LeanLine:
        judge = judge_line(Action("shell", "run", text))
        said = self._judge_words(judge)
        if judge.refusal:
            return said
        for each in said.findings:
            # What had to be confined, because a rule could match, is held by nothing here.
            if each.outcome == CONFINE and each.rule is not None and each.rule[2] == BUILT_IN:
                each.outcome, each.rule = ASK, (ASK, each.rule[1], _LINE, BUILT_IN, 0)
        parsed = parse_line(text)
        targets = read_targets(parsed, base)
        # Outside the sandbox a line may write a closed path: in doubt the user is always asked.
        touch = parsed.touch
        is_changing = bool(touch.written or touch.removed or touch.sifted)
        doubts = parsed.runtime_only if is_changing else touch.doubts
        for reason in dict.fromkeys((*doubts, *targets.unsure)):
            rule = (ASK, reason, _LINE, BUILT_IN, 0)
            said.findings.append(LeanFinding(ASK, RULE, reason, rule))
        said.targets, said.reads = tuple(targets.changes), tuple(targets.reads)
        said.patches = tuple(targets.patches)
        said.removes = targets.removes
        return said

    def _judge_words(self, judge: LineJudge) -> LeanLine:
        if judge.refusal:
            return LeanLine([LeanFinding(DENY, NOTHING, judge.refusal)])
        profiles = self._judge.profiles()
        return LeanLine([_finding(each) for one in profiles for each in judge.findings(one)])


def open_context(
    event: HookEvent, variables: Mapping[str, str], directory: str, today: str
) -> FullContext:
    """Open the project; create its plane on first use. Raises: as `open_project`."""
    start = start_of(event.client, event.cwd, variables, directory)
    project = open_project(Path(start), read_environment(variables))
    context = FullContext(project, event, start, today, variables)
    declared = declared_for(project.agents, event.agent_type)
    note_agents(project, project.agents.lineage(declared))
    make_directories(Path(context.warned))
    return context


def compile_outside(patterns: tuple[str, ...]) -> CompiledProfile | None:
    if not patterns:
        return None
    rules = (
        compile_rule(f"tool:shell:run {each}", Outcome.ALLOW, "hook.outside") for each in patterns
    )
    return CompiledProfile(Profile("outside", tuple(rules), ()))


def _finding(found: PolicyFinding) -> LeanFinding:
    match, outcome = found.rule, int(found.outcome)
    rule = None if match is None else _rule(match)
    if found.rank == PARANOID:
        # The policy has one rank for path lists; the hook has several.
        code = "" if match is None else match.code
        return LeanFinding(outcome, GUARD, found.reason, rule, code)
    is_unreadable = match is not None and match.source == BUILT_IN
    remedy = UNREADABLE_REMEDY if is_unreadable else ""
    return LeanFinding(outcome, found.rank, found.reason, rule, remedy=remedy)


def _rule(match: RuleMatch) -> Rule:
    return (int(match.outcome), match.text, match.source, match.file, match.line)


def make_tables(
    project: Project,
    client: str,
    variables: Mapping[str, str],
    chains: Mapping[str | None, AgentChain],
    *,
    is_confined: bool,
) -> dict[str, Json]:
    """Compile the tables for these agents, by the agent type that the client names.

    `is_confined`: commands run in the sandbox. Raises: UsageError, ConfigError.
    """
    policy, environment, root = project.policy, project.environment, str(project.root.path)
    hook = policy.settings.hook
    profiles: list[Json] = []
    agents: dict[str | None, Json] = {}
    for name, chain in chains.items():
        own: dict[tuple[int, str], None] = {}
        # An untrusted file may overlay a profile with its own rules; the stricter answer decides.
        for each in judge_for(policy, chain).profiles():
            if each.table not in profiles:
                profiles.append(each.table)
            own[profiles.index(each.table), each.title] = None
        agents[name] = (tuple(own), [agent.as_json() for agent in chain])
    state = (real_path(environment.paddock_home), real_path(environment.config_home))
    wrapper: Json = None
    if is_confined:
        wrapper = (
            command_program(),
            root,
            {name: _agent_and_workspace(project, name) for name in chains if name is not None},
        )
    # Outside the project only patterns apply that match a name at any depth.
    outside = (
        PathList((each for each in layer.patterns if each.glob.anywhere), Comparison.GUARDING)
        for layer in policy.guards.secret
    )
    also = PathList(
        map(compile_pattern, also_write(project, client, variables)), Comparison.PERMITTING
    )
    return {
        "hook": (hook.on_allow, hook.warnings, hook.paranoid, hook.shell),
        "guards": policy.guards.compiled,
        "outside": compile_lists([(SECRET, each) for each in outside]),
        "also": compile_lists([("also", also)]),
        "scene": (root, str(environment.home), (*map(str, state), *installation_in(root))),
        "digest": policy.digest,
        "scratch": hook.scratch,
        "profiles": tuple(profiles),
        "agents": agents,
        "holding": wrapper,
        "served": find_served(client, "project", project.root.path, environment.home, variables),
        "warned": str(project.layout.ho2 / "scratch" / "hook-warnings"),
    }


def line_tables(outside: tuple[str, ...]) -> dict[str, Json]:
    """Return the tables that split a line, and the programs that `outside` names."""
    given = {
        name for name, rows in CAUTIONS_BY_PROGRAM.items() if any(r.does == STARTS for r in rows)
    }
    # By program, the prefixes of words that need the full parser; "" matches every word.
    changing = {
        **dict.fromkeys(given | BY_OPTION, ("-",)),
        **dict.fromkeys(PROGRAMS - BY_OPTION, ("",)),
        "find": ("-exec", "-ok", "-fprint", "-fls", "-delete"),
    }
    starting = frozenset(CHANGERS | WRAPPERS.keys() | SHELLS | INTERPRETERS | {"["})
    words = [pattern.split()[0] for pattern in outside if pattern.split()]
    is_wild = any(not _PLAIN_WORD.issuperset(word) for word in words)
    return {
        "shell": (starting, frozenset(RESERVED), changing, dict(NESTING)),
        "outside_commands": (frozenset(program_name(w).casefold() for w in words), is_wild),
    }


def _agent_and_workspace(project: Project, kind: str) -> tuple[str, str]:
    agent = declared_for(project.agents, kind)
    return agent, str(real_path(project.agents.read(agent).workspace))


def why_unconfined(project: Project, client: str, variables: Mapping[str, str]) -> str:
    """Return why commands run outside the sandbox here, or an empty text. Raises: HostError."""
    root, environment = project.root.path, project.environment
    if project.policy.settings.hook.shell != "confine":
        return 'shell = "read" in [hook]'
    if shell_for(project.policy, planned_default_chain(project.agents)).network == "host":
        return 'network = "host" in [shell] disables network isolation'
    if installation_in(str(root)):
        # Threat: a command changes the programs that would confine the next one.
        return "Paddock itself is installed in this project, where commands could change it"
    return why_client_cannot(client, root, environment, variables) or why_host_cannot(environment)


def command_program() -> tuple[str, ...]:
    return (sys.executable, "-I", str(Path(__file__).with_name("exec.py")))


def installation_in(root: str) -> tuple[str, ...]:
    """Threat: a process that can write the hook's code or its Python decides for the hook."""
    places = (Path(__file__).parents[2], Path(sys.prefix))
    found = [str(real_path(place)) for place in places]
    return tuple(place for place in found if relative(place, root))


def chain_for(project: Project, event: HookEvent) -> AgentChain:
    """Return the agent of the event, with its ancestors. Raises: UsageError, ConfigError."""
    default = default_chain(project.agents)
    if event.agent_type:
        return chain_of_type(project.agents, default, event.agent_type)
    # Threat: a sub-agent of an unnamed type. It gets the locked profile, as a child.
    unnamed = Agent(event.agent_id, LOCKED, parent=default[0].name)
    return (unnamed, *default) if event.agent_id else default


def also_write(project: Project, client: str, variables: Mapping[str, str]) -> list[str]:
    """Return absolute patterns; by default the client's plan, memory and scratch files."""
    patterns = project.policy.settings.hook.also_write
    if patterns is None:
        patterns = default_also_write(client, variables)
    home = project.environment.home
    found = [
        base + pattern[1:] if pattern.startswith("~/") else f"/{pattern.lstrip('/')}"
        for pattern in patterns
        for base in (str(home), str(real_path(home)))
    ]
    return list(dict.fromkeys(found))


def default_also_write(client: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    if client == "codex":
        return (f"{CODEX.of_user('~', variables)}/memories/**",)
    own = CLAUDE.of_user("~", variables)
    scratch = variables.get("TMPDIR") or "/tmp"  # noqa: S108 - named, never opened
    return (
        f"{own}/plans/**",
        f"{own}/projects/*/memory/**",
        f"{scratch.rstrip('/')}/claude-{os.geteuid()}/**",
    )


def keep_image(context: FullContext, event: HookEvent, variables: Mapping[str, str]) -> None:
    """Write the image for calls like this one. Raises: HostError, ConfigError."""
    try:
        homes = image.find_homes(variables)
    except DeclinedError:
        return
    content = make_image(context, event.client, variables)
    if content is None:
        return
    path = Path(image.image_path(homes, event, context.start, variables))
    make_directories(path.parent)
    require_private(path.parent)
    key = _key(Path(image.key_path(homes)))
    replace_file(path, image.FORMAT + image.seal(key, content) + content)
    _prune(path.parent)


def make_image(context: FullContext, client: str, variables: Mapping[str, str]) -> bytes | None:
    """Return the tables and their dependencies; None if the fast path must not decide here."""
    project = context.project
    policy, default = project.policy, default_chain(project.agents)
    is_plain = len(default) == 1 and _is_plain(policy, default)
    if project.layout.kind is not PlaneKind.PROJECT or not is_plain:
        return None
    looked = _observe_dependencies(context)
    # Listed after the observation, so that a plane registered in between invalidates the image.
    below = bare_planes_below(project.root.path, project.environment)
    if looked is None or below != policy.planes_below:
        return None
    named = [binding.name for binding in policy.settings.agents]
    # None: an agent type that no configuration names.
    chains: dict[str | None, AgentChain] = {"": default, None: client_kind(default, "child")}
    chains |= {name: chain_of_type(project.agents, default, name) for name in named}
    if not all(_is_plain(policy, chain) for chain in chains.values()):
        return None
    is_confined = not context.why_unconfined
    ledger = LedgerPaths(str(project.layout.ledger_paths()[LedgerName.HO1M]))
    status = os.stat(ledger.ledger)
    return marshal.dumps(
        {
            **make_tables(project, client, variables, chains, is_confined=is_confined),
            **line_tables(policy.settings.hook.outside),
            "looked": looked,
            "since": time.time(),
            "declared": str(project.layout.agents),
            "ledger": (ledger.ledger, ledger.folder, (status.st_dev, status.st_ino)),
        }
    )


def _is_plain(policy: Policy, chain: AgentChain) -> bool:
    if policy.overlays or policy.also_bound:
        return False
    known = frozenset(policy.profiles)
    return all(agent.permissions == _EVERYTHING and agent.profile in known for agent in chain)


def _observe_dependencies(context: FullContext) -> list[Json] | None:
    """Observe again every file that determined the root, the plane, trust and the policy."""
    project = context.project
    layout, files, root = project.layout, project.files, project.root.path
    start = Path(context.start)
    real = Path(os.path.realpath(start))  # noqa: TID251 - where the project was found from
    names = [start, *start.parents]
    for directory in (real, *real.parents):
        marker = PlaneLayout(directory, PlaneKind.BARE).admin_config
        if image.observe(str(marker)) is not None:
            return None
        # Above the detected root only a policy file would establish another root.
        markers = PROJECT_MARKERS if directory.is_relative_to(root) else POLICY_MARKERS
        names += (directory, marker, *(directory / name for name in markers))
    environment = project.environment
    names += (
        *(environment.paddock_home, environment.planes, environment.config_home),
        *(environment.home, layout.root, layout.agents, layout.agent_directory("main")),
        *(environment.trust, _LAUNCH),
    )
    watched = ("paddock.toml", "paddock.json", ".mcp.json", ".codex/config.toml")
    contents = [*(root / name for name in watched), layout.record, layout.agent_file("main")]
    contents.append(packages_path(project.root, environment))
    if files.project is not None:
        contents.append(trust_record_path(files.project.path, environment))
    # Confinement depends on this boot, its preflight results and the client's own sandbox.
    followed = [Path(BOOT), *cache_files(environment), environment.user_config]
    followed += settings_files(root, environment.home, dict(environment.variables))
    wanted = [
        *((image.NAME, path) for path in names),
        *((image.CONTENT, path) for path in contents),
        *((image.FOLLOWED, path) for path in followed),
        (image.LISTED, registry_directory(environment)),
    ]
    seen = dict.fromkeys((kind, str(path)) for kind, path in wanted)
    return [(kind, path, image.observe(path, kind)) for kind, path in seen]


def _key(path: Path) -> bytes:
    make_directories(path.parent)
    for _ in range(2):
        try:
            key = image.read_private(str(path), image.KEY_BYTES)
        except DeclinedError:
            create_file(path, os.urandom(image.KEY_BYTES), 0o600)
        else:
            if len(key) == image.KEY_BYTES:
                return key
            break
    raise ConfigError(
        "the key that seals the hook's images is unusable",
        where=str(path),
        hint="remove that file; the hook creates a new one",
    )


def _prune(directory: Path) -> None:
    names = [name for name in os.listdir(directory) if name.endswith(".image")]
    if len(names) <= IMAGES_MAX:
        return
    aged = sorted((os.lstat(directory / name).st_mtime_ns, name) for name in names)
    for _, name in aged[: len(names) - IMAGES_MAX]:
        try:
            os.unlink(directory / name)
        except FileNotFoundError:
            continue
