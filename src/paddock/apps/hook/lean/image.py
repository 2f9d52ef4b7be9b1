"""The image of a project's policy: find, verify and load it, and query it in the context of a call.

Everything that the full path observed for the image is observed again, and must be unchanged.

Threat: a process that can write into Paddock's state directory places an image there that allows
everything. An image is sealed with a key in the user's configuration. It is ignored if the seal,
the owner or the mode is wrong.

A line of plain commands is split here without a parser; any other is declined (`DeclinedError`).
Plain: printable ASCII on one line; words or quotes without expansion; `&&`, `||`, `;` and `|`;
streams discarded or joined; no program that starts another one or writes files that it names.

Threat: bash reads a line differently. Everything that these lists do not contain is left to the
parser, and a property test compares both.
"""

import marshal  # noqa: TID251 - only data that our key sealed is read
import posix
import sys

from paddock.apps.hook.lean import records
from paddock.apps.hook.lean.judge import ALSO, GUARD, LeanFinding, LeanLine, Rule, folded
from paddock.apps.hook.lean.request import DeclinedError, HookEvent
from paddock.ledger.format.line import sha256
from paddock.policy import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from paddock.values.calls import Json

FORMAT = b"paddock hook image 10\n"
KEY_BYTES = 32
IMAGE_BYTES_MAX = 8_000_000
FILE_BYTES_MAX = 2_000_000
CONTENT, NAME, FOLLOWED, LISTED = 0, 1, 2, 3
"""Kinds of observations: a file's content; the type and identity of an entry; content with
symlinks followed; the change time of a directory's list of names."""
_INNER = int.from_bytes(b"\x36" * 64, "big")
_OUTER = int.from_bytes(b"\x5c" * 64, "big")
_READ = posix.O_RDONLY | posix.O_NONBLOCK | posix.O_NOCTTY | posix.O_CLOEXEC
_REGULAR = 0o100000
_KIND = 0o170000
_VARIABLES = ("TMPDIR", "CLAUDE_CONFIG_DIR", "CODEX_HOME")


class Homes:
    def __init__(self, home: str, paddock: str, config: str) -> None:
        self.home = home
        self.paddock = paddock
        self.config = config


def find_homes(variables: "Mapping[str, str]") -> Homes:
    """Raises: DeclinedError if only the full path can find them."""
    home = variables.get("HOME", "")
    if home[:1] != "/" or variables.get("PADDOCK_PLANE"):
        raise DeclinedError("HOME or PADDOCK_PLANE needs the full path")
    state = _absolute(variables, "XDG_STATE_HOME") or f"{home}/.local/state"
    config = _absolute(variables, "XDG_CONFIG_HOME") or f"{home}/.config"
    paddock = variables.get("PADDOCK_HOME", "") or f"{state}/paddock"
    if paddock[:1] != "/":
        raise DeclinedError("PADDOCK_HOME is relative")
    return Homes(folded(home), folded(paddock), folded(f"{config}/paddock"))


def _absolute(variables: "Mapping[str, str]", name: str) -> str:
    value = variables.get(name, "")
    return value if value[:1] == "/" else ""


def image_path(homes: Homes, event: HookEvent, start: str, variables: "Mapping[str, str]") -> str:
    named = "\0".join(
        (
            *(FORMAT.decode(), event.client, start, homes.home, homes.paddock, homes.config),
            *(variables.get(name, "") for name in _VARIABLES),
            *(str(posix.geteuid()), str(sys.implementation.cache_tag)),
        )
    )
    mark = sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return f"{homes.paddock}/hook/{mark}.image"


def key_path(homes: Homes) -> str:
    return f"{homes.config}/keys/hook.key"


def load_image(path: str, key_file: str) -> "Json":
    """Return the image if its seal and its observations are valid. Raises: DeclinedError."""
    key = read_private(key_file, KEY_BYTES)
    sealed = read_private(path, IMAGE_BYTES_MAX)
    start = len(FORMAT) + 32
    if len(key) != KEY_BYTES or sealed[: len(FORMAT)] != FORMAT:
        raise DeclinedError("no image, or one of another format")
    body = sealed[start:]
    if seal(key, body) != sealed[len(FORMAT) : start]:
        raise DeclinedError("the image's seal is broken")
    image: Json = marshal.loads(body)  # noqa: S302 - sealed, and it makes plain values alone
    if not all(observe(path, kind) == wanted for kind, path, wanted in image["looked"]):
        raise DeclinedError("something changed since the image was made")
    return image


def observe(path: str, kind: int = NAME) -> "Json":
    """Return the observed state of a path, or None if nothing is there."""
    if kind in (CONTENT, FOLLOWED):
        return _digest_at(path, _READ if kind == FOLLOWED else _READ | posix.O_NOFOLLOW)
    try:
        status = posix.lstat(path)
    except (OSError, ValueError):
        return None
    if kind == LISTED:
        return status.st_mtime_ns
    return (status.st_mode, status.st_uid, status.st_dev, status.st_ino)


def _digest_at(path: str, flags: int) -> "Json":
    try:
        _, content = _read(path, flags, FILE_BYTES_MAX)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        return fault.errno
    return -1 if content is None else sha256(content).digest()


def _read(path: str, flags: int, bytes_max: int) -> "tuple[posix.stat_result, bytes | None]":
    """Raises: OSError."""
    descriptor = posix.open(path, flags)
    try:
        status = posix.fstat(descriptor)
        if status.st_mode & _KIND != _REGULAR or status.st_size > bytes_max:
            return status, None
        content = b""
        while piece := posix.read(descriptor, status.st_size + 4096):
            content += piece
        return status, content
    finally:
        posix.close(descriptor)


def seal(key: bytes, body: bytes) -> bytes:
    padded = int.from_bytes(key.ljust(64, b"\0"), "big")
    inner = sha256((padded ^ _INNER).to_bytes(64, "big"))
    inner.update(body)
    outer = sha256((padded ^ _OUTER).to_bytes(64, "big"))
    outer.update(inner.digest())
    return outer.digest()


def read_private(path: str, bytes_max: int) -> bytes:
    """Read a file that only this user can read or write. Raises: DeclinedError."""
    try:
        status, content = _read(path, _READ | posix.O_NOFOLLOW, bytes_max)
    except OSError:
        raise DeclinedError("a file that the image needs is missing") from None
    if content is None or status.st_uid != posix.geteuid() or status.st_mode & 0o077:
        raise DeclinedError("a file that the image needs is not private")
    return content


_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")
LINE_CHARS_MAX = 2000
WORDS_MAX = 50
_BARE = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./:=@%+,-")
_IN_PROGRAM = _BARE - frozenset(":=@%+,")
_NOT_IN_DOUBLE = frozenset('$`\\!"')
_JOINERS = ("&&", "||", ";", "|")
_ENDINGS = ("2>&1", "2>/dev/null", ">/dev/null", "1>/dev/null")
_STDIN = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"})
_BARE_NAMES = ("HEAD", "objects", "refs")
_GIT_LONG = (
    *("--output", "--git-dir", "--work-tree", "--upload-pack", "--receive-pack", "--exec"),
    *("--open-files-in-pager", "--extcmd", "--config"),
)
_GIT_WRITING = tuple(
    "rm mv checkout restore clean clone init config bundle worktree format-patch checkout-index "
    "rebase bisect submodule difftool filter-branch".split()
)
_STARTING = ("ld", "pypy", "php", "lua", "tclsh", "perl", "ruby")

Command = tuple[str, frozenset[str]]

Identity = tuple[str, "list[Json]", str]
"""An agent's name, the agent and its ancestors, and the digest of its policy."""


class CommandWrapper:
    """The program that runs an agent's commands; `kind`: a client's type that runs as `agent`."""

    def __init__(
        self, program: "Sequence[str]", root: str, agent: str, kind: str, workspace: str
    ) -> None:
        self.program = program
        self.root = root
        self.agent = agent
        self.kind = kind
        self.workspace = workspace


class HookContext:
    """`today` is the user's local date, YYYY-MM-DD. `root` has no symlinks, `given_root` may.

    Raises: DeclinedError: the image does not contain the agent.
    """

    def __init__(self, tables: "Json", event: HookEvent, start: str, today: str) -> None:
        self.tables = tables
        self.root, self.home, self.state = tables["scene"]
        self.given_root, self.today = start.rstrip("/") or "/", today if tables["scratch"] else ""
        self.warned: str = tables["warned"]
        self.session = records.session_path(self.warned, event.session_id)
        self.on_allow, self.warnings, self.paranoid, self.shell = tables["hook"]
        # `shell` is the configured `confine` or `read`, even if this host cannot confine.
        held, self.who = _find_identity(tables, event.agent_type)
        self.wrapper = _find_wrapper(tables, event.agent_type)
        self._profiles: list[Json] = [
            {**tables["profiles"][number], "title": said} for number, said in held
        ]
        self._hits: dict[str, list[compiled.Hit]] = {}

    def denials(self, path: str, is_write: bool, by_command: bool) -> "list[LeanFinding]":
        guards = self.tables["guards"]
        closing = compiled.find_closing(guards, path, self._hits_of(path), is_write, by_command)
        rules = ((_pattern_rule(guards[0], kind, number), kind) for kind, number in closing)
        codes = compiled.CODES
        return [LeanFinding(compiled.DENY, GUARD, "", rule, codes[kind]) for rule, kind in rules]

    def find_warning(self, path: str) -> str:
        guards = self.tables["guards"]
        number = compiled.find_warning(guards, self._hits_of(path))
        return "" if number < 0 else _pattern_rule(guards[0], compiled.WARNED, number)[1]

    def is_safe(self, path: str) -> bool:
        return compiled.is_safe(self.tables["guards"], self._hits_of(path))

    def find_secret_outside(self, path: str) -> "Rule | None":
        """Return the pattern that makes an absolute path outside the project secret."""
        lists = self.tables["outside"]
        hits = compiled.find_hits(lists[0], path.lstrip("/"))
        found = compiled.find_listed(lists, hits, (compiled.SECRET,))
        return _pattern_rule(lists, *found[0]) if found else None

    def may_write_outside(self, path: str) -> bool:
        index, negated, *_ = self.tables["also"]
        return compiled.permits(compiled.find_hits(index, path.lstrip("/")), negated)

    @property
    def is_served(self) -> bool:
        """True if the client's configuration starts Paddock's server. Raises: DeclinedError."""
        if self.tables["served"] is None:
            raise DeclinedError("only a file that the client rewrites often says so")
        return self.tables["served"]

    def profile(
        self, category: str, operation: str, target: str, arguments: "Json" = None
    ) -> "list[LeanFinding]":
        found: list[LeanFinding] = []
        action = f"tool:{category}:{operation} {target}".rstrip()
        for profile in self._profiles:
            matched = compiled.find_rules(profile, category, operation, target, False, arguments)
            found += _conclude(profile, matched, category, operation, action)
        return found

    def line(self, text: str, base: str) -> LeanLine:
        commands = split_line(text, self.tables["shell"])
        if any("git" in programs for _, programs in commands) and is_bare_below(base):
            raise DeclinedError("git would treat a plain folder as a repository")
        said = LeanLine(self._words(commands))
        said.reads = tuple(("view", (), each) for each in named_files(text))
        said.is_guess = True
        return said

    def confined_line(self, text: str, directory: str) -> LeanLine:
        """Judge a plain line, which names no file that it surely writes, in any directory."""
        del directory
        rules = (rule for profile in self._profiles for rule in profile["commands"])
        is_plain = all(program is None for _, program in rules)
        return LeanLine(self._words(split_line(text, self.tables["shell"], is_confined=is_plain)))

    def is_outside(self, text: str) -> bool:
        """Return False unless `outside` may name a program of the line. Raises: DeclinedError."""
        programs, is_wild = self.tables["outside_commands"]
        if not programs and not is_wild:
            return False
        for _, named in split_line(text, self.tables["shell"], is_confined=True):
            if is_wild or not programs.isdisjoint([name.casefold() for name in named]):
                raise DeclinedError("a command that `outside` may leave to the client")
        return False

    def _words(self, commands: "list[Command]") -> "list[LeanFinding]":
        found: list[LeanFinding] = []
        for profile in self._profiles:
            matched = compiled.find_rules(profile, "shell", "run", "")
            matched += [rule for rule, program in profile["commands"] if program is None]
            narrow = {program for _, program in profile["commands"] if program is not None}
            for command, programs in commands:
                if "" in narrow or not narrow.isdisjoint([name.casefold() for name in programs]):
                    raise DeclinedError("a rule of the profile may match this command")
                found += _conclude(profile, matched, "shell", "run", f"tool:shell:run {command}")
        return found

    def _hits_of(self, path: str) -> "list[compiled.Hit]":
        hits = self._hits.get(path)
        if hits is None:
            hits = self._hits[path] = compiled.find_hits(self.tables["guards"][0][0], path)
        return hits


def _find_identity(tables: "Json", name: str) -> "tuple[tuple[tuple[int, str], ...], Identity]":
    agents = tables["agents"]
    if name in agents:
        held, chain = agents[name]
        return held, (chain[0]["name"], chain, tables["digest"])
    if _NAME_CHARS.issuperset(name) and observe(f"{tables['declared']}/{name}") is not None:
        raise DeclinedError("an agent of this plane")
    held, (child, *chain) = agents[None]
    return held, (name, [{**child, "name": name}, *chain], tables["digest"])


def _find_wrapper(tables: "Json", name: str) -> "CommandWrapper | None":
    if tables["holding"] is None:
        return None
    program, root, agents = tables["holding"]
    # A name that the tables lack is not an agent of this plane: see `_find_identity`.
    agent, workspace = agents.get(name) or agents[""]
    return CommandWrapper(program, root, agent, "" if name in ("", agent) else name, workspace)


def _conclude(
    profile: "Json", matched: "list[int]", category: str, operation: str, action: str
) -> "list[LeanFinding]":
    outcome, rank, deciding, reason = compiled.conclude(
        profile, matched, category, operation, action
    )
    rule = None if deciding is None else deciding[2:7]
    others = (profile["rules"][number] for number in matched)
    found = [LeanFinding(outcome, rank, profile["title"] + reason, rule)]
    found += [LeanFinding(row[2], ALSO, row[8], row[2:7]) for row in others if row is not deciding]
    return found


def _pattern_rule(lists: "Json", kind: str, number: int) -> Rule:
    _, _, _, _, _, places = lists
    text, file, line = places[number]
    return (compiled.DENY, text, compiled.source_of(kind), file, line)


def split_line(text: str, tables: "Json", is_confined: bool = False) -> "list[Command]":
    """Return the commands of a plain line. Raises: DeclinedError.

    `is_confined`: in the sandbox, without rules for programs: only starting another is not plain.
    """
    if len(text) > LINE_CHARS_MAX or not text.isascii() or not text.isprintable():
        raise DeclinedError("a line that is long, or not printable ASCII")
    commands: list[Command] = []
    words: list[str] = []
    start = end = at = 0
    has_ended = False
    while at < len(text):
        if text[at] == " ":
            at += 1
            continue
        joiner = next((sign for sign in _JOINERS if text.startswith(sign, at)), "")
        if joiner:
            commands.append(_command(text[start:end], words, tables, is_confined))
            words, has_ended = [], False
            at += len(joiner)
            if text[at : at + 1] not in ("", " "):
                raise DeclinedError("an operator without a blank after it")
            if joiner != ";" and not text[at:].strip():
                raise DeclinedError("a line that ends in an operator")
            continue
        ending = text[at:].partition(" ")[0]
        if words and ending in _ENDINGS:
            if not text[end - 1].isalnum() and text[end - 1] not in "'\"/":
                raise DeclinedError("a redirection after a special character")
            has_ended = True
            at += len(ending)
            continue
        if has_ended:
            raise DeclinedError("words after a redirection")
        if not words:
            start = at
        word, at = _word(text, at, is_first=not words)
        words.append(word)
        end = at
    if words or not commands:
        commands.append(_command(text[start:end], words, tables, is_confined))
    return commands


def named_files(text: str) -> "list[str]":
    found: dict[str, None] = {}
    for word in text.split():
        plain = word.replace("'", "").replace('"', "")
        found[plain] = None
        for sign in "=@:":
            found[plain.partition(sign)[2]] = None
        if plain.startswith("-"):
            found[plain[2:]] = None
            found[plain[2:].lstrip("@")] = None
    return [each for each in found if each]


def is_bare_below(directory: str) -> bool:
    """Return True if git would treat a folder without `.git` as a repository.

    Threat: an agent writes `HEAD`, `objects`, `refs` and a `config` that names programs.
    """
    here = directory.rstrip("/") or "/"
    while True:
        if _is_there(f"{here}/.git"):
            return False
        if all(_is_there(f"{here}/{name}") for name in _BARE_NAMES):
            return True
        if here in ("", "/"):
            return False
        here = here.rpartition("/")[0]


def _is_there(path: str) -> bool:
    try:
        posix.stat(path)
    except OSError:
        return False
    return True


def _word(text: str, at: int, is_first: bool) -> "tuple[str, int]":
    made = ""
    start = at
    while at < len(text):
        char = text[at]
        if char in " ;":
            break
        if char in "'\"":
            close = text.find(char, at + 1)
            body = text[at + 1 : close]
            if close < 0 or is_first or (char == '"' and not _NOT_IN_DOUBLE.isdisjoint(body)):
                raise DeclinedError("quotes that need the parser")
            made += body
            at = close + 1
            continue
        if char not in _BARE:
            raise DeclinedError("a character that may be special to a shell")
        made += char
        at += 1
    if at == start or text[start] == "=":
        raise DeclinedError("an empty word, or one that may be an operator")
    return made, at


def _command(text: str, words: "list[str]", tables: "Json", is_confined: bool) -> Command:
    if not words or len(words) > WORDS_MAX or not tables[1].isdisjoint(words):
        raise DeclinedError("an empty or long command, or a word that may be a keyword")
    if any("[" in word and ("$" in word or "`" in word) for word in words):
        raise DeclinedError("a word that may be evaluated")
    _require_plain(words, tables, is_confined)
    # Threat: a program starts another one. Any word or part of a word may name a rule's program.
    apart = (sign if sign in _IN_PROGRAM else " " for sign in " ".join(words))
    parts = [part.rpartition("/")[2] for part in (*words, *"".join(apart).split())]
    if "paddock" in parts:
        raise DeclinedError("a word that may be Paddock's own command line")
    return text, frozenset((*parts, *(part[:3] for part in parts if part[:4] == "git-")))


def _require_plain(words: "list[str]", tables: "Json", is_confined: bool) -> None:
    starting, _, changing, nesting = tables
    program, *rest = words
    name = program.rpartition("/")[2]
    is_plain = _IN_PROGRAM.issuperset(program) and program[0] != "-" and name != ""
    if not is_plain or name in starting or name.startswith(_STARTING):
        raise DeclinedError("a program that may start another one")
    if is_confined:
        return
    if name == "git":
        _require_plain_git(rest)
    elif name.startswith(("python", "node")):
        if not _STDIN.isdisjoint(rest) or not rest:
            raise DeclinedError("an interpreter that may read its input")
        if name.startswith("python") and rest[0] == "-m" and len(rest) > 1:
            _require_plain(rest[1:], tables, is_confined)
        elif rest[0].startswith("-"):
            raise DeclinedError("options of an interpreter")
    elif any(word.startswith(changing.get(name, ())) for word in words):
        raise DeclinedError("a program that may write or start files that its words name")
    elif not nesting.get(name, frozenset()).isdisjoint(rest):
        raise DeclinedError("a program that starts another one")


def _require_plain_git(rest: "list[str]") -> None:
    if not rest or rest[0].startswith("-") or rest[0] in _GIT_WRITING:
        raise DeclinedError("a git command with effects that its words do not show")
    for word in rest:
        name = word.partition("=")[0]
        is_long = name[:2] == "--" and any(
            each.startswith(name) or name.startswith(each) for each in _GIT_LONG
        )
        is_short = word[:1] == "-" != word[1:2] and not {"C", "o", "c", "O"}.isdisjoint(word)
        if is_long or is_short:
            raise DeclinedError("a git option that may name a path or a program")
