"""Where a path with links leads, found out component by component.

The answer is a path without links. It is a finding, not a permission: policy judges it,
and it is then opened again without passing any link, so that a swap between the two
makes the second one fail and nothing else.

Rules kept here:
  * each component is looked at under the descriptor of the one before;
  * a link's text is resolved as the kernel would, but from the held root: an absolute
    one must begin with one of the root's names, `..` may not climb above the root;
  * `..` after a link means the parent of where the link led; else it is a matter of text;
  * behind something that is missing, or is no directory, the rest is a matter of text.
"""

import errno
import os
import stat
from dataclasses import dataclass, field

from paddock import limits
from paddock.errors import InvalidPathError
from paddock.text.show import quote
from paddock.workspace.names import WorkspacePath, join_parts
from paddock.workspace.paths import (
    AskedPath,
    check_link_text,
    check_names,
    components,
    escapes_root,
)
from paddock.workspace.resolution import PASS_DIRECTORY


@dataclass(frozen=True, slots=True)
class Found:
    """What a path came to."""

    asked: WorkspacePath
    real: WorkspacePath
    mode: int
    """Kind and permissions of what stands at `real`; 0 where nothing does."""
    through_link: bool
    """A component before the last one is a link."""
    ends_in_link: bool
    """The last component is a link."""

    @property
    def exists(self) -> bool:
        """Whether something stands at `real`."""
        return self.mode != 0

    @property
    def is_directory(self) -> bool:
        """Whether a directory stands at `real`."""
        return stat.S_ISDIR(self.mode)


def find_real(root_fd: int, asked: AskedPath, roots: tuple[str, ...], *, last: bool) -> Found:
    """Where `asked` leads under `root_fd`; a link in the last place is followed if `last`.

    Raises:
        PathTraversalError: it leads out of the root, by `..` or by a link.
        InvalidPathError: more links than limits.link_hops_max, or one that no
            workspace path can name.
        OSError: a directory on the way cannot be searched, or the disk fails.
    """
    trail = _Trail(root_fd, asked, roots, follow_last=last)
    try:
        return trail.walk()
    finally:
        trail.close()


@dataclass(slots=True)
class _Trail:
    """The state of one walk. `held[i]` is the directory of `real[:i]`; `held[0]` is not ours."""

    root_fd: int
    path: AskedPath
    roots: tuple[str, ...]
    follow_last: bool
    asked: list[str] = field(default_factory=list[str])
    real: list[str] = field(default_factory=list[str])
    held: list[int] = field(default_factory=list[int])
    pending: list[str] = field(default_factory=list[str])
    hops: int = 0
    mode: int = stat.S_IFDIR
    through_link: bool = False
    ends_in_link: bool = False

    def walk(self) -> Found:
        self.held.append(self.root_fd)
        for index, name in enumerate(self.path.parts):
            self._step_asked(name, is_last=index == len(self.path.parts) - 1)
        return Found(
            asked=join_parts(self.asked),
            real=join_parts(self.real),
            mode=self.mode,
            through_link=self.through_link,
            ends_in_link=self.ends_in_link,
        )

    def close(self) -> None:
        for fd in self.held[1:]:
            os.close(fd)
        self.held.clear()

    def _step_asked(self, name: str, *, is_last: bool) -> None:
        if name == "..":
            self._climb()
            # After a link the text that was asked for says nothing more: start from what is real.
            self.asked = list(self.real) if self.through_link else self.asked[:-1]
            return
        self.asked.append(name)
        hops = self.hops
        self.pending = [name]
        while self.pending:
            part = self.pending.pop()
            if part == "..":
                self._climb()
            else:
                self._descend(part, follow=self.follow_last or not is_last)
        if self.hops > hops or stat.S_ISLNK(self.mode):
            self.ends_in_link = is_last
            self.through_link = self.through_link or not is_last

    def _climb(self) -> None:
        if not self.real:
            raise escapes_root(self.path.text)
        self.real.pop()
        while len(self.held) > len(self.real) + 1:
            os.close(self.held.pop())
        # The parent of something missing may be missing as well.
        self.mode = stat.S_IFDIR if len(self.held) == len(self.real) + 1 else 0

    def _descend(self, name: str, *, follow: bool) -> None:
        here = self._here()
        self.mode = 0 if here is None else _mode_of(name, here)
        if here is not None and stat.S_ISLNK(self.mode) and follow:
            self._turn(os.readlink(name, dir_fd=here))
            return
        self.real.append(name)

    def _here(self) -> int | None:
        """The descriptor of the directory `real`, None where there is none."""
        missing = len(self.real) + 1 - len(self.held)
        if missing == 1 and stat.S_ISDIR(self.mode):
            flags = PASS_DIRECTORY | os.O_NOFOLLOW
            self.held.append(os.open(self.real[-1], flags, dir_fd=self.held[-1]))
            missing = 0
        return self.held[-1] if missing == 0 else None

    def _turn(self, target: str) -> None:
        self.hops += 1
        if self.hops > limits.link_hops_max:
            raise InvalidPathError(
                f"path {quote(self.path.text)} passes more than {limits.link_hops_max} links",
                hint="they may lead to each other in a circle; use a path without them",
            )
        check_link_text(self.path.text, target)
        parts = components(target)
        if target.startswith("/"):
            parts = self._below_root(parts)
            while self.real:
                self._climb()
        check_names(self.path.text, tuple(part for part in parts if part != ".."))
        self.mode = stat.S_IFDIR
        self.pending.extend(reversed(parts))

    def _below_root(self, parts: tuple[str, ...]) -> tuple[str, ...]:
        for root in self.roots:
            base = components(root)
            if parts[: len(base)] == base:
                return parts[len(base) :]
        raise escapes_root(self.path.text)


def _mode_of(name: str, dir_fd: int) -> int:
    """The kind of an entry; 0 where there is none."""
    try:
        return os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mode
    except OSError as failure:
        if failure.errno in (errno.ENOENT, errno.ENAMETOOLONG):
            return 0
        raise
