"""What a call is judged on, found the long way: project, agent, compiled tables."""

import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from paddock.apps.hook.confinement import why_client_cannot, why_host_cannot
from paddock.apps.hook.lean.asked import Asked, start_of
from paddock.apps.hook.lean.engine import Ground
from paddock.apps.hook.lean.judging import SERVED
from paddock.apps.hook.lean.places import relative
from paddock.apps.hook.policy_engine import PolicyEngine, hook_tables
from paddock.assembly.agents import note_agents
from paddock.assembly.opening import open_project
from paddock.assembly.project import (
    Project,
    chain_of_type,
    declared_for,
    default_chain,
    planned_default_chain,
)
from paddock.plane.clients import CLAUDE, CODEX, find_served
from paddock.plane.environment import Environment, read_environment, real_path
from paddock.policy.decide import judge_for, shell_for
from paddock.policy.presets import LOCKED
from paddock.values.calls import Json
from paddock.values.decisions import Agent, AgentChain


class HookGround(Ground):
    """`why_read`: why commands are only read and not confined; empty where they are confined."""

    project: Project
    start: str
    why_read: str


def find_ground(
    asked: Asked, variables: Mapping[str, str], directory: str, today: str
) -> HookGround:
    """Open the project, its plane made on first use. Raises: as `open_project`."""
    start = start_of(asked.client, asked.cwd, variables, directory)
    project = open_project(Path(start), read_environment(variables))
    chain = chain_for(project, asked)
    declared = declared_for(project.agents, asked.agent_type)
    note_agents(project, project.agents.lineage(declared))
    why = why_read(project, asked.client, variables)
    is_unnamed = bool(asked.agent_id) and not asked.agent_type
    chains = {asked.agent_type: chain}
    tables = make_tables(
        project, asked.client, variables, chains, is_held=not why and not is_unnamed
    )
    if tables["served"] is None:
        served = partial(find_served, asked.client, "user", project.root.path)
        is_about = asked.tool.startswith(SERVED)
        tables["served"] = is_about and served(project.environment.home, variables) is True
    engine = partial(PolicyEngine, project.policy, chain)
    ground = HookGround(tables, asked, start, today, engine)
    ground.project, ground.start, ground.why_read = project, start, why
    return ground


def make_tables(
    project: Project,
    client: str,
    variables: Mapping[str, str],
    chains: Mapping[str, AgentChain],
    *,
    is_held: bool,
) -> dict[str, Json]:
    """Compile what decides here for these agents, by the type that a client names.

    `is_held`: commands are confined. Raises: UsageError, ConfigError.
    """
    policy, environment, root = project.policy, project.environment, str(project.root.path)
    profiles: list[Json] = []
    agents: dict[str, Json] = {}
    for name, chain in chains.items():
        own: dict[int, None] = {}
        # What an untrusted file lays over a profile says its own; the stricter of both decides.
        for table in (each.table for each in judge_for(policy, chain).profiles()):
            if table not in profiles:
                profiles.append(table)
            own[profiles.index(table)] = None
        agents[name] = (tuple(own), [agent.as_json() for agent in chain])
    state = (real_path(environment.paddock_home), real_path(environment.config_home))
    holding: Json = None
    if is_held:
        holding = (command_program(), root, {name: _held(project, name) for name in chains})
    return {
        **hook_tables(policy, also_write(project, client, environment, variables)),
        "scene": (root, str(environment.home), (*map(str, state), *installation_in(root))),
        "digest": policy.digest,
        "scratch": policy.settings.hook.scratch,
        "profiles": tuple(profiles),
        "agents": agents,
        "holding": holding,
        "served": find_served(client, "project", project.root.path, environment.home, variables),
        "warned": str(project.layout.ho2 / "scratch" / "hook-warnings"),
    }


def _held(project: Project, kind: str) -> tuple[str, str]:
    """Return the agent for whom commands of a client's kind of agent run, and its workspace."""
    agent = declared_for(project.agents, kind)
    return agent, str(real_path(project.agents.read(agent).workspace))


def why_read(project: Project, client: str, variables: Mapping[str, str]) -> str:
    """Say why a client's commands are only read here; empty in the sandbox. Raises: HostError."""
    root, environment = project.root.path, project.environment
    if project.policy.settings.hook.shell != "confine":
        return 'shell = "read" in [hook]'
    if shell_for(project.policy, planned_default_chain(project.agents)).network == "host":
        return 'network = "host" in [shell] is no fence'
    if installation_in(str(root)):
        # Threat: a command changes the programs that would hold the next one.
        return "Paddock itself is installed in this project, where commands could change it"
    return why_client_cannot(client, root, environment, variables) or why_host_cannot(environment)


def command_program() -> tuple[str, ...]:
    return (sys.executable, "-I", str(Path(__file__).with_name("exec.py")))


def installation_in(root: str) -> tuple[str, ...]:
    """Threat: who may write the hook's code, or what Python loads for it, decides for it."""
    places = (Path(__file__).parents[2], Path(sys.prefix))
    found = [str(real_path(place)) for place in places]
    return tuple(place for place in found if relative(place, root))


def chain_for(project: Project, asked: Asked) -> AgentChain:
    """Return who acts: an agent, or a client's kind of agent. Raises: UsageError, ConfigError."""
    default = default_chain(project.agents)
    name = asked.agent_type
    if not name:
        # Threat: a sub-agent that does not say what it is. Unknown is no; and a child it is.
        unnamed = Agent(asked.agent_id, LOCKED, parent=default[0].name)
        return (unnamed, *default) if asked.agent_id else default
    return chain_of_type(project.agents, default, name)


def also_write(
    project: Project, client: str, environment: Environment, variables: Mapping[str, str]
) -> tuple[str, ...]:
    """Default to the client's own plan, memory and scratch files; absolute patterns."""
    given = project.policy.settings.hook.also_write
    patterns = default_also_write(client, variables) if given is None else given
    home, real_home = str(environment.home), str(real_path(environment.home))
    found: dict[str, None] = {}
    for pattern in patterns:
        for base in (home, real_home):
            found["/" + _below_home(pattern, base).lstrip("/")] = None
    return tuple(found)


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


def _below_home(pattern: str, home: str) -> str:
    return home + pattern[1:] if pattern.startswith("~/") else pattern
