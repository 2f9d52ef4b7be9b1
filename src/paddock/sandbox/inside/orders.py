"""What the launcher is told and what it answers: flat records and their bytes.

NULs separate: a field is its number of items, then the items.
"""

from __future__ import annotations


class Base:
    """What a sandbox is made from, before anybody knows its command.

    Paths are absolute, of the host. The overlay appears at `workspace`; `stage` is made for the
    layers; `hidden` is a directory of whiteouts, or empty. At `git` a second overlay appears over a
    git directory outside, `git_shown` with what it shows there; `git_pointer` is a file that leads
    there, and where to. `home` is private. By turns: `links` names with texts, `files` names below
    `home` with contents. `caches` appears in `home`, `b"read"` behind it: read-only. `sockets`
    (0 or 1): unix sockets with a path.
    """

    __slots__ = (
        *("caches", "cpu_s", "file_mb", "files", "git", "git_pointer", "git_shown", "hidden"),
        *("home", "links", "memory_mb", "network", "processes", "readable", "stage", "workspace"),
        *("sockets", "writable"),
    )

    def __init__(
        self,
        *,
        workspace: bytes,
        stage: bytes,
        hidden: bytes,
        git: bytes,
        git_shown: bytes,
        git_pointer: list[bytes],
        home: bytes,
        network: bytes,
        readable: list[bytes],
        writable: list[bytes],
        links: list[bytes],
        files: list[bytes],
        caches: list[bytes],
        processes: int,
        memory_mb: int,
        file_mb: int,
        cpu_s: int,
        sockets: int = 0,
    ) -> None:
        self.workspace = workspace
        self.stage = stage
        self.hidden = hidden
        self.git = git
        self.git_shown = git_shown
        self.git_pointer = git_pointer
        self.home = home
        self.network = network
        self.readable = readable
        self.writable = writable
        self.links = links
        self.files = files
        self.caches = caches
        self.processes = processes
        self.memory_mb = memory_mb
        self.file_mb = file_mb
        self.cpu_s = cpu_s
        self.sockets = sockets

    def encode(self) -> bytes:
        texts = (self.workspace, self.stage, self.hidden, self.git, self.git_shown)
        texts += (self.home, self.network)
        numbers = (self.processes, self.memory_mb, self.file_mb, self.cpu_s, self.sockets)
        lists = [self.readable, self.writable, self.links, self.files, self.caches]
        lists.append(self.git_pointer)
        return _encode([[*texts, *(b"%d" % number for number in numbers)], *lists])

    @classmethod
    def decode(cls, content: bytes) -> Base:
        scalars, readable, writable, links, files, caches, git_pointer = _decode(content, 7)
        workspace, stage, hidden, git, git_shown, home, network, *numbers = scalars
        processes, memory_mb, file_mb, cpu_s, sockets = map(int, numbers)
        return cls(
            workspace=workspace,
            stage=stage,
            hidden=hidden,
            git=git,
            git_shown=git_shown,
            git_pointer=git_pointer,
            home=home,
            network=network,
            readable=readable,
            writable=writable,
            links=links,
            files=files,
            caches=caches,
            processes=processes,
            memory_mb=memory_mb,
            file_mb=file_mb,
            cpu_s=cpu_s,
            sockets=sockets,
        )


class Start:
    __slots__ = ("argv", "directory", "environment", "timeout_ms")

    def __init__(
        self, *, directory: bytes, timeout_ms: int, argv: list[bytes], environment: list[bytes]
    ) -> None:
        self.directory = directory
        self.timeout_ms = timeout_ms
        self.argv = argv
        self.environment = environment

    def encode(self) -> bytes:
        return _encode([[self.directory, b"%d" % self.timeout_ms], self.argv, self.environment])

    @classmethod
    def decode(cls, content: bytes) -> Start:
        scalars, argv, environment = _decode(content, 3)
        directory, timeout_ms = scalars
        return cls(
            directory=directory, timeout_ms=int(timeout_ms), argv=argv, environment=environment
        )


EXITED = b"exited"
TIMED_OUT = b"timed out"
CANCELLED = b"cancelled"
MEMORY = b"out of memory"
NOT_STARTED = b"not started"
NOT_CONFINED = b"not confined"
"""The sandbox itself could not be made; nothing ran."""

ENDED_IN = b"/run/ended-in"
"""In a sandbox: where a command's shell writes the directory in which it ends, if it is told to."""

UNHELD = "unheld"
"""To a keeper, in place of a rule set's and a filter's descriptor: nothing holds the command."""


class CommandReport:
    """How it ended: `status` as wait(2) gives it.

    `where` and `code` (an errno) say what failed; for EXITED `where` is what the command wrote to
    `ENDED_IN`. `unreached`: how often its network had no way to where it wanted.
    """

    __slots__ = ("code", "ending", "memory_kb", "status", "survivors", "unreached", "where")

    def __init__(
        self,
        ending: bytes,
        *,
        status: int = 0,
        survivors: int = 0,
        memory_kb: int = 0,
        code: int = 0,
        where: bytes = b"",
        unreached: int = 0,
    ) -> None:
        self.unreached = unreached
        self.ending = ending
        self.status = status
        self.survivors = survivors
        self.memory_kb = memory_kb
        self.code = code
        self.where = where

    def encode(self) -> bytes:
        numbers = (self.status, self.survivors, self.memory_kb, self.code, self.unreached)
        where = self.where.replace(b"\0", b" ")
        return _encode([[self.ending, where, *(b"%d" % number for number in numbers)]])

    @classmethod
    def decode(cls, content: bytes) -> CommandReport:
        (scalars,) = _decode(content, 1)
        ending, where, *numbers = scalars
        status, survivors, memory_kb, code, unreached = map(int, numbers)
        return cls(
            ending,
            status=status,
            survivors=survivors,
            memory_kb=memory_kb,
            code=code,
            where=where,
            unreached=unreached,
        )


def _encode(fields: list[list[bytes]]) -> bytes:
    if any(b"\0" in item for items in fields for item in items):
        raise ValueError("a NUL in an argument, a path or a variable")
    return b"\0".join(part for items in fields for part in (b"%d" % len(items), *items))


def _decode(content: bytes, count: int) -> list[list[bytes]]:
    parts = content.split(b"\0")
    fields: list[list[bytes]] = []
    at = 0
    while at < len(parts) and parts[at].isdigit():
        end = at + 1 + int(parts[at])
        fields.append(parts[at + 1 : end])
        at = end
    if len(fields) != count or at != len(parts):
        raise ValueError("not an order of the launcher")
    return fields
