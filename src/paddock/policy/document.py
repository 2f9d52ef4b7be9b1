"""One policy file, read strictly and whole: what it gives, each with its place.

There is no "load what can be loaded": an unknown key, a wrong type, a pattern
that can match nothing, an example that does not hold, and the file is refused
with every problem that was found.
"""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from enum import Enum
from graphlib import CycleError, TopologicalSorter
from typing import Final

from paddock.limits import policy_rules_max
from paddock.policy.actions import parse_concrete
from paddock.policy.matching import rule_matches
from paddock.policy.places import Document, parse_document
from paddock.policy.problems import PatternError, fail, quote_toml, suggest
from paddock.policy.reader import Report, Table, Text
from paddock.policy.rules import Profile, Rule, read_profile
from paddock.policy.settings import Settings
from paddock.policy.shell import read_shell_changes
from paddock.policy.tables import (
    PathsTable,
    read_agents,
    read_history,
    read_hook,
    read_ledger,
    read_limits,
    read_mcp,
    read_paths,
    read_providers,
    read_user_ledger,
)
from paddock.values.decisions import Outcome

BARE_PATHS_KEYS: Final = frozenset({"protected", "warned", "safe"})
"""A JSON file with these keys alone is a `[paths]` table without its name."""


class Scope(Enum):
    """Whose file it is: `anchor` and `[providers]` stand in the user's alone."""

    PROJECT = "project"
    USER = "user"


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A file that loads. `settings` are the given ones over those of the caller."""

    document: Document
    paths: PathsTable
    profiles: tuple[Profile, ...]
    settings: Settings

    @property
    def file(self) -> str:
        """The name of the file, as places show it."""
        return self.document.file


def read_policy(
    name: str, text: bytes, scope: Scope, base: Settings, profiles: Mapping[str, Profile]
) -> PolicyDocument:
    """Read the policy file `name`; JSON where its name ends in `.json`.

    `base` is what holds for keys that are not given; `profiles` are those
    that exist without this file, by name.

    Raises:
        ConfigError: anything is wrong with it; `where` is the first place, the
            message says how many problems there are besides.
    Limits: `policy_bytes_max`, `policy_rules_max`.
    """
    document = parse_document(name, text)
    if name.endswith(".json") and document.values and document.values.keys() <= BARE_PATHS_KEYS:
        document = _as_paths(document)
    report = Report(document)
    top = Table(report, (), document.values)
    paths_table = top.table("paths")
    paths = read_paths(paths_table) if paths_table is not None else PathsTable()
    found = _with_bases(report, _read_profiles(top), profiles)
    known = profiles.keys() | {profile.name for profile in found}
    settings = _read_settings(top, base, known, scope)
    top.finish()
    _check_size(report, paths, found)
    _check_examples(report, found)
    if report.problems:
        fail(name, report.problems)
    return PolicyDocument(document, paths, found, settings)


def _as_paths(document: Document) -> Document:
    lines = {("paths", *key): line for key, line in document.lines.items()}
    return replace(document, values={"paths": document.values}, lines=lines)


def _read_profiles(top: Table) -> tuple[Profile, ...]:
    table = top.table("profiles")
    if table is None:
        return ()
    found: list[Profile] = []
    for name in table.names():
        entry = table.table(name)
        if entry is None:
            continue
        if not name.strip():
            table.problem(name, "a profile without a name")
        found.append(read_profile(entry, name))
    return tuple(found)


def _with_bases(
    report: Report, found: tuple[Profile, ...], known: Mapping[str, Profile]
) -> tuple[Profile, ...]:
    """Join each profile with those that it extends: the file's own, else what holds without it."""
    own = {profile.name: profile for profile in found}
    above = {name: {*each.extends} & (own.keys() - {name}) for name, each in own.items()}
    try:
        order = tuple(TopologicalSorter(above).static_order())
    except CycleError as error:
        circle: list[str] = error.args[1]
        way = " extends ".join(map(quote_toml, circle))
        report.add(("profiles", circle[0], "extends"), f"{way}", "leave one of them out")
        return found
    made: dict[str, Profile] = {}
    count = 0
    for name in order:
        bases: list[Profile] = []
        for base in own[name].extends:
            below = known.get(base) if base == name else made.get(base) or known.get(base)
            if below is None:
                report.add(
                    ("profiles", name, "extends"),
                    f"[profiles.{name}] extends {quote_toml(base)}, and there is no such profile",
                    suggest(base, (known.keys() | own.keys()) - {name}),
                )
                continue
            bases.append(below)
        _check_lifted(report, own[name], bases)
        made[name] = own[name].joined(bases) if bases else own[name]
        count += len(made[name].rules)
        if count > policy_rules_max:
            # Threat: each of many profiles repeats all rules of another one.
            break
    return tuple(made.get(profile.name, profile) for profile in found)


def _check_lifted(report: Report, profile: Profile, bases: list[Profile]) -> None:
    denied = {
        entry.head.text: entry.place
        for base in bases
        for entry in base.otherwise
        if entry.outcome is Outcome.DENY
    }
    for entry in profile.otherwise:
        if entry.head.text in denied and entry.outcome is not Outcome.DENY:
            where = denied[entry.head.text]
            said = f"{quote_toml(entry.head.text)} is denied in {where}, which nothing here lifts"
            report.add_at(entry.place, PatternError(said, "leave it out, or extend another one"))


def _read_settings(
    top: Table, base: Settings, profiles: AbstractSet[str], scope: Scope
) -> Settings:
    shell, hook = top.table("shell"), top.table("hook")
    agents, limits = top.table("agents"), top.table("limits")
    history, mcp, ledger = top.table("history"), top.table("mcp"), top.table("ledger")
    settings = Settings(
        shell=base.shell if shell is None else read_shell_changes(shell).over(base.shell),
        hook=base.hook if hook is None else read_hook(hook, base.hook),
        agents=base.agents if agents is None else read_agents(agents, base.agents, profiles),
        limits=base.limits if limits is None else read_limits(limits, base.limits),
        history=base.history if history is None else read_history(history, base.history),
        mcp=base.mcp if mcp is None else read_mcp(mcp, base.mcp),
        ledger=base.ledger,
        providers=base.providers,
    )
    if scope is Scope.USER:
        if ledger is not None:
            settings = replace(settings, ledger=read_user_ledger(ledger, base.ledger))
        providers = top.table("providers")
        if providers is not None:
            settings = replace(settings, providers=read_providers(providers))
        for binding in settings.agents:
            if binding.is_declared:
                said = "workspace and parent stand in a project's own file: its plane has the agent"
                top.report.add(("agents", binding.name), said, "leave them out here")
        return settings
    if ledger is not None:
        settings = replace(settings, ledger=read_ledger(ledger, base.ledger))
    if top.has("providers"):
        # Threat: a cloned project that names a server gets the conversation and the key.
        top.problem(
            "providers",
            "[providers] stands in the user's own configuration, never in a project",
            "move it to paddock/config.toml in the user's configuration directory",
        )
    return settings


def _check_size(report: Report, paths: PathsTable, profiles: tuple[Profile, ...]) -> None:
    lists = (paths.protected, paths.generated, paths.warned, paths.safe, paths.secret)
    count = sum(len(patterns or ()) for patterns in lists)
    count += sum(len(profile.rules) + len(profile.otherwise) for profile in profiles)
    if count > policy_rules_max:
        report.add((), f"{count} rules and patterns are more than {policy_rules_max}")


def _check_examples(report: Report, profiles: tuple[Profile, ...]) -> None:
    for profile in profiles:
        for rule in profile.rules:
            for example in rule.match:
                _check_example(report, rule, example, wanted=True)
            for example in rule.not_match:
                _check_example(report, rule, example, wanted=False)


def _check_example(report: Report, rule: Rule, example: Text, wanted: bool) -> None:
    try:
        action = parse_concrete(example.text)
    except PatternError as problem:
        report.add_at(example.place, problem)
        return
    if rule_matches(rule, action) is wanted:
        return
    verb = "is not matched" if wanted else "is matched"
    report.add_at(
        example.place,
        PatternError(
            f"the example {quote_toml(example.text)} {verb} by {quote_toml(rule.pattern.text)}",
            "correct the pattern, or the example",
        ),
    )
