"""`policy lint`: rules that do nothing, and grants that give more than they seem to.

Nothing here stops a load. A finding is sound for the cases it names; no finding proves nothing.
"""

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from paddock.policy.actions import HeadPattern, parse_concrete
from paddock.policy.engine import Policy, Writer
from paddock.policy.load import PolicyDocument
from paddock.policy.places import BUILT_IN, Place, quote_toml
from paddock.policy.presets import RARELY_CONFINED, presets
from paddock.policy.profiles import rule_matches
from paddock.policy.questions.coverage import (
    IdleException,
    covering_rules,
    idle_exceptions,
    is_swallowed,
    path_samples,
)
from paddock.policy.reader import Text
from paddock.policy.rules import Profile, Rule
from paddock.text.show import name_some
from paddock.values.calls import Json
from paddock.values.decisions import Action, Outcome

INTERPRETERS: Final = frozenset(
    (
        "awk bash bun busybox dash deno docker env eval find gawk ksh lua make node npx parallel "
        "perl php pip podman python python3 ruby sed sh sudo tclsh uv uvx vim xargs zsh"
    ).split()
)

RUNNERS: Final = frozenset(
    (
        "IPython asyncio bdb bpython cProfile code codeop coverage debugpy doctest execnet idlelib "
        "inspect invoke ipdb ipykernel jupyter kernprof line_profiler memory_profiler memray nox "
        "pdb pickle pipx poetry profile profiling ptpython pudb py_spy pydoc pyinstrument pyperf "
        "rlcompleter runpy scalene slipcover sqlite3 timeit torch.distributed tox trace trepan "
        "viztracer watchfiles xonsh"
    ).split()
)
"""Modules that run a text, a file or a module that their arguments name, as `python` does."""


def find_interpreter(rule: Rule) -> str:
    """Look at the module that `-m` names in place of Python, as the decision itself does."""
    words = rule.pattern.target.split()
    program = words[0].rpartition("/")[2]
    if program not in INTERPRETERS or not words[-1].endswith("*"):
        return ""
    module = _module(rule) if program.startswith("python") else ""
    if not module:
        return program
    packages = module.split(".")
    names = {".".join(packages[:count]) for count in range(1, len(packages) + 1)}
    return f"{program} -m {module}" if names & (RUNNERS | INTERPRETERS) else ""


def find_unconfined(rule: Rule) -> str:
    words = rule.pattern.target.split()
    program = words[0].rpartition("/")[2] if words else ""
    return program if program in RARELY_CONFINED else ""


def _module(rule: Rule) -> str:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    if rule.command is None:
        return ""
    texts: list[str] = []
    for word in rule.command.words:
        if not word.is_literal:
            break
        texts.append(word.parts[0])
    command = parse_line(shlex.join(texts)).commands[0]
    return texts[command.starts[1]] if len(command.starts) > 1 else ""


TRACKED_HINT: Final = (
    "git rm --cached takes a file out of what is tracked, and a new secret is needed: history"
    " keeps the old one; for a file that is no secret, add it to secret with a ! before it"
)
_DOES_NOT_HOLD: Final = "without extends a profile here replaces the one of its name whole"
_ANYTHING: Final = "tool:*"
_OTHER_WRITES: Final = ("str_replace", "delete", "link", "mode")
"""What changes a file besides `create`; of the first two people think as of writing."""


class LintFinding(Struct, frozen=True):
    code: str
    message: str
    place: Place
    hint: str

    def render(self) -> str:
        return f"{self.place}: {self.code}: {self.message}\n  hint: {self.hint}"


class _Danger(Struct, frozen=True):
    key: tuple[str, str]
    value: Json
    code: str
    message: str
    hint: str


_DANGERS: Final = (
    _Danger(
        ("shell", "network"),
        "host",
        "lint.network_host",
        "gives every command the network of this machine",
        'set network = "host" on the rules that need it',
    ),
    _Danger(
        ("shell", "enforcement"),
        "best-effort",
        "lint.best_effort",
        "runs commands where the host cannot hold them to the policy",
        "paddock doctor says what the host lacks",
    ),
    _Danger(
        ("shell", "git"),
        "none",
        "lint.git_none",
        "leaves .git to protected alone",
        'git = "safe" lets ordinary git operations through and nothing that runs code later',
    ),
    _Danger(
        ("paths", "protected"),
        [],
        "lint.nothing_protected",
        "is empty: .git, keys and .env may be written",
        "leave the key out for the default",
    ),
    _Danger(
        ("paths", "secret"),
        [],
        "lint.nothing_secret",
        "is empty: keys and .env may be read",
        "leave the key out for the default",
    ),
    _Danger(
        ("ledger", "keep_model_contents"),
        True,
        "lint.contents_kept",
        "keeps what people and models wrote",
        "leave it out unless somebody needs the contents",
    ),
    *(
        _Danger(
            ("hook", "sandbox_shell"),
            value,
            "lint.old_name",
            f'is an old name: it is read as hook.shell = "{word}"',
            f'write shell = "{word}" in its place',
        )
        for value, word in ((True, "confine"), (False, "read"))
    ),
)


def lint(policy: Policy, tracked: Sequence[str] = ()) -> tuple[LintFinding, ...]:
    """Return every finding by file and line; `tracked` are the paths that git tracks."""
    found = [*_profile_findings(policy)]
    for document in policy.documents:
        found.extend(_setting_findings(document))
        found.extend(map(_idle, idle_exceptions(document.paths)))
    found.extend(_tracked(policy, tracked))
    # What a profile has from another one is found with each of them.
    found = list(dict.fromkeys(found))
    return tuple(sorted(found, key=lambda each: (each.place.file, each.place.line, each.code)))


def find_tracked_secrets(policy: Policy, tracked: Sequence[str]) -> tuple[str, ...]:
    return tuple(path for path in tracked if policy.guards.find_secret(path) is not None)


def describe_tracked(paths: Sequence[str]) -> str:
    count = "1 tracked file is" if len(paths) == 1 else f"{len(paths)} tracked files are"
    return (
        f"{count} secret: {name_some(paths)}; git's objects give the content to every command,"
        " and only what the working copy has besides stays closed"
    )


def _tracked(policy: Policy, tracked: Sequence[str]) -> Iterator[LintFinding]:
    by_place: dict[Place, list[str]] = {}
    for path in find_tracked_secrets(policy, tracked):
        found = policy.guards.find_secret(path)
        if found is not None:
            by_place.setdefault(found.place, []).append(path)
    for place, paths in by_place.items():
        yield LintFinding("lint.secret_tracked", describe_tracked(paths), place, TRACKED_HINT)


def _profile_findings(policy: Policy) -> Iterator[LintFinding]:
    built_in = {profile.name: profile for profile in presets()}
    for profile in (*policy.profile_table, *policy.overlays):
        if profile.place.file == BUILT_IN:
            continue
        yield from _closed(profile) or _replaced(profile, built_in.get(profile.name))
        yield from _covered(profile)
        for rule in profile.rules:
            if rule.place.file == BUILT_IN:
                continue
            yield from _rule_findings(policy, rule)
            yield from _half_denied(policy, profile, rule)
            yield from _other_names(rule)


def _closed(profile: Profile) -> tuple[LintFinding, ...]:
    """A profile that only denies denies the rest, too: who wrote it may have meant "besides"."""
    said = [rule.outcome for rule in profile.rules] + [each.outcome for each in profile.otherwise]
    says_so = any(rule.pattern.text == _ANYTHING for rule in profile.rules)
    if says_so or any(outcome is not Outcome.DENY for outcome in said):
        return ()
    message = f"the profile {quote_toml(profile.name)} allows nothing: what no rule names is denied"
    hint = f'{_DOES_NOT_HOLD}. If nothing is meant to be allowed, say deny = ["{_ANYTHING}"]'
    return (LintFinding("lint.allows_nothing", message, profile.place, hint),)


def _replaced(profile: Profile, before: Profile | None) -> Iterator[LintFinding]:
    if before is None or profile.name in profile.extends:
        return
    heads = [rule.pattern.head for rule in profile.rules if not rule.pattern.has_target]
    ends = [entry.head for entry in profile.otherwise]
    lost = [rule.pattern.text for rule in before.rules if not _is_said(rule.pattern.head, heads)]
    lost += [
        f"otherwise {entry.outcome.word} {entry.head.text}"
        for entry in before.otherwise
        if not _is_said(entry.head, (*heads, *ends))
    ]
    if before.shell is not None and profile.shell is None:
        lost.append("[shell]")
    if lost:
        yield LintFinding(
            "lint.profile_replaced",
            f"the profile {quote_toml(profile.name)} replaces the built-in one and loses"
            f" {name_some(lost)}",
            profile.place,
            f"extends = {quote_toml(profile.name)} keeps them; {_DOES_NOT_HOLD}",
        )


def _is_said(head: HeadPattern, by: Sequence[HeadPattern]) -> bool:
    return any(each.matches(head.category, head.operation) for each in by)


def _covered(profile: Profile) -> Iterator[LintFinding]:
    for rule, stronger in covering_rules(profile.rules):
        yield LintFinding(
            "lint.rule_covered",
            f"{quote_toml(rule.pattern.text)} never decides: {quote_toml(stronger.pattern.text)} "
            f"({stronger.outcome.word}, {stronger.place}) covers it whole",
            rule.place,
            "remove it, or make the other rule narrower",
        )


def _rule_findings(policy: Policy, rule: Rule) -> Iterator[LintFinding]:
    text = quote_toml(rule.pattern.text)
    if rule.outcome is Outcome.DENY:
        return
    swallowed = is_swallowed(policy.guards, rule)
    if swallowed is not None:
        yield LintFinding(
            "lint.rule_never",
            f"{text} never decides: {quote_toml(swallowed.text)} ({swallowed.place}) stands"
            " above it",
            rule.place,
            "remove it, or change the list under [paths]",
        )
    if rule.network == "host":
        yield LintFinding(
            "lint.network_host",
            f"{text} gives a command the network of this machine",
            rule.place,
            "what the command can read can leave; keep the pattern as narrow as it can be",
        )
    if rule.outcome is not Outcome.ALLOW or "shell" not in rule.pattern.head.categories:
        return
    if rule.command is None or rule.command.is_any:
        yield LintFinding(
            "lint.any_command",
            f"{text} allows every command",
            rule.place,
            "name the programs, and leave the rest to otherwise",
        )
        return
    hook, program = policy.settings.hook, find_unconfined(rule)
    outside = {words[0] for pattern in hook.outside if (words := pattern.split())}
    if program and hook.shell == "confine" and program not in outside:
        yield LintFinding(
            "lint.rarely_confined",
            f"{text} is confined like any command, and {program} rarely works so: it wants the"
            " network, the home or a daemon",
            rule.place,
            f'outside = ["{program} *"] in [hook] leaves it to the client and its own prompt',
        )
    interpreter = find_interpreter(rule)
    if interpreter:
        yield LintFinding(
            "lint.interpreter",
            f"{text} allows every command: {interpreter} runs what its arguments say",
            rule.place,
            "name what it runs, as in python -m pytest * or make test",
        )


def _other_names(rule: Rule) -> Iterator[LintFinding]:
    """Options that a rule closes by one of their names, the others of which nobody told us."""
    from paddock.policy.commands.pattern import SAME_OPTIONS  # noqa: PLC0415 - late on purpose

    options = rule.command.options if rule.command and rule.outcome >= Outcome.ASK else ()
    unknown = sorted(set(options).difference(SAME_OPTIONS.values()))
    names = ", ".join(each if each.startswith("-") else f"-{each}" for each in unknown)
    if names:
        yield LintFinding(
            "lint.option_names",
            f"{quote_toml(rule.pattern.text)} knows no other name of {names}",
            rule.place,
            "where the program has one, long or short, name it in a rule of its own",
        )


def _half_denied(policy: Policy, profile: Profile, rule: Rule) -> Iterator[LintFinding]:
    """Who closes a place to `create` mostly means all writing, and edits still go through."""
    head, path = rule.pattern.head, rule.pattern.path
    if rule.outcome is Outcome.ALLOW or path is None:
        return
    if (head.category, head.operation) != ("file", "create"):
        return
    guards = policy.guards
    samples = [
        sample
        for sample in path_samples(path)
        if not any(guards.denials(sample, is_write=True, writer=Writer.FILE_TOOL))
    ]
    judge = policy.compiled_profile(profile.name).judge
    allowed = [
        operation
        for operation in _OTHER_WRITES
        if any(
            judge(Action("file", operation, sample)).finding.outcome is Outcome.ALLOW
            for sample in samples
        )
    ]
    if not {"str_replace", "delete"}.intersection(allowed):
        return
    done = "denied" if rule.outcome is Outcome.DENY else "asked about"
    left = " and ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
    yield LintFinding(
        "lint.half_denied",
        f"{quote_toml(rule.pattern.text)} is {done}, and {left} stay allowed on the same paths",
        rule.place,
        "to stop all writing there, put the path into [paths] protected; or name these, too",
    )


def _idle(found: IdleException) -> LintFinding:
    above = quote_toml(found.above.text)
    hint = f"make {above} narrower: nothing below a directory that matched is taken out"
    if found.instead:
        hint = f"write {quote_toml(found.instead)} in place of {above}"
    return LintFinding(
        "lint.takes_back_nothing",
        f"{quote_toml(found.pattern.text)} takes back nothing from {found.name}:"
        f" it lies below {above}",
        found.pattern.place,
        hint,
    )


def _setting_findings(document: PolicyDocument) -> Iterator[LintFinding]:
    for danger in _DANGERS:
        for way in _ways(document, danger.key):
            if _value(document, way) == danger.value:
                place = document.document.place(way)
                message = f"{'.'.join(way)} {danger.message}"
                yield LintFinding(danger.code, message, place, danger.hint)


def _value(document: PolicyDocument, way: tuple[str, ...]) -> Json:
    found: Json = document.document.values
    for part in way:
        # A document that loaded has tables where tables belong.
        found = found.get(part, {})
    return found


def _ways(document: PolicyDocument, key: tuple[str, str]) -> Iterator[tuple[str, ...]]:
    yield key
    if key[0] == "shell":
        for profile in document.profiles:
            yield "profiles", profile.name, *key


# A file with a false example does not load, so a policy that exists has none; the
# report shows which promises were kept, and how many.


class ExampleResult(Struct, frozen=True):
    profile: str
    pattern: str
    example: Text
    wanted: bool
    holds: bool

    def render(self) -> str:
        verdict = "ok" if self.holds else "FALSE"
        verb = "matches" if self.wanted else "does not match"
        return f"{verdict}: {self.example.text!r} {verb} {self.pattern!r} ({self.example.place})"


def run_examples(policy: Policy) -> tuple[ExampleResult, ...]:
    # A rule that other profiles have from its own is judged once.
    return tuple({(each.example, each.pattern): each for each in _results(policy)}.values())


def _results(policy: Policy) -> Iterator[ExampleResult]:
    for profile in (*policy.profile_table, *policy.overlays):
        for rule in profile.rules:
            for example in rule.match:
                yield _result(profile.name, rule, example, wanted=True)
            for example in rule.not_match:
                yield _result(profile.name, rule, example, wanted=False)


def _result(profile: str, rule: Rule, example: Text, wanted: bool) -> ExampleResult:
    holds = rule_matches(rule, parse_concrete(example.text)) is wanted
    return ExampleResult(profile, rule.pattern.text, example, wanted, holds)
