"""Trees as values, and the set of changes that leads from one to another."""

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct

from paddock.storage.disk import Disk
from paddock.storage.journal import Journal
from paddock.storage.objects import ObjectStore
from paddock.workspace import Workspace
from paddock.workspace.apply import commit_changes
from paddock.workspace.changes import (
    Absent,
    MakeDirectory,
    MakeLink,
    RemoveDirectory,
    RemoveFile,
    Seen,
    SetMetadata,
    StagedChange,
    StoredContent,
    WriteFile,
)
from paddock.workspace.metadata import status_from
from paddock.workspace.paths import unchecked_path as at
from paddock.workspace.workspace import Resolution

BYTES_MAX = 1_000_000_000
MODIFIED_NS = 1_700_000_000_000_000_000


class File(Struct, frozen=True, dict=True):
    content: bytes
    mode: int = 0o644
    modified_ns: int = MODIFIED_NS


class Folder(Struct, frozen=True, dict=True):
    mode: int = 0o755


class Link(Struct, frozen=True, dict=True):
    text: str


Node = File | Folder | Link
Model = Mapping[str, Node]


def lay_out(root: str | os.PathLike[str], model: Model) -> None:
    """Make `root` hold exactly this."""
    shutil.rmtree(root, ignore_errors=True)
    os.mkdir(root)
    for name in sorted(model):
        node, path = model[name], os.path.join(root, name)
        if isinstance(node, Folder):
            os.mkdir(path)
        elif isinstance(node, Link):
            os.symlink(node.text, path)
        else:
            Path(path).write_bytes(node.content)
            os.chmod(path, node.mode)
            os.utime(path, ns=(node.modified_ns, node.modified_ns))
    for name in sorted(model, reverse=True):
        node = model[name]
        if isinstance(node, Folder):
            os.chmod(os.path.join(root, name), node.mode)


def model_of(root: str | os.PathLike[str], only: Callable[[str], bool] = bool) -> dict[str, Node]:
    """What `root` holds, hidden temporaries included; of the names that `only` chooses."""
    found: dict[str, Node] = {}
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = os.path.join(folder, name)
            relative = os.path.relpath(path, root)
            if only(relative):
                found[relative] = node_of(path)
    return dict(sorted(found.items()))


def node_of(path: str | os.PathLike[str]) -> Node:
    status = os.lstat(path)
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return Link(os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return Folder(mode)
    return File(Path(path).read_bytes(), mode, status.st_mtime_ns)


def content(text: bytes) -> bytes:
    """New content, from memory."""
    return text


def seen(root: str | os.PathLike[str], name: str) -> Seen:
    """What stands there now."""
    return Seen(status_from(os.lstat(os.path.join(root, name))))


def creation(name: str, node: Node, old: Seen | Absent, objects: ObjectStore | None = None):
    if isinstance(node, Folder):
        return MakeDirectory(at(name), old, node.mode)
    if isinstance(node, Link):
        return MakeLink(at(name), node.text, old)
    source = content(node.content)
    if objects is not None:
        source = StoredContent(objects.put_bytes(node.content))
        objects.sync()
    return WriteFile(at(name), source, old, node.mode, node.modified_ns)


def changes_to(
    root: str | os.PathLike[str], new: Model, only: Callable[[str], bool] = bool
) -> list[StagedChange]:
    """The changes that make `root` hold exactly `new`, of the names that `only` chooses."""
    old = model_of(root, only)
    changes = [removal(root, name, old[name]) for name in sorted(old.keys() - new.keys())]
    for name in sorted(new):
        before, after = old.get(name), new[name]
        if before == after:
            continue
        if before is None:
            changes.append(creation(name, after, Absent()))
        elif isinstance(before, Folder) and isinstance(after, Folder):
            changes.append(SetMetadata(at(name), seen(root, name), after.mode))
        elif isinstance(before, Folder):
            changes += [removal(root, name, before), creation(name, after, Absent())]
        elif (
            isinstance(before, File) and isinstance(after, File) and before.content == after.content
        ):
            changes.append(SetMetadata(at(name), seen(root, name), after.mode, after.modified_ns))
        else:
            changes.append(creation(name, after, seen(root, name)))
    return changes


def removal(root: str | os.PathLike[str], name: str, node: Node) -> StagedChange:
    if isinstance(node, Folder):
        return RemoveDirectory(at(name), seen(root, name))
    return RemoveFile(at(name), seen(root, name))


@contextmanager
def memory_directory():
    """A directory in memory where there is such a place: thousands of syncs cost nothing there."""
    memory = "/dev/shm"
    usable = os.path.isdir(memory) and os.access(memory, os.W_OK | os.X_OK)
    with tempfile.TemporaryDirectory(dir=memory if usable else None, prefix="paddock-") as name:
        yield Path(name)


class Bench(Struct, dict=True):
    """A workspace with a store and a journal beside it."""

    base: Path
    workspace: Workspace
    objects: ObjectStore
    journal: Journal

    @property
    def root(self) -> Path:
        return self.base / "ws"

    def commit(self, *changes: StagedChange):
        return commit_changes(self.workspace, [changes], self.objects, self.journal, label="C-1")

    def become(self, model: Model):
        return self.commit(*changes_to(self.root, model))

    def entries(self) -> list[str]:
        """What stands in the journal."""
        return os.listdir(self.base / "journal")


@contextmanager
def open_bench(base: Path, disk: Disk | None = None, resolution: Resolution | None = None):
    """`base` has the workspace in `ws`; store and journal are made where they are missing."""
    used = disk or Disk()
    with ExitStack() as held:
        # The workspace first: what the sweep does on opening counts as the disk's first steps.
        workspace = held.enter_context(Workspace.open(str(base / "ws"), resolution, used))
        objects = held.enter_context(ObjectStore(str(base / "objects"), bytes_max=BYTES_MAX))
        journal = held.enter_context(Journal(str(base / "journal"), used))
        yield Bench(base, workspace, objects, journal)
