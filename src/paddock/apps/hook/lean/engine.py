"""The policy of one project as the hook asks it, for one agent, from its compiled form.

A line of shell that is not plain is declined (`DeclinedError`): the full path has a parser.
"""

from paddock.apps.hook.lean.asked import Asked, DeclinedError
from paddock.apps.hook.lean.image import look_at
from paddock.apps.hook.lean.judging import ALSO, GUARD, LeanFinding, LeanLine, Rule
from paddock.apps.hook.lean.places import Scene
from paddock.apps.hook.lean.records import Identity
from paddock.apps.hook.lean.shell import is_bare_below, named_files, split_line
from paddock.apps.hook.lean.wrap import Holding
from paddock.policy import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from paddock.values.calls import Json

_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789._-")


class Engine:
    """`profiles` are numbers of those of the agent and its ancestors."""

    def __init__(
        self, tables: "Json", profiles: "tuple[int, ...]", holding: "Holding | None" = None
    ) -> None:
        self.holding = holding
        self._tables = tables
        self._guards = tables["guards"]
        self._profiles = [tables["profiles"][number] for number in profiles]
        self._hits: dict[str, list[tuple[int, int]]] = {}
        self.on_allow, self.warnings, self.paranoid, self.shell = tables["hook"]
        # `shell` is `confine` or `read`: what is wanted, whether or not it can be had here.

    def denials(self, path: str, is_write: bool, by_command: bool) -> "list[LeanFinding]":
        hits = self._hits_of(path)
        closing = compiled.find_closing(self._guards, path, hits, is_write, by_command)
        return [
            LeanFinding(
                compiled.DENY,
                GUARD,
                "",
                _pattern_rule(self._guards[0], kind, number),
                compiled.CODES[kind],
            )
            for kind, number in closing
        ]

    def find_warning(self, path: str) -> str:
        number = compiled.find_warning(self._guards, self._hits_of(path))
        _, _, _, _, _, places = self._guards[0]
        return "" if number < 0 else places[number][0]

    def is_safe(self, path: str) -> bool:
        return compiled.is_safe(self._guards, self._hits_of(path))

    def find_secret_outside(self, path: str) -> "Rule | None":
        """Return the pattern by which an absolute path outside the project is secret."""
        lists = self._tables["outside"]
        hits = compiled.find_hits(lists[0], path.lstrip("/"))
        found = compiled.find_listed(lists, hits, (compiled.SECRET,))
        return _pattern_rule(lists, *found[0]) if found else None

    def may_write_outside(self, path: str) -> bool:
        index, negated, *_ = self._tables["also"]
        return compiled.permits(compiled.find_hits(index, path.lstrip("/")), negated)

    @property
    def is_served(self) -> bool:
        """Whether the client's own configuration starts our server. Raises: DeclinedError."""
        if self._tables["served"] is None:
            raise DeclinedError("a file that the client writes again and again says so")
        return self._tables["served"]

    def profile(
        self, category: str, operation: str, target: str, arguments: "Json" = None
    ) -> "list[LeanFinding]":
        found: list[LeanFinding] = []
        asked = f"tool:{category}:{operation} {target}".rstrip()
        for profile in self._profiles:
            matched = compiled.find_rules(profile, category, operation, target, False, arguments)
            found += _said(profile, matched, category, operation, asked)
        return found

    def line(self, text: str, base: str) -> LeanLine:
        commands = split_line(text, self._tables["shell"])
        if any("git" in programs for _, programs in commands) and is_bare_below(base):
            raise DeclinedError("git would take a folder for a repository")
        reads = tuple(((), each) for each in named_files(text))
        return LeanLine(self._words(commands), reads=reads, is_guess=True)

    def held_line(self, text: str, directory: str) -> LeanLine:
        """A plain line writes nothing for certain, from whatever directory."""
        del directory
        rules = (rule for profile in self._profiles for rule in profile["commands"])
        is_plain = all(program is None for _, program in rules)
        return LeanLine(self._words(split_line(text, self._tables["shell"], is_held=is_plain)))

    def is_outside(self, text: str) -> bool:
        """No program of a plain line that `outside` does not name is outside."""
        programs, is_wild = self._tables["outside_commands"]
        if not programs and not is_wild:
            return False
        for _, named in split_line(text, self._tables["shell"]):
            if is_wild or not programs.isdisjoint([name.casefold() for name in named]):
                raise DeclinedError("a command that may be left to the client")
        return False

    def _words(self, commands: "list[tuple[str, frozenset[str]]]") -> "list[LeanFinding]":
        found: list[LeanFinding] = []
        for profile in self._profiles:
            matched = compiled.find_rules(profile, "shell", "run", "")
            matched += [rule for rule, program in profile["commands"] if program is None]
            narrow = {program for _, program in profile["commands"] if program is not None}
            for command, programs in commands:
                if "" in narrow or not narrow.isdisjoint([name.casefold() for name in programs]):
                    raise DeclinedError("a rule of the profile may be about this command")
                found += _said(profile, matched, "shell", "run", f"tool:shell:run {command}")
        return found

    def _hits_of(self, path: str) -> "list[tuple[int, int]]":
        hits = self._hits.get(path)
        if hits is None:
            hits = self._hits[path] = compiled.find_hits(self._guards[0][0], path)
        return hits


class Ground:
    """Where a call is made, by whom, and the policy that holds for it; from compiled tables.

    `today` is YYYY-MM-DD where the user is. Raises: DeclinedError: an agent that is in no table.
    """

    def __init__(
        self,
        tables: "Json",
        asked: Asked,
        start: str,
        today: str,
        make_engine: "Callable[[Json, tuple[int, ...], Holding | None], Engine]" = Engine,
    ) -> None:
        root, home, state = tables["scene"]
        today = today if tables["scratch"] else ""
        self.scene = Scene(root, start.rstrip("/") or "/", home, state, today)
        self.warned: str = tables["warned"]
        numbers, self.who = _find_identity(tables, asked.agent_type)
        self.engine = make_engine(tables, numbers, _find_holding(tables, asked.agent_type))


def _find_identity(tables: "Json", name: str) -> "tuple[tuple[int, ...], Identity]":
    agents = tables["agents"]
    if name in agents:
        numbers, chain = agents[name]
        return numbers, Identity(chain[0]["name"], chain, tables["digest"])
    if _NAME_CHARS.issuperset(name) and look_at(f"{tables['declared']}/{name}") is not None:
        raise DeclinedError("an agent of this plane")
    numbers, chain = agents[""]
    child = {"name": name, "profile": chain[0]["profile"]}
    return numbers, Identity(name, [child, *chain], tables["digest"])


def _find_holding(tables: "Json", name: str) -> "Holding | None":
    if tables["holding"] is None:
        return None
    program, root, agents = tables["holding"]
    # One that the tables do not name is no agent of this plane: see `_find_identity`.
    agent, workspace = agents.get(name) or agents[""]
    return Holding(program, root, agent, "" if name in ("", agent) else name, workspace)


def _said(
    profile: "Json", matched: "list[int]", category: str, operation: str, asked: str
) -> "list[LeanFinding]":
    outcome, rank, deciding, reason = compiled.conclude(
        profile, matched, category, operation, asked
    )
    rule = None if deciding is None else deciding[2:7]
    others = (profile["rules"][number] for number in matched)
    found = [LeanFinding(outcome, rank, reason, rule)]
    found += [LeanFinding(row[2], ALSO, row[8], row[2:7]) for row in others if row is not deciding]
    return found


def _pattern_rule(lists: "Json", kind: str, number: int) -> Rule:
    _, _, _, _, _, places = lists
    text, file, line = places[number]
    return (compiled.DENY, text, compiled.source_of(kind), file, line)
