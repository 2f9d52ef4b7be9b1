"""Rules and profiles as a file writes them, each with its place."""

from collections.abc import Sequence
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Final, cast

from msgspec import Struct
from msgspec.structs import replace

from paddock.policy.actions import ActionPattern, HeadPattern, TargetKind, parse_head, parse_pattern
from paddock.policy.places import BUILT_IN_PLACE, PatternError, Place, quote_toml, suggest
from paddock.policy.reader import Table, Text
from paddock.policy.settings import NETWORKS, Network, ShellChanges, read_shell_changes
from paddock.values.decisions import Outcome, RuleMatch

if TYPE_CHECKING:
    from paddock.policy.commands import CommandPattern

OUTCOME_WORDS: Final = tuple(outcome.word for outcome in Outcome)


class Rule(Struct, frozen=True, dict=True):
    """`network` holds for just this command; the load stops where an example is false."""

    pattern: ActionPattern
    outcome: Outcome
    source: str
    place: Place = BUILT_IN_PLACE
    reason: str = ""
    network: Network | None = None
    match: tuple[Text, ...] = ()
    not_match: tuple[Text, ...] = ()

    @cached_property
    def command(self) -> "CommandPattern | None":
        return _command_of(self.pattern, self.outcome)

    def checked(self) -> "Rule":
        _ = self.command
        return self

    @property
    def shown(self) -> RuleMatch:
        file, line = self.place.file, self.place.line
        return RuleMatch(self.outcome, self.pattern.text, self.source, file, line, self.reason)

    @property
    def said(self) -> str:
        return self.reason or f"{quote_toml(self.pattern.text)} stands in {self.source}"


class Otherwise(Struct, frozen=True):
    head: HeadPattern
    outcome: Outcome
    source: str
    place: Place = BUILT_IN_PLACE

    def as_match(self) -> RuleMatch:
        place = self.place
        return RuleMatch(self.outcome, self.head.text, self.source, place.file, place.line)


class Profile(Struct, frozen=True):
    name: str
    rules: tuple[Rule, ...] = ()
    otherwise: tuple[Otherwise, ...] = ()
    shell: ShellChanges | None = None
    place: Place = BUILT_IN_PLACE
    extends: tuple[str, ...] = ()
    """The profiles that it was joined with; its own name is the one that it replaces."""

    def joined(self, bases: Sequence["Profile"]) -> "Profile":
        """Join lists, merge tables; what one base denies stays denied, also under `otherwise`."""
        rules = {(rule.shown, rule.network): rule for each in (*bases, self) for rule in each.rules}
        own = {entry.head.text for entry in self.otherwise}
        kept = (
            entry
            for base in bases
            for entry in base.otherwise
            if entry.head.text not in own or entry.outcome is Outcome.DENY
        )
        shells = [each.shell for each in (*bases, self) if each.shell is not None]
        return replace(
            self,
            rules=tuple(rules.values()),
            otherwise=tuple(dict.fromkeys((*kept, *self.otherwise))),
            shell=reduce(lambda below, above: above.over(below), shells) if shells else None,
        )


def compile_rule(text: str, outcome: Outcome, source: str, place: Place = BUILT_IN_PLACE) -> Rule:
    pattern = parse_pattern(text)
    check_confined(pattern.head, outcome)
    return Rule(pattern, outcome, source, place).checked()


def parse_otherwise(
    text: str, outcome: Outcome, source: str, place: Place = BUILT_IN_PLACE
) -> Otherwise:
    head = parse_head(text)
    check_confined(head, outcome)
    return Otherwise(head, outcome, source, place)


def check_confined(head: HeadPattern, outcome: Outcome) -> None:
    # Threat: what no sandbox holds is answered as if one did.
    if outcome is Outcome.CONFINE and head.category != "shell":
        raise PatternError(
            f"confine of {quote_toml(head.text)} holds nothing: only commands run in a sandbox",
            "write tool:shell:…, or let it be allow, ask or deny",
        )


def read_profile(table: Table, name: str) -> Profile:
    source = f"profiles.{name}"
    is_one = table.is_text("extends")
    extends = (table.string("extends"),) if is_one else table.strings("extends") or ()
    rules: list[Rule] = []
    for word in OUTCOME_WORDS:
        for text in table.texts(word) or ():
            rule = _short_rule(table, text, Outcome.parse(word), f"{source}.{word}")
            if rule is not None:
                rules.append(rule)
    for long_form in table.tables("rules"):
        rule = _long_rule(long_form, f"{source}.rules")
        if rule is not None:
            rules.append(rule)
    otherwise = _read_otherwise(table, source)
    shell_table = table.table("shell")
    shell = read_shell_changes(shell_table) if shell_table is not None else None
    table.finish()
    place = table.report.document.place(table.key)
    return Profile(name, tuple(rules), otherwise, shell, place, tuple(filter(None, extends)))


def _command_of(pattern: ActionPattern, outcome: Outcome) -> "CommandPattern | None":
    if pattern.kind is not TargetKind.COMMAND:
        return None
    # The command parser is loaded only by a policy that has such a rule.
    from paddock.policy.commands import compile_command_pattern  # noqa: PLC0415 - late on purpose

    try:
        command = compile_command_pattern(pattern.target)
    except PatternError:
        raise
    except ValueError as error:
        raise PatternError(str(error)) from error
    bar = command.find_bar() if outcome is Outcome.ALLOW else ""
    if bar:
        raise PatternError(
            f"an allow of {quote_toml(pattern.target)} matches nothing: {bar}",
            "let it ask, or remove it: of rules that allow, only one for any command covers it",
        )
    return command


def _short_rule(table: Table, text: Text, outcome: Outcome, source: str) -> Rule | None:
    try:
        return compile_rule(text.text, outcome, source, text.place)
    except PatternError as problem:
        table.report.add_at(text.place, problem)
        return None


def _long_rule(table: Table, source: str) -> Rule | None:
    action = table.string("action")
    word = table.string("outcome")
    reason = table.string("reason")
    network = cast("Network", table.word("network", NETWORKS)) if table.has("network") else None
    match, not_match = table.texts("match") or (), table.texts("not_match") or ()
    table.finish()
    for name, value in (("action", action), ("outcome", word)):
        if not value and not table.has(name):
            table.problem(name, f"a rule in {source} has no {name}", f"add {name} = …")
    if word and word not in OUTCOME_WORDS:
        message = f"outcome {quote_toml(word)} is none"
        table.problem("outcome", message, suggest(word, OUTCOME_WORDS))
    if not action or word not in OUTCOME_WORDS:
        return None
    place, outcome = table.place("action"), Outcome.parse(word)
    try:
        pattern = parse_pattern(action)
        check_confined(pattern.head, outcome)
        rule = Rule(pattern, outcome, source, place, reason, network, match, not_match).checked()
    except PatternError as problem:
        table.report.add_at(place, problem)
        return None
    if network is not None and (pattern.head.category != "shell" or outcome is Outcome.DENY):
        table.problem(
            "network",
            f"network stands in a rule for {quote_toml(action)} that runs no command",
            "only a rule that allows or asks for tool:shell:run sets the network",
        )
    return rule


def _read_otherwise(table: Table, source: str) -> tuple[Otherwise, ...]:
    entries = table.table("otherwise")
    if entries is None:
        return ()
    found: list[Otherwise] = []
    for head_text in entries.names():
        word = entries.word(head_text, OUTCOME_WORDS)
        try:
            outcome, place = Outcome.parse(word), entries.place(head_text)
            found.append(parse_otherwise(head_text, outcome, f"{source}.otherwise", place))
        except PatternError as problem:
            hint = problem.hint
            if " " in head_text.strip():
                hint = "otherwise takes heads without a target; write a rule for the target"
            entries.problem(head_text, problem.message, hint)
    return tuple(found)
