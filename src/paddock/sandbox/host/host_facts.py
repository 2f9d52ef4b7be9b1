"""What a plan has to know of the host, as values: found by `facts`, read by `plan`. Pure.

Every path is absolute. A *real* path has no link in it; an *asked* one is what
policy or PATH says, and `links` are those that lead from one to the other.
"""

from dataclasses import dataclass

from paddock.policy.settings import SYSTEM_READ

Link = tuple[str, str]
"""(absolute name of a link, the text in it)."""


@dataclass(frozen=True, slots=True)
class Standing:
    asked: str
    real: str
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Closed:
    """A real path that no command may reach, and what stands there, in words."""

    path: str
    what: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A place that was asked for, or found, and is not in the plan: and why."""

    path: str
    why: str


@dataclass(frozen=True, slots=True)
class Toolchain:
    name: str
    readable: tuple[str, ...]
    links: tuple[Link, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    """Without which its programs look for it in the home directory."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a directory holds; asked for only where something in it has to be left out."""

    directory: str
    names: tuple[str, ...]
    links: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class GitOutside:
    """A git directory outside of the workspace whose repository the workspace belongs to."""

    common: str
    """The real path of the directory with objects, refs and configuration."""
    own: str = ""
    """Of a linked worktree: what of it is the worktree's alone (`worktrees/NAME`)."""
    folder: str = ""
    """What the workspace is of the work tree (`packages/a`); empty where it is all of it."""
    pointer: str = ""
    """A file `.git` above the workspace that leads to it; empty where there is none."""
    links: tuple[Link, ...] = ()
    """By which that file, or the workspace's own, leads there."""
    is_sparse: bool = False

    @property
    def index(self) -> str:
        return self.beside_index("index")

    def beside_index(self, name: str) -> str:
        return f"{self.own}/{name}" if self.own else name


@dataclass(frozen=True, slots=True)
class GitFilter:
    """A filter of gitattributes(5) as git's configuration on the host has it."""

    name: str
    is_own: bool
    """Some of it stands in the repository's own configuration, which a command sees."""
    lines: tuple[tuple[str, str], ...]
    """`clean`, `smudge` or `process`, and the command line."""
    programs: tuple[tuple[str, ...], ...]
    """For each line where its program may be: real paths, in the order of PATH."""


@dataclass(frozen=True, slots=True)
class GitFacts:
    """What git on the host is set up to do in the workspace, vetted: see `git_settings`."""

    values: tuple[tuple[str, str], ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    filters: tuple[GitFilter, ...] = ()
    filter_names: tuple[str, ...] = ()
    """That attributes name, whether anybody has a filter for them or not."""
    ignored: str = ""
    attributes: str = ""
    own_keys: tuple[str, ...] = ()
    is_signing: bool = False
    left_out: tuple[LeftOut, ...] = ()


@dataclass(frozen=True, slots=True)
class HostFacts:
    workspace: str
    home: str
    """Real, of the user who runs Paddock. Never readable as such."""
    standing: tuple[Standing, ...] = ()
    """What exists of what any agent of the chain may read or write by policy."""
    search_path: tuple[Standing, ...] = ()
    toolchains: tuple[Toolchain, ...] = ()
    closed: tuple[Closed, ...] = ()
    """The plane, Paddock's state and configuration, other agents' workspaces."""
    listings: tuple[Listing, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    changeable: tuple[str, ...] = ()
    """Real places besides the workspace in which a command of this plane can put what it
    likes, a link among it."""
    left_out: tuple[LeftOut, ...] = ()
    git_outside: GitOutside | None = None
    git: GitFacts = GitFacts()
    memory_mb: int = 0
    """What the machine has."""
    caches: str = ""
    """Where what commands of this workspace cache lies, real; empty for nowhere."""
    downloads: tuple[str, ...] = ()
    """Of the user's own, real, what holds downloads and nothing else."""


SYSTEM_PATHS = frozenset(SYSTEM_READ)
"""Of these nobody has to be told that one is not there."""
