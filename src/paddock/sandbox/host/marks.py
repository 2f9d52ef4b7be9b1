"""What lies beside a toolchain's programs, by which it is told from any other directory.

A mark counts where no command can have put it: neither it, nor a link on the way to it,
stands in a place that commands change. Where all of the toolchain does, its marks open
nothing that is not open anyway.
"""

import os
from dataclasses import dataclass, field
from typing import Final

from paddock.sandbox.host.places import is_changeable, is_covered
from paddock.sandbox.host.standing import Resolver

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


@dataclass(slots=True)
class Marks:
    """Looks for marks; `changeable` are the real places where commands put what they like."""

    resolver: Resolver
    changeable: tuple[str, ...]
    _kinds: dict[str, str] = field(default_factory=dict[str, str])

    def has(self, place: str, name: str) -> bool:
        """Whether `name` stands in the real `place`, and no command put it there for more."""
        standing = self.resolver.find(f"{place.rstrip('/')}/{name}")
        if standing is None:
            return False
        return is_covered(place, self.changeable) or not is_changeable(standing, self.changeable)

    def kind_of(self, place: str) -> str:
        """The kind of toolchain at a real place; empty for none."""
        if place not in self._kinds:
            self._kinds[place] = self._look(place)
        return self._kinds[place]

    def believed_kind(self, place: str) -> str:
        """The kind where the marks alone are enough, whoever named the place; empty otherwise.

        Threat: a command names any directory of the host. A toolchain is the same
        everywhere and holds nothing of anybody's; a virtual environment may be the root
        of a project, with all that lies in it.
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

    def _look(self, place: str) -> str:
        if self.has(place, "installs") and self.has(place, "plugins"):
            return "asdf"
        for kind, marks in _MARKS:
            if all(self.has(place, mark) for mark in marks):
                return kind
        return "python" if self.is_python(place) else ""
