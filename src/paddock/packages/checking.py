"""Whether the files of installed packages are what their manifests say."""

from paddock.errors import PaddockError
from paddock.packages.installed import InstalledPackage
from paddock.packages.refusals import Failure
from paddock.workspace import Workspace
from paddock.workspace.changes import EntryState
from paddock.workspace.entries import EntryKind


def check_package(package: InstalledPackage, workspace: Workspace) -> tuple[Failure, ...]:
    """Look at every file that the package brought.

    Of `config` only that a regular file stands there: its content is the operators'.
    """
    problems = ((path, file_problem(package, path, workspace)) for path in package.manifest.by_path)
    return tuple(Failure(path, problem) for path, problem in problems if problem)


def file_problem(package: InstalledPackage, path: str, workspace: Workspace) -> str:
    """What is wrong with one file of a package; empty where nothing is."""
    try:
        state = workspace.entry_state(workspace.resolve_entry(path))
    except PaddockError as error:
        return error.message
    return _difference(package, path, state)


def _difference(package: InstalledPackage, path: str, state: EntryState | None) -> str:
    if state is None:
        return "it is missing"
    if state.kind is not EntryKind.FILE:
        return f"it is a {state.kind.value}"
    if package.manifest.by_path[path].is_config:
        return ""
    brought = package.files[path]
    if state.version != brought.sha256:
        return f"its digest is {state.version}, not {brought.sha256}"
    if state.mode != brought.mode:
        return f"its mode is {state.mode:04o}, not {brought.mode:04o}"
    return ""
