"""Tools that packages bring: code of somebody else, run in this process.

Threat: such a tool is no less than a part of Paddock. What its file does when it is loaded,
and what its handler does beside its ports, no policy sees and no sandbox holds. So whoever
can bring a tool to be loaded has everything that this user has, and a tool is loaded only
when all of this holds, each told by somebody else than the one before
(`sound_packages`):

  * an operator's configuration names tool and package, on a plane that was accepted
    (`HOT/config` is closed to every agent);
  * the packages ledger, verified, says that the package is installed, with this manifest,
    under an operator's approval (on a plane made with `--dev`, nobody is asked);
  * every file of the package is as its manifest says, and is still its own;
  * the bytes that are run are read once, and their digest is the manifest's. Nothing is
    imported by name: no search path, no bytecode cache, no second look at the disk.

What is loaded is then a tool like every other: its arguments are bound, the actions of its
plan are judged, the intent is recorded before it runs. It is always judged as running
package code as well, whatever its plan says, it counts as one that changes something,
whatever it says of itself, and it takes no name that is taken.

A tool that is not loaded does not exist; who opens the plane is told why.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final, cast

from paddock import limits
from paddock.assembly.admin import PACKAGE
from paddock.assembly.project import Project
from paddock.assembly.sound_packages import (
    SoundPackages,
    UnsoundPackageError,
    open_sound_packages,
)
from paddock.errors import InternalError
from paddock.packages.installed import InstalledPackage
from paddock.packages.manifest import Asset
from paddock.plane.admin import PackageTool
from paddock.text.show import quote, show_name
from paddock.tools.spec import Effects, Plan, Ports, Tool, ToolOutput, ToolSpec
from paddock.tools.toolsets import all_tools
from paddock.values.decisions import Action

CLASSIFICATION: Final = "tool"
"""Of a file that is a tool: a Python module, called after it, with a function `tool`."""
MAKER: Final = "tool"
"""The function of that module that makes the `Tool`."""
EFFECTS: Final = Effects(reads_only=False, is_destructive=True, is_open_world=True)
"""What is said of every one of them: nobody here knows better."""

_TOOL_ID: Final = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class LoadedTools:
    tools: tuple[Tool[Any], ...] = ()
    notices: tuple[str, ...] = ()


class _NotLoadedError(Exception):
    """A tool that is not loaded, and why."""


def load_package_tools(project: Project) -> LoadedTools:
    """Load what the configuration names and what may be loaded.

    Raises:
        HostError: the plane cannot be read.
        LedgerDamagedError: nobody can tell what was installed.
    """
    config = project.admin
    if config is None or not config.package_tools or not project.root.accepted:
        return LoadedTools()
    tools: list[Tool[Any]] = []
    notices: list[str] = []
    taken = {tool.name for tool in all_tools()}
    with open_sound_packages(project) as packages:
        for entry in config.package_tools:
            try:
                tools.append(_load(entry, packages, taken))
            except (_NotLoadedError, UnsoundPackageError) as refusal:
                name = f"the tool {quote(entry.tool_id)} of {show_name(entry.package_id)}"
                notices.append(f"{name} was not loaded: {refusal}")
            taken.add(entry.tool_id)
    return LoadedTools(tuple(tools), tuple(notices))


def _load(entry: PackageTool, packages: SoundPackages, taken: set[str]) -> Tool[Any]:
    """One tool. Raises: _NotLoadedError, UnsoundPackageError."""
    _require_name(entry.tool_id, taken)
    package = packages.find(entry.package_id)
    asset = _asset(package, entry.tool_id)
    content = packages.content(package, asset, limits.package_tool_bytes_max)
    head = Action("package", "run", f"{package.package_id}/{entry.tool_id}")
    try:
        made = _made(content, f"{package.package_id}:{asset.path}", entry.tool_id)
        spec: ToolSpec[Any] = replace(made.spec, toolset=PACKAGE, effects=EFFECTS)
        return Tool(spec, _Guarded(made.handler, head))
    except (KeyboardInterrupt, _NotLoadedError):
        raise  # An interrupt is of whoever waits.
    except BaseException as fault:  # The door: whatever a module raises, there is no such tool.
        why = show_name(_told_by(fault)[: limits.message_value_chars_max])
        raise _NotLoadedError(why) from fault


def _asset(package: InstalledPackage, tool_id: str) -> Asset:
    found = [
        asset
        for asset in package.manifest.assets
        if asset.classification == CLASSIFICATION and asset.path.endswith(f"/{tool_id}.py")
    ]
    if len(found) != 1:
        raise _NotLoadedError(f"it brings {len(found)} files {tool_id}.py that are tools")
    return found[0]


def _require_name(tool_id: str, taken: set[str]) -> None:
    if _TOOL_ID.fullmatch(tool_id) is None:
        raise _NotLoadedError("no tool can be called so: a-z, 0-9 and _, at most 64")
    # Threat: a name that reads as if the dual gate had given it.
    if tool_id.endswith("_dev"):
        raise _NotLoadedError("names that end in _dev are the development tools'")
    if tool_id in taken:
        raise _NotLoadedError("there is a tool of that name already")


def _made(content: bytes, name: str, tool_id: str) -> Tool[Any]:
    """Run the module, and have it make its tool.

    Raises: _NotLoadedError where that is none; else whatever the module raises.
    """
    module = ModuleType(f"paddock_package_tool_{tool_id}")
    module.__file__ = name
    # Data classes look their module up by its name; nobody can import it from there but them.
    sys.modules[module.__name__] = module
    exec(compile(content, name, "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - see the module
    maker: Callable[[], object] = getattr(module, MAKER)
    made = maker()
    if not isinstance(made, Tool):
        raise _NotLoadedError(f"its function {MAKER} makes no Tool")
    found = cast("Tool[Any]", made)
    if found.name != tool_id:
        raise _NotLoadedError(f"it is called {quote(found.name)}")
    said: list[Any] = [found.spec.title, found.spec.description]
    # One that is none makes the list of all tools invalid for a client that asks for it.
    if not all(isinstance(each, str) for each in said):
        raise _NotLoadedError("its title and its description are not both text")
    return found


def _told_by(fault: BaseException) -> str:
    try:
        return f"{type(fault).__name__}: {fault}"
    except Exception:  # The door: an exception's own text is the module's code as well.
        return type(fault).__name__


@dataclass(frozen=True, slots=True)
class _GuardedPlan:
    """The tool's own plan, and what is judged: taken from it once."""

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
        except BaseException as ended:  # The door: no tool ends the process, SystemExit or other.
            raise self._defect(f"raised {type(ended).__name__}") from ended

    def run(self, plan: _GuardedPlan, ports: Ports) -> ToolOutput:
        try:
            output: object = self._inner.run(plan.inner, ports)
        except (Exception, KeyboardInterrupt):
            raise
        except BaseException as ended:  # The door: as in resolve.
            raise self._defect(f"raised {type(ended).__name__}") from ended
        if not isinstance(output, ToolOutput):
            raise self._defect("handed back no output of a tool")
        return output

    def _defect(self, what: str) -> InternalError:
        return InternalError(f"the tool {quote(self._head.target)} {what}")
