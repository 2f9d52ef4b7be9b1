"""Write the image of a project's policy for the fast path.

Besides the compiled tables an image holds the state of every file they depend on. No image is
written for a policy that the fast path could not decide exactly as the full path does.
"""

import marshal  # noqa: TID251 - sealed with a key before it is read again
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from paddock.apps.hook.confinement import BOOT, cache_files
from paddock.apps.hook.context import FullContext, line_tables, make_tables
from paddock.apps.hook.lean.image import (
    CONTENT,
    FOLLOWED,
    FORMAT,
    KEY_BYTES,
    LISTED,
    NAME,
    find_homes,
    image_path,
    key_path,
    observe,
    read_private,
    seal,
)
from paddock.apps.hook.lean.request import DeclinedError, HookEvent
from paddock.apps.hook.settings.claude import settings_files
from paddock.assembly.project import chain_of_type, default_chain
from paddock.errors import ConfigError
from paddock.ledger.tail import LedgerPaths
from paddock.plane.discover import (
    POLICY_MARKERS,
    PROJECT_MARKERS,
    bare_planes_below,
    registry_directory,
)
from paddock.plane.layout import LedgerName, PlaneLayout
from paddock.plane.trust import packages_path, trust_record_path
from paddock.policy.engine import Policy
from paddock.storage.atomic import create_file, make_directories, replace_file, require_private
from paddock.values.calls import Json
from paddock.values.decisions import AgentChain, Permissions, PlaneKind, client_kind

IMAGES_MAX: Final = 200
"""The oldest images beyond this number are removed."""
_LAUNCH: Final = Path(__file__).with_name("launch.py")
_EVERYTHING: Final = Permissions()


def keep_image(context: FullContext, event: HookEvent, variables: Mapping[str, str]) -> None:
    """Write the image for calls like this one. Raises: HostError, ConfigError."""
    try:
        homes = find_homes(variables)
    except DeclinedError:
        return
    content = make_image(context, event.client, variables)
    if content is None:
        return
    path = Path(image_path(homes, event, context.start, variables))
    make_directories(path.parent)
    require_private(path.parent)
    key = _key(Path(key_path(homes)))
    replace_file(path, FORMAT + seal(key, content) + content)
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
        if observe(str(marker)) is not None:
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
        *((NAME, path) for path in names),
        *((CONTENT, path) for path in contents),
        *((FOLLOWED, path) for path in followed),
        (LISTED, registry_directory(environment)),
    ]
    seen = dict.fromkeys((kind, str(path)) for kind, path in wanted)
    return [(kind, path, observe(path, kind)) for kind, path in seen]


def _key(path: Path) -> bytes:
    make_directories(path.parent)
    for _ in range(2):
        try:
            key = read_private(str(path), KEY_BYTES)
        except DeclinedError:
            create_file(path, os.urandom(KEY_BYTES), 0o600)
        else:
            if len(key) == KEY_BYTES:
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
