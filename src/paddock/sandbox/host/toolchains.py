"""The toolchains on PATH and in the workspace, with what their programs need beside them.

Told by what lies beside a program, never by running one: the parent of a directory of PATH has a
toolchain's marks, or only the directory, or the linked file, is readable. PATH is the operator's
word. A link that a command can have made is believed by its marks, or not at all.
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
    Resolver,
    Standing,
    Toolchain,
    is_below,
    is_changeable,
    is_covered,
    is_led_by,
)
from paddock.storage.atomic import read_file

# A mark counts where no command can have put it: neither it, nor a link on the way to it,
# stands in a place that commands change. Where all of the toolchain does, its marks open
# nothing that is not open anyway.

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
"""What each kind has beside its programs; the first kind whose marks are all there."""
_MORE_MARKS: Final = {"node": ("include/node/node.h",), "go": ("VERSION",)}
"""Without which a directory is not believed by its marks alone: a project may have a `bin/node`."""


PROGRAM_DIRECTORIES: Final = frozenset({"bin", "sbin", "shims", "condabin", "Scripts"})
BROAD: Final = (".local", ".config", ".cache", ".cargo", ".local/share", ".local/lib")
"""Below home: they hold far more than one toolchain, and tokens among it."""
OPTIONAL_ROOTS: Final = ("/opt", "/snap")
"""Where a directory with `bin` and `lib` in it is one installed program."""
SYSTEM: Final = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
WORKSPACE_ENVIRONMENTS: Final = (".venv", "venv")
STORES: Final = ("/nix/store",)
"""Where all is software, readable for everybody, and each program needs much of the rest."""

_LINKS_FOLLOWED_MAX: Final = 4_000
_ALONE_MAX: Final = 24
"""Linked files that belong to nothing known: each costs a backend a mount."""
_CONFIG_BYTES_MAX: Final = 65_536
_SHARED: Final = lazy_pattern(r"(.*/(?:uv/(?:tools|python)|pipx/venvs))/[^/]+")
"""One directory for all of uv's or pipx's: hundreds of tools would be hundreds of mounts."""


class FoundToolchain(Struct, frozen=True):
    search_path: tuple[Standing, ...]
    toolchains: tuple[Toolchain, ...]
    left_out: tuple[LeftOut, ...]


def find_toolchains(
    variables: Mapping[str, str],
    home: str,
    workspace: str,
    changeable: tuple[str, ...] = (),
    stores: tuple[str, ...] = STORES,
) -> FoundToolchain:
    """Look at PATH, VIRTUAL_ENV and the workspace's own environments; starts nothing.

    All paths are real; in `changeable` commands of this plane put what they like.
    """
    resolver = Resolver()
    search = _Search(home, workspace, variables, stores, (workspace, *changeable), resolver)
    directories: list[Standing] = []
    for asked in dict.fromkeys(variables.get("PATH", "").split(":")):
        standing = resolver.find(asked) if asked.startswith("/") else None
        if standing is None:
            continue
        why = _unsafe(standing.real)
        if why:
            search.left_out.append(LeftOut(asked, why))
            continue
        directories.append(standing)
        if not search.is_planted(standing):
            search.look_at(standing)
    for name in WORKSPACE_ENVIRONMENTS:
        search.add_base(f"{workspace}/{name}")
    environment = variables.get("VIRTUAL_ENV", "")
    if environment.startswith("/"):
        search.add_base(environment)
    # Behind the operator's own, which open much of what these lead to.
    believed = [each for each in directories if not search.is_planted(each) or search.believe(each)]
    return FoundToolchain(tuple(believed), tuple(search.found.values()), tuple(search.left_out))


class _Search(Struct):
    home: str
    workspace: str
    variables: Mapping[str, str]
    stores: tuple[str, ...]
    changeable: tuple[str, ...]
    """The workspace, too: where commands put what they like."""
    resolver: Resolver
    found: dict[str, Toolchain] = field(default_factory=dict[str, Toolchain])
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])
    seen: set[str] = field(default_factory=set[str])
    followed: int = 0
    alone: int = 0
    kinds: dict[str, str] = field(default_factory=dict[str, str])

    def has(self, place: str, name: str) -> bool:
        """Find whether it stands in the real `place`, and no command put it there for more."""
        standing = self.resolver.find(f"{place.rstrip('/')}/{name}")
        if standing is None:
            return False
        return is_covered(place, self.changeable) or not is_changeable(standing, self.changeable)

    def kind_of(self, place: str) -> str:
        if place not in self.kinds:
            self.kinds[place] = self._look(place)
        return self.kinds[place]

    def _look(self, place: str) -> str:
        if self.has(place, "installs") and self.has(place, "plugins"):
            return "asdf"
        for kind, marks in _MARKS:
            if all(self.has(place, mark) for mark in marks):
                return kind
        return "python" if self.is_python(place) else ""

    def believed_kind(self, place: str) -> str:
        """Return the kind where the marks alone are enough, whoever named the place; else empty.

        Threat: a command names any directory of the host. A toolchain holds nothing of anybody's; a
        virtual environment may be the root of a project, with all that lies in it.
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

    def is_planted(self, standing: Standing) -> bool:
        return is_led_by(standing.links, self.changeable)

    def look_at(self, standing: Standing) -> None:
        directory = standing.real
        if directory in self.seen:
            return
        self.seen.add(directory)
        if not self.is_planted(standing) and not self._is_open(directory):
            self.add("programs", self._place_of(directory) or directory, standing.links)
        self._rustup(directory)
        is_system = is_covered(directory, SYSTEM)
        for name in _linked_names(directory):
            path = f"{directory}/{name}"
            # Hundreds of links in /usr/bin lead to a neighbour, as most in a Python's bin do.
            if not (is_system and self.resolver.stays_in_system(path)):
                self._follow(path)

    def believe(self, standing: Standing) -> bool:
        """Threat: a command makes `.venv/bin` a link to a directory of the user's."""
        if not self._is_open(standing.real) and not self._add_by_marks(standing, standing.real):
            return False
        self.look_at(standing)
        return True

    def _add_by_marks(self, standing: Standing, directory: str) -> bool:
        if is_covered(standing.real, self.changeable):
            # It is the commands' own, or closed to them: as policy says, not as a link does.
            return True
        place, _, name = directory.rpartition("/")
        is_stored = is_covered(standing.real, self.stores)
        is_known = name in PROGRAM_DIRECTORIES and place != "" and not self._is_broad(place)
        if is_stored or (is_known and self.believed_kind(place)):
            self.add("programs", standing.real if is_stored else place, standing.links)
            return True
        if self.alone < _ALONE_MAX:
            self.alone += 1
            why = f"a link that commands can change leads to {standing.real}, which is no toolchain"
            self.left_out.append(LeftOut(standing.asked, why))
        return False

    def add(self, name: str, place: str, links: tuple[Link, ...] = ()) -> None:
        if self._is_open(place) or place in self.found:
            return
        kind = self.kind_of(place) or name
        readable = next((store for store in self.stores if is_below(place, store)), place)
        variables = ((_HOMES[kind], place),) if kind in _HOMES else ()
        self.found[place] = Toolchain(kind, (readable,), links, variables)
        if kind == "virtualenv":
            self.add_base(place)

    def add_base(self, environment: str) -> None:
        """Threat: the agent writes `pyvenv.cfg`: believe it only where Python's library is."""
        base = _base_of(environment)
        standing = self.resolver.find(base) if base else None
        if standing is None:
            return
        prefix = standing.real.rpartition("/")[0]
        if self._is_open(prefix):
            return
        is_known = self.is_python(prefix) and self.believed_kind(prefix)
        if not is_known or self._is_broad(prefix):
            self.left_out.append(LeftOut(prefix, f"no Python: {environment}/pyvenv.cfg names it"))
            return
        self.add("python", prefix, standing.links)

    def _is_open(self, place: str) -> bool:
        listed = [toolchain.readable[0] for toolchain in self.found.values()]
        return is_covered(place, (*SYSTEM, self.workspace, *listed))

    def _place_of(self, directory: str) -> str | None:
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
        standing = self.resolver.find(path)
        if standing is None:
            return
        if self._is_open(standing.real):
            self._add_links(standing)
            return
        directory = standing.real.rpartition("/")[0]
        if self.is_planted(standing):
            self._add_by_marks(standing, directory)
            return
        shared = _SHARED.match(standing.real)
        place = None if shared is None else shared[1]
        if shared is not None:
            self.add_base(shared[0])
        place = place or self._place_of(directory)
        if place is not None:
            self.add("programs", place, standing.links)
            return
        if self.alone >= _ALONE_MAX:
            self.left_out.append(LeftOut(path, f"more than {_ALONE_MAX} links to single files"))
            return
        self.alone += 1
        self.add("program", standing.real, standing.links)

    def _add_links(self, standing: Standing) -> None:
        links = tuple(link for link in standing.links if not self._is_open(link[0]))
        for place, toolchain in self.found.items() if links else ():
            if is_covered(standing.real, toolchain.readable):
                every = dict.fromkeys((*toolchain.links, *links))
                self.found[place] = replace(toolchain, links=tuple(every))
                return

    def _rustup(self, directory: str) -> None:
        if not Path(directory, "rustup").exists():
            return
        asked = self.variables.get("RUSTUP_HOME") or f"{self.home}/.rustup"
        standing = self.resolver.find(asked)
        if standing is None or self.is_planted(standing):
            return
        if Path(standing.real, "toolchains").exists():
            self.add("rustup", standing.real, standing.links)


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


def _unsafe(directory: str) -> str:
    try:
        status = Path(directory).stat()
    except OSError:
        return "it cannot be reached"
    if not stat.S_ISDIR(status.st_mode):
        return "it is no directory"
    # Threat: anyone may put a `git` there. The sticky bit keeps files, not names.
    return "everybody may write there" if status.st_mode & stat.S_IWOTH else ""


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
