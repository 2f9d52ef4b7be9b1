"""What a call is judged on, found the long way: project, agent, engine."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paddock.apps.hook.lean.asked import Asked
from paddock.apps.hook.lean.places import Scene, relative
from paddock.apps.hook.policy_engine import PolicyEngine
from paddock.assembly.agents import note_agents
from paddock.assembly.client_agents import chain_of_type, declared_for, default_chain
from paddock.assembly.opening import open_project
from paddock.assembly.project import Project
from paddock.plane.client_homes import CLAUDE, CODEX
from paddock.plane.environment import Environment, read_environment
from paddock.plane.paths import real_path
from paddock.policy.presets import LOCKED
from paddock.values.agents import Agent, AgentChain

PROJECT_VARIABLE: Final = "CLAUDE_PROJECT_DIR"
"""Where Claude Code was started; the shell's own directory may be another by now."""


@dataclass(frozen=True, slots=True)
class Ground:
    """Everything that a judgement needs."""

    project: Project
    scene: Scene
    chain: AgentChain
    engine: PolicyEngine
    start: str
    """The directory that the project was found from."""


def start_of(client: str, cwd: str, variables: Mapping[str, str], directory: str) -> str:
    """Return the directory that the project is found from."""
    named = variables.get(PROJECT_VARIABLE, "") if client == "claude" else ""
    # A shell may stand anywhere; the project stays where the client was started.
    return named if os.path.isabs(named) else cwd or directory


def find_ground(asked: Asked, variables: Mapping[str, str], directory: str, today: str) -> Ground:
    """Open the project, its plane made on first use.

    Raises:
        UsageError, ConfigError, HostError: as `open_project`.
    """
    environment = read_environment(variables)
    start = start_of(asked.client, asked.cwd, variables, directory)
    project = open_project(Path(start), environment)
    scene = Scene(
        str(project.root.path),
        start.rstrip("/") or "/",
        str(environment.home),
        (*state_of(environment), *installation_in(str(project.root.path))),
        today,
    )
    chain = chain_for(project, asked)
    declared = declared_for(project.agents, asked.agent_type)
    note_agents(project, project.agents.lineage(declared))
    also = also_write(project, asked.client, environment, variables)
    return Ground(project, scene, chain, PolicyEngine(project.policy, chain, also), start)


def state_of(environment: Environment) -> tuple[str, ...]:
    """Return the real directories of Paddock's own files."""
    return (str(real_path(environment.paddock_home)), str(real_path(environment.config_home)))


def installation_in(root: str) -> tuple[str, ...]:
    """Return the real directories of this installation that lie in a project.

    Threat: who may write the hook's own code, or what its interpreter loads at a start,
    decides in its place.
    """
    places = (Path(__file__).parents[2], Path(sys.prefix))
    found = [str(real_path(place)) for place in places]
    return tuple(place for place in found if relative(place, root))


def chain_for(project: Project, asked: Asked) -> AgentChain:
    """Return who acts: an agent of this plane, or a client's own kind of agent.

    Raises: UsageError, ConfigError.
    """
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
    """Return absolute patterns of what may be written outside the project.

    Without `also_write` it is the client's own plan, memory and scratch files.
    """
    given = project.policy.settings.hook.also_write
    patterns = default_also_write(client, variables) if given is None else given
    home, real_home = str(environment.home), str(real_path(environment.home))
    found: dict[str, None] = {}
    for pattern in patterns:
        for base in (home, real_home):
            found["/" + _below_home(pattern, base).lstrip("/")] = None
    return tuple(found)


def default_also_write(client: str, variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the places of a client's own files."""
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
