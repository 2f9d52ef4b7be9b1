"""The policy of one project as its image holds it, for one agent.

It answers as the policy engine does, or not at all (`DeclinedError`).
"""

from paddock.apps.hook.lean.asked import DeclinedError
from paddock.apps.hook.lean.judging import (
    ALSO,
    DENY,
    GUARD,
    NOTHING,
    OTHERWISE,
    RULE,
    WORDS,
    LeanFinding,
    LeanLine,
    LeanRule,
)
from paddock.policy import compiled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from paddock.apps.hook.lean.wrap import Holding
    from paddock.values.calls import Json

VALUE_CHARS_MAX = 200


class QuickEngine:
    __slots__ = (
        "_guards",
        "_hits",
        "_image",
        "_profiles",
        "holding",
        "on_allow",
        "paranoid",
        "shell",
        "warnings",
    )

    def __init__(
        self, image: "Json", profiles: "tuple[int, ...]", holding: "Holding | None" = None
    ) -> None:
        self.holding = holding
        self._image = image
        self._guards = image["guards"]
        self._profiles = profiles
        self._hits: dict[str, list[tuple[int, int]]] = {}
        self.on_allow, self.warnings, self.paranoid, self.shell = image["hook"]

    def denials(self, path: str, is_write: bool, by_command: bool) -> "list[LeanFinding]":
        hits = self._hits_of(path)
        closing = compiled.find_closing(self._guards, path, hits, is_write, by_command)
        return [
            LeanFinding(
                DENY, GUARD, "", _pattern_rule(self._guards[0], kind, number), compiled.CODES[kind]
            )
            for kind, number in closing
        ]

    def find_warning(self, path: str) -> str:
        number = compiled.find_warning(self._guards, self._hits_of(path))
        _, _, _, _, _, places = self._guards[0]
        return "" if number < 0 else places[number][0]

    def is_safe(self, path: str) -> bool:
        return compiled.is_safe(self._guards, self._hits_of(path))

    def find_secret_outside(self, path: str) -> "LeanRule | None":
        lists = self._image["outside"]
        hits = compiled.find_hits(lists[0], path.lstrip("/"))
        found = compiled.find_listed(lists, hits, (compiled.SECRET,))
        return _pattern_rule(lists, *found[0]) if found else None

    def may_write_outside(self, path: str) -> bool:
        index, negated, *_ = self._image["also"]
        return compiled.permits(compiled.find_hits(index, path.lstrip("/")), negated)

    def profile(self, category: str, operation: str, target: str) -> "list[LeanFinding]":
        found: list[LeanFinding] = []
        asked = f"tool:{category}:{operation} {target}".rstrip()
        for number in self._profiles:
            profile = self._image["profiles"][number]
            if category == "client":
                rules, otherwise = _client_head(profile, operation)
            else:
                untargeted, paths, names, _, otherwise = profile["heads"][category, operation]
                rules = list(untargeted)
                if paths is not None:
                    numbers = {number for _, number in compiled.find_hits(paths[0], target)}
                    rules += [paths[1][index] for index in sorted(numbers)]
                rules += [rule for parts, wide, rule in names if _name(parts, wide, target)]
            found += _said(profile, rules, otherwise, asked)
        return found

    def line(self, text: str, base: str) -> LeanLine:
        # Lines of shell are taken apart by a module of their own.
        from paddock.apps.hook.lean.shell import is_bare_below, named_files, split_line

        commands = split_line(text, self._image["shell"])
        if any("git" in programs for _, programs in commands) and is_bare_below(base):
            raise DeclinedError("git would take a folder for a repository")
        reads = tuple(((), each) for each in named_files(text))
        return LeanLine(self._words(commands), reads=reads, is_guess=True)

    def held_line(self, text: str, directory: str) -> LeanLine:
        """A plain line writes nothing for certain, from whatever directory."""
        from paddock.apps.hook.lean.shell import split_line

        is_plain = not self._has_narrow_rules()
        return LeanLine(self._words(split_line(text, self._image["shell"], is_held=is_plain)))

    def is_outside(self, text: str) -> bool:
        """No program of a plain line that `outside` does not name is outside."""
        from paddock.apps.hook.lean.shell import split_line

        programs, is_wild = self._image["outside_commands"]
        if not programs and not is_wild:
            return False
        for _, named in split_line(text, self._image["shell"]):
            if is_wild or not programs.isdisjoint([name.casefold() for name in named]):
                raise DeclinedError("a command that may be left to the client")
        return False

    def _has_narrow_rules(self) -> bool:
        for number in self._profiles:
            _, _, _, (_, narrow, is_wild), _ = self._image["profiles"][number]["heads"][
                "shell", "run"
            ]
            if narrow or is_wild:
                return True
        return False

    def _words(self, commands: "list[tuple[str, frozenset[str]]]") -> "list[LeanFinding]":
        found: list[LeanFinding] = []
        for number in self._profiles:
            profile = self._image["profiles"][number]
            untargeted, _, _, (any_rules, narrow, is_wild), otherwise = profile["heads"][
                "shell", "run"
            ]
            for command, programs in commands:
                if is_wild or not narrow.isdisjoint([name.casefold() for name in programs]):
                    raise DeclinedError("a rule of the profile may be about this command")
                asked = f"tool:shell:run {command}"
                found += _said(profile, [*untargeted, *any_rules], otherwise, asked)
        return found

    def _hits_of(self, path: str) -> "list[tuple[int, int]]":
        hits = self._hits.get(path)
        if hits is None:
            hits = self._hits[path] = compiled.find_hits(self._guards[0][0], path)
        return hits


def _client_head(profile: "Json", operation: str) -> "tuple[list[Json], Json]":
    rules, entries = profile["client"]
    names = (operation, operation.casefold())
    matched = [rule for wanted, is_wide, rule in rules if wanted in ("*", names[is_wide])]
    otherwise = None
    for wanted, is_wide, entry in entries:
        # Where keys overlap, the strictest, and of equal ones the first.
        is_meant = wanted in ("*", names[is_wide])
        if is_meant and (otherwise is None or entry[0] > otherwise[0]):
            otherwise = entry
    return matched, otherwise


def _said(
    profile: "Json", rules: "list[Json]", otherwise: "Json", asked: str
) -> "list[LeanFinding]":
    if rules:
        chosen = rules[0]
        for rule in rules:
            if rule[0] > chosen[0]:
                chosen = rule
        found = [LeanFinding(chosen[0], RULE, chosen[5], LeanRule(*chosen[:5]))]
        found += [
            LeanFinding(rule[0], ALSO, rule[6], LeanRule(*rule[:5]))
            for rule in rules
            if rule is not chosen
        ]
        return found
    if otherwise is not None:
        outcome, text, source = otherwise[:3]
        reason = (
            f"no rule matches {quote(asked)}, and {quote(text)} in {source} says {WORDS[outcome]}"
        )
        return [LeanFinding(outcome, OTHERWISE, reason, LeanRule(*otherwise[:5]))]
    name = profile["name"]
    reason = (
        f"no rule of the profile {quote(name)} matches {quote(asked)}, "
        f"and unknown is no; an operator can allow it in [profiles.{name}]"
    )
    return [LeanFinding(DENY, NOTHING, reason)]


def _pattern_rule(lists: "Json", kind: str, number: int) -> LeanRule:
    _, _, _, _, _, places = lists
    return LeanRule(DENY, places[number][0], compiled.source_of(kind), *places[number][1:])


def _name(parts: "tuple[str, ...]", is_wide: bool, name: str) -> bool:
    return compiled.matches_text(parts, name.casefold() if is_wide else name)


def quote(value: str) -> str:
    text = repr(value)
    if text.startswith("'"):
        text = '"' + text[1:-1].replace("\\'", "'").replace('"', '\\"') + '"'
    if len(text) <= VALUE_CHARS_MAX:
        return text
    missing = len(text) - VALUE_CHARS_MAX
    return f"{text[:VALUE_CHARS_MAX]}… ({missing} more characters)"
