"""Load the tools of packages and of third-party MCP servers.

Threat: a package's tool is third-party code in this process, with all rights of this user: no
policy and no sandbox limits its file when it is loaded, or its handler outside its ports. So it is
loaded only if independent sources agree (`open_sound_packages`): an operator's configuration names
tool and package, on an accepted plane (`HOT/config` is closed to every agent); the verified
packages ledger has the package installed, with this manifest, under an operator's approval (not
needed with `--dev`); each file is as its manifest says, and no other package's; the bytes that run
are read once and match the manifest's digest: no search path, bytecode cache or second read.
Each call of it is dispatched, also judged as running package code, and counts as a change, whatever
the tool declares. It gets no name that is in use. A notice says why a tool was not loaded.
"""

import re
import sys
from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock import limits
from paddock.assembly.packages import is_development_plane, package_ledger
from paddock.assembly.project import MCP, PACKAGE, Project, new_call_id
from paddock.assembly.shells import LazyShell, ShellSetup
from paddock.errors import InternalError, PaddockError
from paddock.gateway.definitions import Pins, reviewed
from paddock.gateway.tools import offered_tools
from paddock.packages.installed import InstalledPackage, InstalledSet, check_package, read_installed
from paddock.packages.ledger import RecordedPackage, replay
from paddock.packages.manifest import Asset
from paddock.pattern import lazy_pattern
from paddock.plane.admin import PackageTool
from paddock.policy.engine import Policy
from paddock.policy.settings import McpServer
from paddock.runtime.dispatch import Context
from paddock.runtime.own_tools import registered_tool
from paddock.runtime.prepared import FREE, Judged, Prepared
from paddock.runtime.question import CallNetwork
from paddock.runtime.records import Recorder
from paddock.text.show import quote, show_name
from paddock.tools.arguments import ArgumentType
from paddock.tools.spec import Effects, GivenPlan, Plan, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.toolsets import TOOLS
from paddock.values.calls import Json, ToolCall
from paddock.values.decisions import Action, Decision, Outcome
from paddock.values.entries import digest_of
from paddock.workspace import Workspace

if TYPE_CHECKING:
    from paddock.gateway.gateway import McpGateway

# Threat: an attacker who changes a file of a package, with its manifest and receipt, would have
# that file loaded or shown to a model. So no source vouches for itself: the verified packages
# ledger records what is installed, the approval that it names who vouches for it, and the manifest
# of that digest each file's content. The bytes that are used are those whose digest was compared.


class UnsoundPackageError(Exception):
    """A package, or a file or a tool of one, that may not be used, and why."""


class SoundPackages(Struct, frozen=True):
    workspace: Workspace
    installed: InstalledSet
    recorded: Mapping[str, RecordedPackage]
    plane_is_dev: bool

    def find(self, package_id: str) -> InstalledPackage:
        package, record = self.installed.packages.get(package_id), self.recorded.get(package_id)
        if package is None or record is None:
            raise UnsoundPackageError("the package is not installed")
        if package.manifest.digest != record.digest:
            raise UnsoundPackageError("its manifest is not the one that was installed")
        if record.wo_id is None and not self.plane_is_dev:
            raise UnsoundPackageError("no operator approved the package")
        failures = check_package(package, self.workspace)
        if failures:
            raise UnsoundPackageError(f"{failures[0].file}: {failures[0].reason}")
        return package

    def content(self, package: InstalledPackage, asset: Asset, bytes_max: int) -> bytes:
        if self.installed.owner_of(asset.path) is not package:
            raise UnsoundPackageError(f"{asset.path} also belongs to another package")
        try:
            path = self.workspace.resolve_entry(asset.path).path
            content = self.workspace.read_all(path, bytes_max)
        except PaddockError as error:
            raise UnsoundPackageError(error.message) from error
        if digest_of(content) != asset.sha256:
            raise UnsoundPackageError(f"{asset.path} does not match the package's manifest")
        return content


@contextmanager
def open_sound_packages(project: Project) -> Generator[SoundPackages]:
    entries = package_ledger(project).read().entries
    with Workspace.open(str(project.layout.root)) as workspace:
        yield SoundPackages(
            workspace,
            read_installed(project.layout),
            replay(entries).packages,
            is_development_plane(project),
        )


CLASSIFICATION: Final = "tool"
MAKER: Final = "tool"
EFFECTS: Final = Effects(reads_only=False, is_destructive=True, is_open_world=True)
"""The worst case, for every package tool: its author's declarations cannot be checked."""

_TOOL_ID: Final = lazy_pattern(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class LoadedTools(Struct, frozen=True):
    tools: tuple[Tool[Any], ...] = ()
    notices: tuple[str, ...] = ()


def load_package_tools(project: Project) -> LoadedTools:
    config = project.admin
    if config is None or not config.package_tools or not project.root.accepted:
        return LoadedTools()
    tools: list[Tool[Any]] = []
    notices: list[str] = []
    taken = {tool.name for tool in TOOLS}
    with open_sound_packages(project) as packages:
        for entry in config.package_tools:
            try:
                tools.append(_load(entry, packages, taken))
            except UnsoundPackageError as refusal:
                name = f"the tool {quote(entry.tool_id)} of {show_name(entry.package_id)}"
                notices.append(f"{name} was not loaded: {refusal}")
            taken.add(entry.tool_id)
    return LoadedTools(tuple(tools), tuple(notices))


def _load(entry: PackageTool, packages: SoundPackages, taken: set[str]) -> Tool[Any]:
    _require_name(entry.tool_id, taken)
    package = packages.find(entry.package_id)
    asset = _asset(package, entry.tool_id)
    content = packages.content(package, asset, limits.package_tool_bytes_max)
    head = Action("package", "run", f"{package.package_id}/{entry.tool_id}")
    try:
        made = _run_module(content, f"{package.package_id}:{asset.path}", entry.tool_id)
        spec: ToolSpec[Any] = replace(made.spec, toolset=PACKAGE, effects=EFFECTS)
        return Tool(spec, _Guarded(made.handler, head))
    except (KeyboardInterrupt, UnsoundPackageError):
        raise  # An interrupt is meant for this process.
    except BaseException as fault:  # A module may raise anything; only its tool is lost.
        why = show_name(_describe_fault(fault)[: limits.message_value_chars_max])
        raise UnsoundPackageError(why) from fault


def _asset(package: InstalledPackage, tool_id: str) -> Asset:
    found = [
        asset
        for asset in package.manifest.assets
        if asset.classification == CLASSIFICATION and asset.path.endswith(f"/{tool_id}.py")
    ]
    if len(found) != 1:
        raise UnsoundPackageError(f"it has {len(found)} tool files {tool_id}.py, not one")
    return found[0]


def _require_name(tool_id: str, taken: set[str]) -> None:
    if _TOOL_ID.fullmatch(tool_id) is None:
        raise UnsoundPackageError("invalid tool name: use a-z, 0-9 and _, at most 64")
    # Threat: a name that looks as if the dual gate had granted the tool.
    if tool_id.endswith("_dev"):
        raise UnsoundPackageError("names that end in _dev are reserved for development tools")
    if tool_id in taken:
        raise UnsoundPackageError("a tool of that name exists already")


def _run_module(content: bytes, name: str, tool_id: str) -> Tool[Any]:
    module = ModuleType(f"paddock_package_tool_{tool_id}")
    module.__file__ = name
    # Registered, since data classes look their module up by its name.
    sys.modules[module.__name__] = module
    exec(compile(content, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - see the module
    maker: Callable[[], object] = getattr(module, MAKER)
    made = maker()
    if not isinstance(made, Tool):
        raise UnsoundPackageError(f"its function {MAKER} does not return a Tool")
    found = cast("Tool[Any]", made)
    if found.name != tool_id:
        raise UnsoundPackageError(f"its tool has the name {quote(found.name)}")
    said: list[Any] = [found.spec.title, found.spec.description]
    # Anything but text makes the whole list of tools invalid for a client that asks for it.
    if not all(isinstance(each, str) for each in said):
        raise UnsoundPackageError("its title and its description are not both text")
    return found


def _describe_fault(fault: BaseException) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except Exception:  # `__str__` of its exception is also the module's code.
        return type(fault).__name__


class _GuardedPlan(Struct, frozen=True):
    """The tool's plan, and its actions, read once: what is judged cannot change later."""

    inner: Plan
    actions: tuple[Action, ...]


class _Guarded:
    def __init__(self, inner: Any, head: Action) -> None:
        self._inner = inner
        self._head = head

    def resolve(self, arguments: Any, ports: Ports) -> _GuardedPlan:
        """See `Handler`. Running package code is always one of the actions."""
        try:
            plan: Plan = self._inner.resolve(arguments, ports)
            return _GuardedPlan(plan, (self._head, *plan.actions))
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as ended:  # A tool must not end the process, as by SystemExit.
            raise self._defect(f"raised {type(ended).__name__}") from ended

    def run(self, plan: _GuardedPlan, ports: Ports) -> ToolOutput:
        try:
            output: object = self._inner.run(plan.inner, ports)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as ended:  # As in resolve.
            raise self._defect(f"raised {type(ended).__name__}") from ended
        if not isinstance(output, ToolOutput):
            raise self._defect("did not return a ToolOutput")
        return output

    def _defect(self, what: str) -> InternalError:
        return InternalError(f"the tool {quote(self._head.target)} {what}")


# A skill is `…/<name>/SKILL.md`, classified `skill`, and begins with its name and one line that
# says when to read it. A model gets these two and the path; it reads the text like any file, by
# a call that is judged. A skill that does not match its package's manifest, or whose package is
# not approved, is not listed.

SKILL_CLASSIFICATION: Final = "skill"
_HEAD: Final = lazy_pattern(
    r"---\nname: ([a-z0-9][a-z0-9-]{0,63})\ndescription: ([^\n]{1,300})\n---\n", re.ASCII
)


def skill_facts(project: Project) -> dict[str, Json]:
    found = installed_skills(project)
    named = limits.skills_max
    if len(found) <= named:
        return {"skills": found}
    more = f"{len(found) - named} more skills are not listed: only the first {named} by path are"
    return {"skills": found[:named], "skills_left_out": more}


def installed_skills(project: Project) -> list[Json]:
    if not project.root.accepted or not project.layout.installed.is_dir():
        return []
    with open_sound_packages(project) as packages:
        found = sorted(_skills(packages))
    return [
        {"name": name, "description": description, "path": path}
        for path, name, description in found
    ]


def _skills(packages: SoundPackages) -> Iterator[tuple[str, str, str]]:
    for package_id, package in packages.installed.packages.items():
        assets = [
            asset
            for asset in package.manifest.assets
            if asset.classification == SKILL_CLASSIFICATION
        ]
        if not assets:
            continue
        try:
            sound = packages.find(package_id)
            for asset in assets:
                content = packages.content(sound, asset, limits.skill_bytes_max)
                skill = _parse_skill(asset.path, content)
                if skill is not None:
                    yield skill
        except UnsoundPackageError:
            continue  # list_packages and the gates report its problem


def _parse_skill(path: str, content: bytes) -> tuple[str, str, str] | None:
    head = _HEAD.match(content.decode("utf-8", errors="replace"))
    folder = path.rpartition("/")[0].rpartition("/")[2]
    # Threat: a description goes to a model: one line, no invisible or direction characters.
    if head is None or head[1] != folder or show_name(head[2]) != head[2]:
        return None
    return path, head[1], head[2]


# Third-party MCP servers: their tools, and their sandboxes.


def server_tools(
    project: Project,
    policy: Policy,
    gateway: "Callable[[], McpGateway]",
    taken: Collection[str],
) -> LoadedTools:
    """Return the reviewed tools of MCP servers, and notices of servers not reviewed yet."""
    servers = policy.settings.mcp.servers
    pins = Pins(project.root, project.environment).read()
    names = reviewed(servers, pins)
    notices = (
        f"the MCP server {each.name} offers no tools until a person has reviewed it: "
        f"paddock mcp review {each.name}"
        for each in servers
        if each.name not in names
    )
    tools = offered_tools(servers, pins, gateway, taken.__contains__)
    return LoadedTools(tuple(tools), tuple(notices))


def open_gateway(
    ground: ShellSetup, context: Callable[[], Context], held: ExitStack
) -> "McpGateway":
    """Return the gateway to MCP servers; each starts, in its sandbox, at its first use."""
    from paddock.gateway.confine import ServerSandbox  # noqa: PLC0415 - it loads the sandbox
    from paddock.gateway.gateway import McpGateway  # noqa: PLC0415 - it loads the SDK

    sandboxes: dict[str, ServerSandbox] = {}
    for server in ground.policy.settings.mcp.servers:
        own = replace(ground, server=server)
        if server.files == "none":
            directory = held.enter_context(TemporaryDirectory(prefix="paddock-mcp-"))
            own = replace(own, workspace=held.enter_context(Workspace.open(directory)))
        own = replace(own, policy=own.governed_by(ground.policy))
        shell = held.enter_context(closing(LazyShell(own)))
        sandboxes[server.name] = ServerSandbox(
            server,
            shell.open,
            partial(_server_network, context, server),
            own.policy.settings.credentials,
        )
    pins = Pins(ground.project.root, ground.project.environment).read()
    gateway = McpGateway(sandboxes, pins, ground.history.keep_for_ledger)
    return held.enter_context(closing(gateway))


def _server_network(context_now: Callable[[], Context], server: McpServer) -> CallNetwork:
    """Return the judge of a server's connections: they belong to the server, not to one call."""
    context = context_now()
    spec = ToolSpec(
        f"mcp-{server.name}", server.name, "", MCP, ArgumentType, Effects(reads_only=False)
    )
    tool = registered_tool(spec, str)
    action = Action("mcp", "call", f"{server.name}/*")
    decision = Decision(Outcome.ALLOW, str(action), "", None, "", context.judge.policy_digest)
    plan, call = GivenPlan[Json]({}, (action,)), ToolCall(new_call_id(), tool.name, {})
    work = Prepared(call, tool, plan, {}, {}, (str(action),), Judged(decision), FREE)
    remedy = f'add "{{}}" to network of [mcp.servers.{server.name}], then: paddock trust'
    return CallNetwork(context, Recorder(context.caller), work, remedy)
