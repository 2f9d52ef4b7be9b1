"""Collect the facts of this host that a plan is compiled from, once for a runtime."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paddock.plane.agents import AgentStore
from paddock.plane.environment import real_path
from paddock.policy.engine import Policy
from paddock.sandbox.host.git import GitConfigReader, find_git_outside
from paddock.sandbox.host.host_facts import (
    Closed,
    HostFacts,
    HostListing,
    Link,
    Resolver,
    is_below,
    topmost,
)
from paddock.sandbox.host.toolchains import find_toolchains
from paddock.sandbox.plan import SECRET_PLACES, at_home
from paddock.sandbox.staging_area import DOWNLOADS, FOLDER, Caches
from paddock.sandbox.values import shells_of

_LISTED_MAX: Final = 2_000
"""Names in a directory that contains a closed place; a larger directory is left out whole."""


def collect_facts(
    policy: Policy, agents: AgentStore, agent: str, variables: Mapping[str, str]
) -> HostFacts:
    """Inspect the host; starts only git, to list its settings, and writes nothing.

    Raises: UsageError for an unknown agent; ConfigError where an agent of the plane does not load.
    """
    environment = agents.environment
    lineage = agents.lineage(agent)
    chain = tuple(record.agent for record in lineage)
    workspace = str(real_path(lineage[0].workspace))
    home = str(real_path(environment.home))
    resolver = Resolver()
    wanted = [
        at_home(path, home)
        for shell in shells_of(policy, chain)
        for path in (*shell.read, *shell.write)
    ]
    found = [resolver.find(path) for path in dict.fromkeys(wanted)]
    existing = tuple(each for each in found if each is not None)
    closed = _closed(agents, workspace)
    changeable = _changeable(policy, resolver, home, closed)
    toolchains = find_toolchains(variables, home, workspace, changeable)
    places = [each.real for each in existing]
    places += [path for each in toolchains.toolchains for path in each.readable]
    holes = [each.path for each in closed] + [workspace]
    return HostFacts(
        workspace=workspace,
        home=home,
        existing=existing,
        search_path=toolchains.search_path,
        toolchains=toolchains.toolchains,
        closed=closed,
        listings=_listings(places, holes, home),
        variables=tuple(sorted(variables.items())),
        changeable=changeable,
        left_out=toolchains.left_out,
        git_outside=find_git_outside(workspace),
        git=GitConfigReader(
            workspace=workspace,
            home=home,
            variables=variables,
            search_path=toolchains.search_path,
            changeable=changeable,
            secret_places=tuple(f"{home}/{name}" for name in SECRET_PLACES),
            is_secret=lambda name: policy.guards.find_secret(name) is not None,
            resolver=resolver,
        ).read(),
        memory_mb=_memory_mb(),
        caches=str(Caches.of(real_path(agents.layout.objects / FOLDER), workspace).tree),
        downloads=tuple(
            path
            for path in (f"{home}/{name}" for name in DOWNLOADS)
            if os.path.isdir(path) and str(real_path(Path(path))) == path
        ),
    )


def _memory_mb() -> int:
    most = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
    except OSError:
        text = ""
    return (min(most, int(text)) if text.isdigit() else most) >> 20


def _closed(agents: AgentStore, workspace: str) -> tuple[Closed, ...]:
    environment = agents.environment
    closed = [
        Closed(str(real_path(environment.paddock_home)), "Paddock's own state"),
        Closed(str(real_path(environment.config_home)), "Paddock's configuration"),
        Closed(str(real_path(agents.layout.root)), "the plane"),
    ]
    for record in agents.read_all():
        place = str(real_path(record.workspace))
        closed.append(Closed(place, f"the workspace of agent {record.agent.name}"))
    # Places in the workspace are judged path by path: an admin's workspace is the plane, and
    # a parent's workspace may contain its child's.
    return tuple(place for place in closed if not is_below(place.path, workspace))


def _changeable(
    policy: Policy, resolver: Resolver, home: str, closed: tuple[Closed, ...]
) -> tuple[str, ...]:
    """Threat: a symlink that one command creates decides what the next one may read."""
    shell = policy.settings.shell
    changes = (each.shell for each in (*policy.profile_table, *policy.overlays))
    asked = [*shell.write, *(path for each in changes if each for path in each.write or ())]
    found = [resolver.find(at_home(path, home)) for path in dict.fromkeys(asked)]
    # A place that contains the home directory is never writable, whatever a policy says.
    written = [each.real for each in found if each is not None and not is_below(home, each.real)]
    return topmost([*written, *(each.path for each in closed)])


def _listings(places: list[str], holes: list[str], home: str) -> tuple[HostListing, ...]:
    found: dict[str, HostListing] = {}
    for place in places:
        for hole in holes:
            if hole == place or not is_below(hole, place) or is_below(home, place):
                continue
            directory = place
            for name in hole[len(place.rstrip("/")) + 1 :].split("/"):
                if directory not in found:
                    listing = _listing(directory)
                    if listing is None:
                        break
                    found[directory] = listing
                directory = f"{directory.rstrip('/')}/{name}"
    return tuple(found.values())


def _listing(directory: str) -> HostListing | None:
    names: list[str] = []
    links: list[Link] = []
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{directory.rstrip('/')}/{entry.name}"
                if entry.is_symlink():
                    links.append((path, os.fspath(Path(path).readlink())))
                elif entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
    except OSError:
        return None
    if len(names) > _LISTED_MAX:
        return None
    return HostListing(directory, tuple(sorted(names)), tuple(sorted(links)))
