"""What a line of shell is, as policy sees it."""

from dataclasses import dataclass, field
from typing import Final

from paddock.policy.commands.words import Word

SYSTEM_DIRECTORIES: Final = ("/bin/", "/usr/bin/", "/usr/local/bin/", "/sbin/", "/usr/sbin/")
"""A program in one of these, by its full path, is the program by its name."""


def program_name(path: str) -> str:
    """Return the last component of a program's path; the path itself where it ends in a slash."""
    return path.rpartition("/")[2] or path


def exact_program(path: str) -> str:
    """Return the name of a program in a system directory; any other path as it is.

    Threat: a file in the workspace that is named like an allowed program.
    """
    directory, slash, name = path.rpartition("/")
    return name if directory + slash in SYSTEM_DIRECTORIES else path


@dataclass(frozen=True, slots=True)
class Sift:
    """What becomes of what find finds below `start`, where all its tests hold.

    `act` is an operation of `tool:file:`; with `target` the files come to stand in that.
    """

    act: str
    start: str
    tests: tuple[tuple[str, str], ...]
    target: str = ""


@dataclass(slots=True)
class Touch:
    """The paths that a command touches, as they stand in it.

    `copied` are sources with the target that they, or what is below them, come to stand in.
    `doubts` are reasons to ask.
    """

    written: list[str] = field(default_factory=list[str])
    removed: list[str] = field(default_factory=list[str])
    copied: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    doubts: list[str] = field(default_factory=list[str])
    sifted: list[Sift] = field(default_factory=list[Sift])
    reads: list[str] = field(default_factory=list[str])
    makes_link: bool = False

    def add(self, other: "Touch") -> None:
        for name in ("written", "removed", "copied", "doubts", "sifted", "reads"):
            getattr(self, name).extend(getattr(other, name))
        self.makes_link |= other.makes_link


@dataclass(frozen=True, slots=True)
class Reading:
    """One way to read a command: `head`, then `words` from `start` to `end`."""

    words: tuple[Word, ...]
    start: int
    end: int
    head: tuple[Word, ...] = ()

    def __len__(self) -> int:
        return len(self.head) + self.end - self.start

    def first(self, count: int) -> tuple[Word, ...]:
        """Return the first `count` words at most."""
        if len(self.head) >= count:
            return self.head[:count]
        stop = min(self.end, self.start + count - len(self.head))
        return self.head + self.words[self.start : stop]

    def all_words(self) -> tuple[Word, ...]:
        """Return every word of the reading."""
        return self.first(len(self))


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """One simple command of a line.

    `text` is its source, `words` its words in order, `assignments` what stands
    before them. `readings` are the ways that deny and ask read it, the words as
    they stand first. `starts` are the places in `words` where a program's name
    stands: 0, and what wrappers start. `obstacles` say why no narrow allow may
    match it, whatever its words are; empty where one may. `is_anything` stands
    for what was too much to be read: any deny and any ask concerns it.
    `is_open` says that further words come at run time, behind those that stand there.
    `touch` is what its words name, `writes` the targets of its redirections.
    One that `is_neutral` needs no rule beside commands that rules name; one that `is_moved`
    may run in another directory of the workspace than the line.
    """

    text: str
    words: tuple[Word, ...]
    assignments: tuple[str, ...] = ()
    readings: tuple[Reading, ...] = ()
    starts: tuple[int, ...] = (0,)
    obstacles: tuple[str, ...] = ()
    is_anything: bool = False
    is_open: bool = False
    touch: Touch = field(default_factory=Touch, compare=False)
    writes: tuple[str, ...] = ()
    is_neutral: bool = False
    is_moved: bool = False

    @property
    def program(self) -> str:
        """The first word: the program as it is named in the line."""
        return self.words[0].text


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A line of shell, taken apart.

    `commands` are its simple commands in source order: of pipelines, lists,
    groups, compound commands, functions, substitutions and here-documents, and
    those of scripts given as text (`sh -c '…'`). What a wrapper such as `env`
    starts is a reading of the wrapper's command, not another command.

    `writes` are the targets of redirections, `reads` their sources; `touched` the further
    targets that can be read off known programs (`tee`, `sed -i`, `cp`), `removed` what known
    programs take away (`rm`, what `mv` moves), `copied` sources with their targets; all as they
    stand in the line, unresolved. `runtime_only` sentences say what is only known at
    run time, `problems` why the line was not understood: no narrow allow matches either.
    A line with a problem has one of each. Where `may_be_any`, what is not known may be
    any program; else only words of the programs that stand there are not known. `doubts`
    are those of `runtime_only` that are about files which a known program may change.
    `bound` names the limit over which the line was not read on, `moves` the directories of
    the workspace that the line changes to.
    """

    text: str
    commands: tuple[SimpleCommand, ...] = ()
    writes: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    copied: tuple[tuple[str, str], ...] = ()
    runtime_only: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    may_be_any: bool = False
    doubts: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    bound: str = ""
    moves: tuple[str, ...] = ()

    @property
    def wanted(self) -> tuple[SimpleCommand, ...]:
        """The commands that a rule has to name for the line to be allowed."""
        return tuple(each for each in self.commands if not each.is_neutral) or self.commands
