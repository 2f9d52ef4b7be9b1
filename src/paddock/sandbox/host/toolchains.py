"""Detect the toolchains on PATH and in the workspace, and the directories that they need.

A toolchain is detected by marker files next to a program, never by running it. If the parent of a
PATH directory has no markers, only that directory, or the linked file, is readable. PATH is trusted
as the operator's setting. A link that a command may have created is followed only to a directory
with a toolchain's markers.
"""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from paddock.errors import PaddockError
from paddock.pattern import lazy_pattern
from paddock.sandbox.host.host_facts import (
    LeftOut,
    Link,
    ResolvedPath,
    Resolver,
    Toolchain,
    is_below,
    is_changeable,
    is_covered,
    is_led_by,
)
from paddock.storage.atomic import read_file

# A marker counts only if no command can have created it: neither it nor a link to it may be in a
# directory that commands can change, unless the whole toolchain is there: then its markers make
# nothing readable that was not readable before.

_MARKS: Final = (
    ("pyenv", ("versions", "shims", "plugins/python-build")),
    ("rbenv", ("versions", "shims", "libexec/rbenv")),
    ("mise", ("installs", "shims")),
    ("homebrew", ("Cellar", "opt")),
    ("conda", ("conda-meta",)),
    ("virtualenv", ("pyvenv.cfg",)),
    ("rustup", ("toolchains", "settings.toml")),
    ("rust", ("lib/rustlib",)),
    ("node", ("bin/node",)),
    ("go", ("pkg", "src/runtime")),
    ("java", ("release", "lib/modules")),
)
"""The marker files of each kind; the first kind whose markers all exist counts."""
_MORE_MARKS: Final = {"node": ("include/node/node.h",), "go": ("VERSION",)}
"""Required in addition if a command may have chosen the path: a project may have a `bin/node`."""


PROGRAM_DIRECTORIES: Final = frozenset({"bin", "sbin", "shims", "condabin", "Scripts"})
BROAD: Final = (".local", ".config", ".cache", ".cargo", ".local/share", ".local/lib")
"""Directories below home that contain far more than one toolchain, including tokens."""
OPTIONAL_ROOTS: Final = ("/opt", "/snap")
"""Below these a directory with `bin` and `lib` is an installed program."""
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
WORKSPACE_ENVIRONMENTS: Final = (".venv", "venv")
STORES: Final = ("/nix/store",)
"""World-readable software directories, in which each program needs many of the others."""

_LINKS_FOLLOWED_MAX: Final = 4_000
_FILES_MAX: Final = 24
"""Limit of linked files outside known toolchains: each costs a backend a mount."""
_CONFIG_BYTES_MAX: Final = 65_536
_SHARED: Final = lazy_pattern(r"(.*/(?:uv/(?:tools|python)|pipx/venvs))/[^/]+")
"""One directory for all tools of uv or pipx: hundreds of tools would need hundreds of mounts."""


class FoundToolchain(Struct, frozen=True):
    search_path: tuple[ResolvedPath, ...]
    toolchains: tuple[Toolchain, ...]
    left_out: tuple[LeftOut, ...]


def find_toolchains(
    variables: Mapping[str, str],
    home: str,
    workspace: str,
    changeable: tuple[str, ...] = (),
    stores: tuple[str, ...] = STORES,
) -> FoundToolchain:
    """Inspect PATH, VIRTUAL_ENV and the workspace's environments, without starting a program.

    All paths are real; commands of this plane can write in `changeable`.
    """
    resolver = Resolver()
    search = _Search(home, workspace, variables, stores, (workspace, *changeable), resolver)
    directories: list[ResolvedPath] = []
    for asked in dict.fromkeys(variables.get("PATH", "").split(":")):
        resolved = resolver.find(asked) if asked.startswith("/") else None
        if resolved is None:
            continue
        why = _why_unsafe(resolved.real)
        if why:
            search.left_out.append(LeftOut(asked, why))
            continue
        directories.append(resolved)
        if not search.is_planted(resolved):
            search.inspect(resolved)
    for name in WORKSPACE_ENVIRONMENTS:
        search.add_base(f"{workspace}/{name}")
    environment = variables.get("VIRTUAL_ENV", "")
    if environment.startswith("/"):
        search.add_base(environment)
    # After the operator's directories, which make many of these readable already.
    accepted = [
        each for each in directories if not search.is_planted(each) or search.accept_planted(each)
    ]
    return FoundToolchain(tuple(accepted), tuple(search.found.values()), tuple(search.left_out))


class _Search(Struct):
    home: str
    workspace: str
    variables: Mapping[str, str]
    stores: tuple[str, ...]
    changeable: tuple[str, ...]
    """Directories that commands can write, including the workspace."""
    resolver: Resolver
    found: dict[str, Toolchain] = field(default_factory=dict[str, Toolchain])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    seen: set[str] = field(default_factory=set[str])
    followed: int = 0
    single_files: int = 0
    kinds: dict[str, str] = field(default_factory=dict[str, str])

    def has(self, place: str, name: str) -> bool:
        """Return True if `place` has the entry, and no command created it to widen its access."""
        resolved = self.resolver.find(f"{place.rstrip('/')}/{name}")
        if resolved is None:
            return False
        return is_covered(place, self.changeable) or not is_changeable(resolved, self.changeable)

    def kind_of(self, place: str) -> str:
        if place not in self.kinds:
            self.kinds[place] = self._detect_kind(place)
        return self.kinds[place]

    def _detect_kind(self, place: str) -> str:
        if self.has(place, "installs") and self.has(place, "plugins"):
            return "asdf"
        for kind, marks in _MARKS:
            if all(self.has(place, mark) for mark in marks):
                return kind
        return "python" if self.is_python(place) else ""

    def kind_by_marks(self, place: str) -> str:
        """Return the kind if its markers suffice, even if a command chose the path; else empty.

        Threat: a command can name any directory of the host. A toolchain contains no private data;
        a virtual environment may be a project's root, with all its files.
        """
        kind = self.kind_of(place)
        if kind == "virtualenv":
            return ""
        return kind if all(self.has(place, mark) for mark in _MORE_MARKS.get(kind, ())) else ""

    def is_python(self, place: str) -> bool:
        try:
            with os.scandir(f"{place}/lib") as entries:
                names = [entry.name for entry in entries if entry.name.startswith("python3")]
        except OSError:
            return False
        return any(self.has(place, f"lib/{name}/os.py") for name in names)

    def is_planted(self, resolved: ResolvedPath) -> bool:
        return is_led_by(resolved.links, self.changeable)

    def inspect(self, resolved: ResolvedPath) -> None:
        directory = resolved.real
        if directory in self.seen:
            return
        self.seen.add(directory)
        if not self.is_planted(resolved) and not self._is_readable(directory):
            self.add("programs", self._root_of(directory) or directory, resolved.links)
        self._rustup(directory)
        is_system = is_covered(directory, SYSTEM)
        for name in _linked_names(directory):
            path = f"{directory}/{name}"
            # Hundreds of links in /usr/bin stay in it, like most links in a Python's bin.
            if not (is_system and self.resolver.stays_in_system(path)):
                self._follow(path)

    def accept_planted(self, resolved: ResolvedPath) -> bool:
        """Threat: a command can make `.venv/bin` a link to a directory of the user."""
        if not self._is_readable(resolved.real) and not self._add_by_marks(resolved, resolved.real):
            return False
        self.inspect(resolved)
        return True

    def _add_by_marks(self, resolved: ResolvedPath, directory: str) -> bool:
        if is_covered(resolved.real, self.changeable):
            # Policy already decides whether commands can read it; the link changes nothing.
            return True
        place, _, name = directory.rpartition("/")
        is_stored = is_covered(resolved.real, self.stores)
        is_known = name in PROGRAM_DIRECTORIES and place != "" and not self._is_broad(place)
        if is_stored or (is_known and self.kind_by_marks(place)):
            self.add("programs", resolved.real if is_stored else place, resolved.links)
            return True
        if self.single_files < _FILES_MAX:
            self.single_files += 1
            why = f"a link that commands can change leads to {resolved.real}, not a toolchain"
            self.left_out.append(LeftOut(resolved.asked, why))
        return False

    def add(self, name: str, place: str, links: tuple[Link, ...] = ()) -> None:
        if self._is_readable(place) or place in self.found:
            return
        kind = self.kind_of(place) or name
        readable = next((store for store in self.stores if is_below(place, store)), place)
        variables = ((_HOMES[kind], place),) if kind in _HOMES else ()
        self.found[place] = Toolchain(kind, (readable,), links, variables)
        if kind == "virtualenv":
            self.add_base(place)

    def add_base(self, environment: str) -> None:
        """Threat: the agent can write `pyvenv.cfg`: accept it only if Python's library is there."""
        base = _base_of(environment)
        resolved = self.resolver.find(base) if base else None
        if resolved is None:
            return
        prefix = resolved.real.rpartition("/")[0]
        if self._is_readable(prefix):
            return
        is_known = self.is_python(prefix) and self.kind_by_marks(prefix)
        if not is_known or self._is_broad(prefix):
            why = f"not a Python installation, but {environment}/pyvenv.cfg names it"
            self.left_out.append(LeftOut(prefix, why))
            return
        self.add("python", prefix, resolved.links)

    def _is_readable(self, place: str) -> bool:
        listed = [toolchain.readable[0] for toolchain in self.found.values()]
        return is_covered(place, (*SYSTEM, self.workspace, *listed))

    def _root_of(self, directory: str) -> str | None:
        parent, _, name = directory.rpartition("/")
        if name not in PROGRAM_DIRECTORIES or not parent or self._is_broad(parent):
            return None
        if self.kind_of(parent):
            return parent
        is_installed = any(is_below(parent, root) and parent != root for root in OPTIONAL_ROOTS)
        return parent if is_installed and self.has(parent, "lib") else None

    def _is_broad(self, place: str) -> bool:
        return is_below(self.home, place) or place in [f"{self.home}/{name}" for name in BROAD]

    def _follow(self, path: str) -> None:
        if self.followed >= _LINKS_FOLLOWED_MAX:
            return
        self.followed += 1
        resolved = self.resolver.find(path)
        if resolved is None:
            return
        if self._is_readable(resolved.real):
            self._add_links(resolved)
            return
        directory = resolved.real.rpartition("/")[0]
        if self.is_planted(resolved):
            self._add_by_marks(resolved, directory)
            return
        shared = _SHARED.match(resolved.real)
        place = None if shared is None else shared[1]
        if shared is not None:
            self.add_base(shared[0])
        place = place or self._root_of(directory)
        if place is not None:
            self.add("programs", place, resolved.links)
            return
        if self.single_files >= _FILES_MAX:
            self.left_out.append(LeftOut(path, f"more than {_FILES_MAX} links to single files"))
            return
        self.single_files += 1
        self.add("program", resolved.real, resolved.links)

    def _add_links(self, resolved: ResolvedPath) -> None:
        links = tuple(link for link in resolved.links if not self._is_readable(link[0]))
        for place, toolchain in self.found.items() if links else ():
            if is_covered(resolved.real, toolchain.readable):
                every = dict.fromkeys((*toolchain.links, *links))
                self.found[place] = replace(toolchain, links=tuple(every))
                return

    def _rustup(self, directory: str) -> None:
        if not Path(directory, "rustup").exists():
            return
        asked = self.variables.get("RUSTUP_HOME") or f"{self.home}/.rustup"
        resolved = self.resolver.find(asked)
        if resolved is None or self.is_planted(resolved):
            return
        if Path(resolved.real, "toolchains").exists():
            self.add("rustup", resolved.real, resolved.links)


_HOMES: Final = {
    "rustup": "RUSTUP_HOME",
    "pyenv": "PYENV_ROOT",
    "rbenv": "RBENV_ROOT",
    "asdf": "ASDF_DATA_DIR",
    "mise": "MISE_DATA_DIR",
}


def _linked_names(directory: str) -> list[str]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if entry.is_symlink())
    except OSError:
        return []


def _why_unsafe(directory: str) -> str:
    try:
        status = Path(directory).stat()
    except OSError:
        return "it cannot be reached"
    if not stat.S_ISDIR(status.st_mode):
        return "it is not a directory"
    # Threat: any user may put a `git` there. The sticky bit protects files, not names.
    return "it is world-writable" if status.st_mode & stat.S_IWOTH else ""


def _base_of(environment: str) -> str | None:
    """Read `home` of `pyvenv.cfg`: the base interpreter's directory. No link is followed."""
    try:
        content = read_file(Path(environment, "pyvenv.cfg"), _CONFIG_BYTES_MAX) or b""
    except PaddockError:
        return None
    for line in content.decode("utf-8", "replace").splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "home" and value.strip().startswith("/"):
            return value.strip()
    return None
