"""List what a project's policy grants beyond what holds without it, for `paddock trust` to show.

Threat: a person trusts what this list shows. A clone could loosen something that the list omits,
or make the terminal hide a row. So every key that can loosen anything is checked, and every text is
escaped. Rules that only tighten are listed separately: a rule counts as such only if it is not
looser for anything that it names.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import fields

from paddock.plane.trust import PolicyFile
from paddock.policy.load import PathsTable, PolicyDocument, Scope, read_policy
from paddock.policy.pathset import Comparison, PathList, PathPattern
from paddock.policy.positions import Place
from paddock.policy.presets import LOCKED, built_in_paths, presets
from paddock.policy.questions.lint import idle_exceptions, path_samples
from paddock.policy.rules import ANY, HeadPattern, Otherwise, Profile, Rule
from paddock.policy.settings import (
    COMMITS,
    NETWORKS,
    ConfineMax,
    HookSettings,
    LoweredLimits,
    Network,
    Settings,
    ShellChanges,
    ShellLimits,
    ShellSettings,
    describe_server,
    lay_over,
)
from paddock.text.show import show_name
from paddock.values.decisions import Outcome

_DONE: Final = dict(zip(Outcome, ("allowed", "confined", "asked about", "denied"), strict=True))
_LANDS: Final = {
    "each": "what is allowed lands where the rest is refused",
    "all": "what commands change lands",
}
_VERBS: Final = dict(zip(Outcome, ("allows", "confines", "asks about", "denies"), strict=True))


class Grant(Struct, frozen=True):
    text: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.where})" if self.where else self.text


class _Held(Struct, frozen=True):
    name: str
    paths: PathsTable
    profiles: Mapping[str, Profile]
    settings: Settings

    def profile(self, name: str) -> Profile:
        return self.profiles.get(name) or Profile(name)


def list_grants(file: PolicyFile, user: PolicyFile | None = None) -> tuple[Grant, ...]:
    held = _held(user)
    document = _read(file, held)
    return (
        *_path_grants(document, held.paths),
        *(
            grant
            for profile in document.profiles
            for grant in _profile_grants(profile, held, document.settings.shell)
        ),
        *_shell_grants("[shell]", document.settings.shell, held.settings.shell),
        *_setting_grants(document.settings, held.settings),
        *_server_grants(document, held.settings),
    )


def list_restraints(file: PolicyFile, user: PolicyFile | None = None) -> tuple[Grant, ...]:
    """List path patterns and rules that are at least as strict as before; not settings."""
    held = _held(user)
    document = _read(file, held)
    return (
        *_path_restraints(document, held.paths),
        *(
            restraint
            for profile in document.profiles
            for restraint in _profile_restraints(profile, held.profiles.get(profile.name))
        ),
    )


def summarise(file: PolicyFile, user: PolicyFile | None = None) -> str:
    grants, restraints = list_grants(file, user), list_restraints(file, user)
    name, held = show_name(str(file.path)), _held(user).name
    lines = [f"{name} allows, beyond {held}:", *(f"  - {grant}" for grant in grants)]
    if not grants:
        lines = [f"{name} allows nothing beyond {held}"]
    if restraints:
        lines += [
            f"as strict as {held}, or stricter:",
            *(f"  - {each}" for each in restraints),
        ]
    return "\n".join(lines)


def _held(user: PolicyFile | None) -> _Held:
    built_in = {profile.name: profile for profile in presets()}
    if user is None:
        return _Held("the defaults", built_in_paths(), built_in, Settings())
    document = read_policy(str(user.path), user.content, Scope.USER, Settings(), built_in)
    return _Held(
        f"the policy in {show_name(str(user.path))}",
        lay_over(built_in_paths(), document.paths),
        built_in | {profile.name: profile for profile in document.profiles},
        document.settings,
    )


def _read(file: PolicyFile, held: _Held) -> PolicyDocument:
    scope = Scope.PROJECT
    return read_policy(str(file.path), file.content, scope, held.settings, held.profiles)


def _path_lists(
    document: PolicyDocument, held: PathsTable
) -> Iterator[tuple[str, tuple[PathPattern, ...] | None, tuple[PathPattern, ...] | None]]:
    for name in ("protected", "generated", "secret", "warned"):
        yield name, getattr(held, name), getattr(document.paths, name)


def _path_grants(document: PolicyDocument, held: PathsTable) -> Iterator[Grant]:
    # Threat: leave out only exceptions that open nothing, whatever files exist.
    idle = {(each.name, each.pattern) for each in idle_exceptions(document.paths)}
    for name, before, after in _path_lists(document, held):
        if after is not None:
            opening = tuple(each for each in after if (name, each) not in idle)
            yield from _list_grants(name, before or (), opening)
    safe, given = held.safe or (), document.paths.safe or ()
    for pattern in _added(safe, given):
        yield Grant(f"[paths] {_text(pattern)} is safe: no warning", _where(pattern.place))
    # Threat: an old pattern makes more paths safe once its `!` is removed or moved before it.
    for text in dict.fromkeys(pattern.text for pattern in safe if pattern.negated):
        if _behind(given, text) & {pattern.text for pattern in safe} - _behind(safe, text):
            yield Grant(f"[paths] {show_name(text)} is no longer excluded from safe")


def _behind(patterns: tuple[PathPattern, ...], exception: str) -> set[str]:
    texts = [pattern.text for pattern in patterns]
    start = len(texts) - texts[::-1].index(exception) if exception in texts else 0
    return {pattern.text for pattern in patterns[start:] if not pattern.negated}


def _list_grants(
    name: str, before: tuple[PathPattern, ...], after: tuple[PathPattern, ...]
) -> Iterator[Grant]:
    kept, held = ({pattern.text for pattern in each} for each in (after, before))
    # Not patterns with brackets: samples do not show everything that they cover.
    wide = (each for each in after if not each.negated and "[" not in each.text)
    closed = PathList(wide, Comparison.GUARDING)
    for pattern in before:
        is_closed = pattern.negated or all(map(closed.find, path_samples(pattern)))
        if pattern.text not in kept and not is_closed:
            yield Grant(f"[paths] {_text(pattern)} is no longer {name}")
    for pattern in after:
        if pattern.negated and pattern.text not in held:
            yield Grant(f"[paths] {_text(pattern)} is excluded from {name}", _where(pattern.place))


def _added(
    before: tuple[PathPattern, ...], after: tuple[PathPattern, ...]
) -> Iterator[PathPattern]:
    known = {pattern.text for pattern in before}
    return (pattern for pattern in after if pattern.text not in known and not pattern.negated)


def _profile_grants(profile: Profile, held: _Held, shell: ShellSettings) -> Iterator[Grant]:
    before = held.profile(profile.name)
    name = f"profile {show_name(profile.name)}"
    known = {(rule.pattern.text, rule.outcome, rule.extras) for rule in before.rules}
    for rule in profile.rules:
        if (rule.pattern.text, rule.outcome, rule.extras) not in known:
            yield from _rule_grants(name, rule, before)
    for entry in profile.otherwise:
        if entry.outcome < _usual_answer(before, entry.head, profile.otherwise):
            yield _otherwise_grant(name, entry)
    yield from _no_longer(name, profile, before)
    yield from _no_longer_narrow(name, profile, before, _over(profile.shell, shell).network)
    base = held.settings.shell
    given, default = _over(profile.shell, base), _over(before.shell, base)
    yield from _shell_grants(f"{name}, shell", given, default)


def _no_longer(name: str, profile: Profile, before: Profile) -> Iterator[Grant]:
    """List denials, questions and confinements of the replaced profile that this one drops."""
    for rule in before.rules:
        # Threat: repeated with a condition, it covers less.
        repeated = any(
            each.pattern.text == rule.pattern.text
            and each.outcome >= rule.outcome
            and each.when in (None, rule.when)
            for each in profile.rules
        )
        if rule.outcome is not Outcome.ALLOW and not repeated:
            yield Grant(f"{name} no longer {_VERBS[rule.outcome]} {show_name(rule.pattern.text)}")


def _no_longer_narrow(
    name: str, profile: Profile, before: Profile, default: Network
) -> Iterator[Grant]:
    """List rules of the replaced profile that gave commands a narrower network.

    Threat: such a rule allows commands and narrows their network. In a profile that allows
    them too and drops the rule, they get the network of all commands, or of another rule.
    """
    given = [_width(rule.network) for rule in profile.rules if rule.network is not None]
    widest = max([_width(default), *given])
    for rule in before.rules:
        network = rule.network
        if network is None or _width(network) >= widest:
            continue
        if not any(_is_as_narrow(other, rule, network) for other in profile.rules):
            what = show_name(rule.pattern.text)
            yield Grant(f"{name} no longer limits {what} to the network {network!r}")


def _is_as_narrow(rule: Rule, before: Rule, network: Network) -> bool:
    if rule.pattern.text != before.pattern.text:
        return False
    if rule.network is None:
        return rule.outcome is Outcome.DENY
    return _width(rule.network) <= _width(network)


def _width(network: Network) -> int:
    return NETWORKS.index(network)


def _rule_grants(name: str, rule: Rule, before: Profile) -> Iterator[Grant]:
    if rule.outcome < _usual_answer(before, rule.pattern.head):
        yield _rule_grant(name, rule)
    if rule.network is not None and rule.network != "none":
        text = f"{name} gives {show_name(rule.pattern.text)} the network {rule.network!r}"
        yield Grant(text, _where(rule.place))


def _rule_grant(name: str, rule: Rule) -> Grant:
    text = f"{name} {_VERBS[rule.outcome]} {show_name(rule.pattern.text)}"
    if rule.commands:
        text += f", for commands like {', '.join(map(show_name, rule.commands))}"
    if rule.addresses:
        text += f", also at addresses in {', '.join(map(show_name, rule.addresses))}"
    if rule.when is not None:
        text += f", {show_name(rule.when.said)}"
    return Grant(text, _where(rule.place))


def _otherwise_grant(name: str, entry: Otherwise) -> Grant:
    text = f"{name} otherwise {_VERBS[entry.outcome]} {show_name(entry.head.text)}"
    return Grant(text, _where(entry.place))


def _shell_grants(name: str, given: ShellSettings, default: ShellSettings) -> Iterator[Grant]:
    # List each difference that is not plainly stricter.
    if _width(given.network) > _width(default.network):
        yield Grant(f"{name} network is {given.network!r}")
    if given.git not in (default.git, "read-only"):
        yield Grant(f"{name} git is {given.git!r}")
    for what, names, known in (
        ("commands may read", given.read, default.read),
        ("commands may write", given.write, default.write),
        ("a call may set the variable", given.env, default.env),
    ):
        for each in names:
            if each not in known:
                yield Grant(f"{name} {what} {show_name(each)}")
    if given.enforcement == "best-effort" != default.enforcement:
        yield Grant(f"{name} enforcement is {given.enforcement!r}")
    if given.approve != default.approve:
        yield Grant(f"{name} approve is {given.approve!r}")
    if COMMITS.index(given.commit) < COMMITS.index(default.commit):
        yield Grant(f"{name} commit is {given.commit!r}: {_LANDS[given.commit]}")
    if given.caches and not default.caches:
        yield Grant(f"{name} caches is true: commands share their tools' downloads")
    both = given.limits.stricter(default.limits)
    for limit in fields(ShellLimits):
        if getattr(both, limit.name) != getattr(given.limits, limit.name):
            yield Grant(f"{name} limit {limit.name} is {getattr(given.limits, limit.name)}")
    for bound in fields(ConfineMax):
        more = int(getattr(given.confine_max, bound.name))
        if more > int(getattr(default.confine_max, bound.name)):
            yield Grant(
                f"{name} confine_max {bound.name} is {more}: up to this, changes land unasked"
            )


def _setting_grants(settings: Settings, held: Settings) -> Iterator[Grant]:
    if settings.network.packages and not held.network.packages:
        yield Grant("[network] packages is true: commands reach the hosts of your package clients")
    yield from _hook_grants(settings.hook, held.hook)
    for binding in settings.agents:
        is_replaced = held.profile_for(binding.name) is not None
        is_locked = binding.profile == LOCKED and not binding.is_declared
        if binding in held.agents or (is_locked and not is_replaced):
            # `locked` only tightens, unless it replaces a profile that the name already has.
            continue
        who, profile = show_name(binding.name), show_name(binding.profile)
        place = show_name(binding.workspace or f"the workspace of {binding.parent}")
        works = f", and is an agent of {place}" if binding.is_declared else ""
        yield Grant(f"[agents] {who} has the profile {profile}{works}")
    for each in fields(LoweredLimits):
        more = int(getattr(settings.limits, each.name))
        if more > int(getattr(held.limits, each.name)):
            yield Grant(f"[limits] {each.name} is {more}")
    if settings.history.bytes_max < held.history.bytes_max:
        yield Grant(f"[history] only {settings.history.bytes_max} bytes are kept for undo")
    if settings.mcp.calls_max > held.mcp.calls_max:
        yield Grant(f"[mcp] {settings.mcp.calls_max} calls run at once")
    if settings.ledger.keep_model_contents and not held.ledger.keep_model_contents:
        yield Grant("[ledger] messages to and from models are kept")


def _server_grants(document: PolicyDocument, held: Settings) -> Iterator[Grant]:
    # Threat: a clone's server runs any program, and learns what an agent is working on.
    for server in document.settings.mcp.servers:
        if server not in held.mcp.servers:
            place = document.document.place(("mcp", "servers", server.name))
            text = f"the MCP server {server.name} {describe_server(server)}"
            yield Grant(show_name(text), _where(place))


def _hook_grants(hook: HookSettings, held: HookSettings) -> Iterator[Grant]:
    # `sandbox_ignored` is not here: it only hides scratch work from git, and allows nothing.
    if hook.on_allow == "approve" != held.on_allow:
        yield Grant("[hook] an allow skips the client's own question")
    if hook.warnings == "off" != held.warnings:
        yield Grant("[hook] warnings are off")
    if hook.warnings == "once" and held.warnings == "all":
        yield Grant("[hook] a warning is given once in a session")
    for pattern in hook.also_write or ():
        if pattern not in (held.also_write or ()):
            yield Grant(f"[hook] the client may also write {show_name(pattern)}")
    if hook.shell == "read" != held.shell:
        yield Grant("[hook] the client's own commands no longer run in the sandbox")
    for pattern in hook.outside:
        if pattern not in held.outside:
            yield Grant(f"[hook] commands like {show_name(pattern)} run outside the sandbox")
    if held.paranoid and not hook.paranoid:
        yield Grant("[hook] writing outside what is safe is no longer denied")


def _path_restraints(document: PolicyDocument, held: PathsTable) -> Iterator[Grant]:
    for name, before, after in _path_lists(document, held):
        for pattern in _added(before or (), after or ()):
            yield Grant(f"[paths] {_text(pattern)} is {name}", _where(pattern.place))


def _profile_restraints(profile: Profile, preset: Profile | None) -> Iterator[Grant]:
    if preset is None:
        # There was no profile before, and what a new one denies was denied anyway.
        return
    name = f"profile {show_name(profile.name)}"
    if profile.name not in profile.extends and not _repeats(profile, preset):
        which = "the built-in one" if preset in presets() else "that of your configuration"
        text = f"{name} replaces {which}: what it does not name is {_unnamed_answer(profile)}"
        yield Grant(text, _where(profile.place))
    known = {(rule.pattern.text, rule.outcome) for rule in preset.rules}
    for rule in profile.rules:
        is_known = (rule.pattern.text, rule.outcome) in known
        if not is_known and rule.outcome >= _usual_answer(preset, rule.pattern.head):
            yield _rule_grant(name, rule)
    known_otherwise = {(entry.head.text, entry.outcome) for entry in preset.otherwise}
    for entry in profile.otherwise:
        is_known = (entry.head.text, entry.outcome) in known_otherwise
        if not is_known and entry.outcome >= _usual_answer(preset, entry.head, profile.otherwise):
            yield _otherwise_grant(name, entry)


def _over(changes: ShellChanges | None, shell: ShellSettings) -> ShellSettings:
    return shell if changes is None else changes.over(shell)


def _text(pattern: PathPattern) -> str:
    return show_name(pattern.text)


def _where(place: Place) -> str:
    return f"line {place.line}" if place.line else ""


# The answers of the replaced profile, to find what the new one loosens.


def _usual_answer(before: Profile, head: HeadPattern, kept: tuple[Otherwise, ...] = ()) -> Outcome:
    """Return the strictest answer that `before` gives to anything that `head` names.

    Leave out entries of `before` that `kept`, the new profile's entries, repeats as strictly.

    Threat: a rule that loosens one of several operations must not pass for strict. So a mild answer
    counts only if it covers everything that `head` names, whatever the target, and a strict answer
    counts if it covers any of it.
    """
    if any(rule.outcome is not Outcome.ALLOW for rule in before.rules):
        return Outcome.DENY
    allowed = (rule.pattern.head for rule in before.rules if rule.is_for_every_call)
    if any(_covers(each, head) for each in allowed):
        return Outcome.ALLOW
    if not any(_covers(entry.head, head) for entry in before.otherwise):
        return Outcome.DENY
    lost = (
        entry.outcome
        for entry in before.otherwise
        if _meets(entry.head, head) and not _is_kept(entry, kept)
    )
    return max(lost, default=Outcome.ALLOW)


def _is_kept(entry: Otherwise, kept: tuple[Otherwise, ...]) -> bool:
    # Where entries overlap, the strictest answers.
    return any(_covers(each.head, entry.head) and each.outcome >= entry.outcome for each in kept)


def _covers(one: HeadPattern, other: HeadPattern) -> bool:
    # `tool:*` opens no network: only a rule that names the network does.
    is_named = "net" not in (one.category, other.category) or one.category == other.category
    return is_named and one.matches(other.category, other.operation)


def _meets(one: HeadPattern, other: HeadPattern) -> bool:
    operations = (one.operation, other.operation)
    is_named_alike = one.operation.casefold() == other.operation.casefold()
    return (ANY in (one.category, other.category) or one.category == other.category) and (
        ANY in operations or is_named_alike
    )


def _repeats(profile: Profile, replaced: Profile) -> bool:
    """Return True if `profile` repeats each rule and `otherwise`, and so only adds."""
    rules = {(rule.pattern.text, rule.outcome, rule.when) for rule in profile.rules}
    wanted = ((rule.pattern.text, rule.outcome, rule.when) for rule in replaced.rules)
    is_whole = all(each in rules for each in wanted)
    return is_whole and _ends(profile) == _ends(replaced)


def _unnamed_answer(profile: Profile) -> str:
    parts: list[str] = []
    for outcome in reversed(Outcome):
        heads = [entry.head for entry in profile.otherwise if entry.outcome is outcome]
        if any((head.category, head.operation) == (ANY, ANY) for head in heads):
            return ", else ".join((*parts, _DONE[outcome]))
        if heads:
            parts.append(f"{_DONE[outcome]} ({', '.join(map(_short, heads))})")
    if all(entry.outcome is Outcome.DENY for entry in profile.otherwise):
        return _DONE[Outcome.DENY]
    return f"{', '.join(parts)}, else {_DONE[Outcome.DENY]}"


def _ends(profile: Profile) -> set[tuple[str, Outcome]]:
    return {(entry.head.text, entry.outcome) for entry in profile.otherwise}


def _short(head: HeadPattern) -> str:
    words = (head.category,) if head.operation == ANY else (head.category, head.operation)
    return show_name(":".join(words))
