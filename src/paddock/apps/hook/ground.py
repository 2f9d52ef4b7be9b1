"""What a call is judged on, found the long way: project, agent, engine."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct

from paddock.apps.hook.confinement import why_client_cannot, why_host_cannot
from paddock.apps.hook.lean.asked import Asked
from paddock.apps.hook.lean.places import Scene, relative
from paddock.apps.hook.lean.wrap import Holding
from paddock.apps.hook.policy_engine import PolicyEngine
from paddock.assembly.agents import note_agents
from paddock.assembly.opening import open_project
from paddock.assembly.project import (
    Project,
    chain_of_type,
    declared_for,
    default_chain,
    planned_default_chain,
)
from paddock.plane.clients import CLAUDE, CODEX
from paddock.plane.environment import Environment, read_environment, real_path
from paddock.plane.layout import PlaneLayout
from paddock.policy.decide import shell_for
from paddock.policy.presets import LOCKED
from paddock.values.decisions import Agent, AgentChain

PROJECT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
"""Where Claude Code was started; the shell's own directory may be another by now."""


class HookGround(Struct, frozen=True):
    project: Project
    scene: Scene
    chain: AgentChain
    engine: PolicyEngine
    start: str
    why_read: str
    """Why commands are only read and not confined; empty where they are confined."""


def start_of(client: str, cwd: str, variables: Mapping[str, str], directory: str) -> str:
    named = variables.get(PROJECT_VARIABLE, "") if client == "claude" else ""
    # A shell may stand anywhere; the project stays where the client was started.
    return named if os.path.isabs(named) else cwd or directory


def find_ground(
    asked: Asked, variables: Mapping[str, str], directory: str, today: str
) -> HookGround:
    """Open the project, its plane made on first use. Raises: as `open_project`."""
    environment = read_environment(variables)
    start = start_of(asked.client, asked.cwd, variables, directory)
    project = open_project(Path(start), environment)
    scene = Scene(
        str(project.root.path),
        start.rstrip("/") or "/",
        str(environment.home),
        (*state_of(environment), *installation_in(str(project.root.path))),
        today if project.policy.settings.hook.scratch else "",
    )
    chain = chain_for(project, asked)
    declared = declared_for(project.agents, asked.agent_type)
    note_agents(project, project.agents.lineage(declared))
    also = also_write(project, asked.client, environment, variables)
    why = why_read(project, asked.client, variables)
    holding = None if why else holding_for(project, asked.agent_type, unnamed=bool(asked.agent_id))
    engine = PolicyEngine(project.policy, chain, also, holding)
    return HookGround(project, scene, chain, engine, start, why)


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


def holding_for(project: Project, kind: str, *, unnamed: bool) -> Holding | None:
    """None for an agent of no known kind. Raises: UsageError, ConfigError."""
    if unnamed and not kind:
        return None
    agent = declared_for(project.agents, kind)
    workspace = str(real_path(project.agents.read(agent).workspace))
    kind = "" if kind == agent else kind
    return Holding(command_program(), str(project.root.path), agent, kind, workspace)


def command_program() -> tuple[str, ...]:
    return (sys.executable, "-I", str(Path(__file__).with_name("exec.py")))


def state_of(environment: Environment) -> tuple[str, ...]:
    return (str(real_path(environment.paddock_home)), str(real_path(environment.config_home)))


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


def warned_directory(layout: PlaneLayout) -> str:
    return str(layout.ho2 / "scratch" / "hook-warnings")
