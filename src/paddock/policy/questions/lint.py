"""`policy lint`: find rules without effect, and grants that are wider than they seem.

A finding is correct for the cases it names; no finding proves nothing. Whether one pattern covers
another is tested with samples: the other pattern with its wildcards filled in. Brackets match only
some characters, so a pattern with brackets is never reported to cover another one.
"""

import shlex
from collections.abc import Iterator, Sequence
from itertools import product, takewhile
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.policy.compiled import GENERATED, ONE, PROTECTED, SECRET, find_hits, fold, matches_name
from paddock.policy.engine import GUARDING_LISTS, PathGuards, Policy, Writer
from paddock.policy.globs import DEPTH, Glob, Segment, fold_segment, literal_of, split_lead
from paddock.policy.load import PathsTable, PolicyDocument
from paddock.policy.pathset import (
    ROOT,
    Comparison,
    PathList,
    PathPattern,
    build_index,
    compile_pattern,
    has_class,
)
from paddock.policy.positions import BUILT_IN, PatternError, Place, quote_toml
from paddock.policy.presets import RARELY_CONFINED, built_in_paths, presets
from paddock.policy.profiles import CompiledProfile
from paddock.policy.rules import (
    ActionPattern,
    HeadPattern,
    Profile,
    Rule,
    TargetKind,
    matches_widely,
)
from paddock.policy.settings import credential_problems
from paddock.text.show import name_some
from paddock.values.calls import Json
from paddock.values.decisions import WRITING_OPERATIONS, Action, Outcome

FILL: Final = "\x01\x02"  # a text that no pattern of a policy holds
_FILLS: Final = ("", FILL[0], FILL, FILL * 2)
"""Texts put in place of a star. Nothing and one character come first: `??*` matches neither."""


class IdleException(Struct, frozen=True):
    name: str
    pattern: PathPattern
    above: PathPattern
    instead: str


def covering_rules(rules: tuple[Rule, ...]) -> Iterator[tuple[Rule, Rule]]:
    index = build_index(
        (number, rule.pattern.path, Comparison.GUARDING)
        for number, rule in enumerate(rules)
        if rule.pattern.path is not None and not has_class(rule.pattern.path.glob)
    )
    first: dict[str, int] = {}
    others = [n for n, rule in enumerate(rules) if rule.pattern.path is None]
    for number, rule in enumerate(rules):
        candidates = list(others)
        if rule.pattern.path is not None:
            samples = _samples(rule.pattern.path)
            found = ({number for _, number in find_hits(index, sample)} for sample in samples)
            candidates += sorted(set[int].intersection(*found))
        candidates.append(first.setdefault(rule.pattern.text, number))
        for candidate in candidates:
            other = rules[candidate]
            if candidate != number and _is_stronger(other, rule, candidate < number):
                yield rule, other
                break


def idle_exceptions(paths: PathsTable) -> Iterator[IdleException]:
    for name in GUARDING_LISTS:
        patterns: tuple[PathPattern, ...] = getattr(paths, name) or ()
        listed = PathList(patterns, Comparison.GUARDING)
        for pattern in patterns:
            above = listed.find_above(pattern) if pattern.negated else None
            if above is not None:
                yield IdleException(name, pattern, above, _instead(patterns, pattern, above))


def _instead(patterns: tuple[PathPattern, ...], pattern: PathPattern, above: PathPattern) -> str:
    # A pattern with a slash is anchored at the root.
    text = f"{'**/' if above.glob.anywhere else ''}{above.text.rstrip('/')}/**"
    try:
        wide = compile_pattern(text)
    except PatternError:
        return ""
    changed = (wide if each == above else each for each in patterns)
    listed = PathList(changed, Comparison.GUARDING)
    is_open = all(listed.find(sample) is None for sample in path_samples(pattern))
    return text if is_open and not above.text.endswith(" ") else ""


def is_swallowed(guards: PathGuards, rule: Rule) -> PathPattern | None:
    path = rule.pattern.path
    if path is None:
        return None
    whole = replace(guards, lists=tuple(each for each in guards.lists if _is_whole(*each, path)))
    found = [_swallowing(whole, rule.pattern, sample) for sample in _samples(path)]
    first = found[0]
    return first if first is not None and all(each is not None for each in found) else None


def _is_whole(kind: str, listed: PathList, path: PathPattern) -> bool:
    """Return True if no `!` of the list excludes a path that `path` matches."""
    negated = (each.glob for each in listed.patterns if each.negated)
    return kind not in GUARDING_LISTS or not any(_may_meet(path.glob, each) for each in negated)


def _may_meet(one: Glob, other: Glob) -> bool:
    """Return False if the leading names, or the last one, exclude a path that matches both."""
    if not (one.anywhere or other.anywhere):
        leads = (fold(split_lead(each.segments)[0]).split("/") for each in (one, other))
        if any(first != second for first, second in zip(*leads, strict=False) if first and second):
            return False
    ends = [fold_segment(each.segments[-1]) for each in (one, other)]
    for end, against in (ends, reversed(ends)):
        if (name := literal_of(end)) is not None and against != DEPTH:
            return matches_name(against, name)
    return True


def _samples(pattern: PathPattern) -> tuple[str, ...]:
    glob = pattern.glob
    segments = tuple(
        tuple(ONE if isinstance(piece, tuple) else piece for piece in segment)
        for segment in glob.segments
    )
    plain = replace(pattern, glob=replace(glob, segments=segments))
    return path_samples(plain) + ((ROOT,) if glob.covers_root else ())


def path_samples(pattern: PathPattern, fills: Sequence[str] = _FILLS) -> tuple[str, ...]:
    glob = pattern.glob
    found: list[str] = []
    for fill, depth in product(fills, (0, 1, 2)):
        # No component is empty: a component of only a star gets a character.
        name = fill or fills[1]
        parts: list[str] = []
        for segment in glob.segments:
            if segment == DEPTH:
                parts += [name] * depth
            else:
                parts.append(_filled(segment, fill, fills[1]) or name)
        if glob.segments[-1] == DEPTH and depth == 0:
            parts.append(name)
        if glob.anywhere:
            parts = [name] * depth + parts
        found.append("/".join(parts))
    return tuple(dict.fromkeys(found))


def _filled(segment: Segment, fill: str, one: str) -> str:
    out = ""
    for piece in segment:
        if isinstance(piece, str):
            out += piece
        elif isinstance(piece, tuple):
            negated, ranges = piece
            out += ranges[0][0] if ranges and not negated else one
        else:
            out += one if piece == ONE else fill
    return out


def _swallowing(guards: PathGuards, pattern: ActionPattern, path: str) -> PathPattern | None:
    secret = guards.find_secret(path)
    if secret is not None:
        return None if has_class(secret.glob) else secret
    head = pattern.head
    # A rule that also reads still decides something on a protected path.
    if (head.category, head.operation) not in WRITING_OPERATIONS:
        return None
    found = guards.find_protected(path) or guards.find_generated(path)
    return None if found is None or has_class(found.glob) else found


def _is_stronger(other: Rule, rule: Rule, is_earlier: bool) -> bool:
    if other.outcome < rule.outcome or not _is_said(rule.pattern.head, [other.pattern.head]):
        return False
    if other.outcome is rule.outcome:
        # Of two equal rules only the later one is superfluous.
        is_twin = other.pattern.text == rule.pattern.text and other.extras == rule.extras
        return is_twin and is_earlier
    # A rule's network setting applies even if a stricter rule decides.
    return rule.extras == () and other.when is None and _covers_target(other, rule)


def _covers_target(other: Rule, rule: Rule) -> bool:
    if other.pattern.kind is None:
        return True
    if other.pattern.path is not None:
        # `covering_rules` has checked that it matches every sample of `rule`.
        return rule.pattern.path is not None
    if other.pattern.kind is rule.pattern.kind is TargetKind.NAME:
        names = (rule.pattern.target.replace("*", fill) for fill in ("", FILL))
        return all(matches_widely(other.pattern.target, name) for name in names)
    return other.command is not None and _covers_command(other, rule)


def _covers_command(other: Rule, rule: Rule) -> bool:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    if other.command is None or other.command.is_any:
        return other.command is not None
    if rule.command is None or rule.command.is_any:
        return False
    target = rule.pattern.target
    bare = target.removesuffix(" *")
    samples = [bare.replace("*", "qqq"), target.replace("*", "qqq"), target.replace("*", "qqq qq")]
    for sample in samples:
        commands = parse_line(sample).commands
        # A `confine` that matches only a possible reading depends on the other rule.
        is_confined = other.outcome is Outcome.CONFINE
        pattern = other.command
        matches = pattern.matches_exactly if is_confined else pattern.matches_any_reading
        if not commands or not all(map(matches, commands)):
            return False
    return True


INTERPRETERS: Final = frozenset(
    "awk bash bun busybox dash deno docker env eval find gawk ksh lua make node npx parallel "
    "perl php pip podman python python3 ruby sed sh sudo tclsh uv uvx vim xargs zsh".split()
)

RUNNERS: Final = frozenset(
    "IPython asyncio bdb bpython cProfile code codeop coverage debugpy doctest execnet idlelib "
    "inspect invoke ipdb ipykernel jupyter kernprof line_profiler memory_profiler memray nox "
    "pdb pickle pipx poetry profile profiling ptpython pudb py_spy pydoc pyinstrument pyperf "
    "rlcompleter runpy scalene slipcover sqlite3 timeit torch.distributed tox trace trepan "
    "viztracer watchfiles xonsh".split()
)
"""Modules that, like `python`, run a text, a file or a module named by their arguments."""


def find_interpreter(rule: Rule) -> str:
    """Return the interpreter, or the Python module run with `-m`, that may run anything; or ""."""
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


def _module(rule: Rule) -> str:
    from paddock.policy.commands import parse_line  # noqa: PLC0415 - late on purpose

    if rule.command is None:
        return ""
    texts = [word.parts[0] for word in takewhile(lambda word: word.is_literal, rule.command.words)]
    command = parse_line(shlex.join(texts)).commands[0]
    return texts[command.starts[1]] if len(command.starts) > 1 else ""


TRACKED_HINT: Final = (
    "git rm --cached stops tracking a file, and a new secret is needed: history keeps the old one;"
    " for a file that is not secret, add it to secret with a ! before it"
)
_REPLACES: Final = "without extends, a profile replaces the one of the same name completely"
_ANYTHING: Final = "tool:*"
_OTHER_WRITES: Final = ("str_replace", "delete", "link", "mode")
"""Other operations that change a file; people think of the first two as writing."""


class LintFinding(Struct, frozen=True):
    code: str
    message: str
    place: Place
    hint: str

    def render(self) -> str:
        return f"{self.place}: {self.code}: {self.message}\n  hint: {self.hint}"

    def as_json(self) -> dict[str, Json]:
        said: dict[str, Json] = {"code": self.code, "message": self.message, "hint": self.hint}
        return {**said, "file": self.place.file, "line": self.place.line}


_DEFAULT: Final = "leave the key out for the default"
_DANGERS: Final[tuple[tuple[tuple[str, str], Json, str, str, str], ...]] = (
    (("shell", "network"), "host", "lint.network_host",
            "gives every command the network of this machine",
            'set network = "host" on the rules that need it'),
    (("shell", "enforcement"), "best-effort", "lint.best_effort",
            "runs commands even if the host cannot enforce the policy",
            "paddock doctor shows what the host lacks"),
    (("shell", "git"), "none", "lint.git_none", "leaves .git to protected only",
            'git = "safe" allows ordinary git operations, but no change that runs code later'),
    (("paths", "protected"), [], "lint.nothing_protected",
            "is empty: .git, keys and .env may be written", _DEFAULT),
    (("paths", "secret"), [], "lint.nothing_secret",
            "is empty: keys and .env may be read", _DEFAULT),
    (("ledger", "keep_model_contents"), True, "lint.contents_kept",
            "keeps the texts of people and models",
            "leave it out unless the contents are needed"),
    *((("hook", "sandbox_shell"), value, "lint.old_name",
       f'is an old name: it is read as hook.shell = "{word}"',
       f'write shell = "{word}" in its place')
      for value, word in ((True, "confine"), (False, "read"))),
)  # fmt: skip


def lint(policy: Policy, tracked: Sequence[str] = ()) -> tuple[LintFinding, ...]:
    """Return every finding by file and line; `tracked` are the paths that git tracks."""
    found = [*_profile_findings(policy), *_lost_names(policy), *_tracked(policy, tracked)]
    for document in policy.documents:
        found.extend(_setting_findings(document))
        found.extend(_unknown_credentials(policy, document))
        found.extend(map(_idle, idle_exceptions(document.paths)))
    # A rule that several profiles share is found with each of them.
    once = dict.fromkeys(found)
    return tuple(sorted(once, key=lambda each: (each.place.file, each.place.line, each.code)))


_CLOSING: Final = {PROTECTED: (PROTECTED, SECRET), GENERATED: GUARDING_LISTS, SECRET: (SECRET,)}


def _lost_names(policy: Policy) -> Iterator[LintFinding]:
    """Report built-in names that a list loses: its author may not know that it replaces them."""
    guards, built_in = policy.as_if_trusted().guards, built_in_paths()
    for name, kinds in _CLOSING.items():
        givers = [each for each in policy.documents if getattr(each.paths, name) is not None]
        given: tuple[PathPattern, ...] = getattr(givers[-1].paths, name) if givers else ()
        opened = (PathPattern(replace(each.glob, negated=False)) for each in given if each.negated)
        said = (*guards.layers(*kinds), PathList(opened, Comparison.GUARDING))
        lost = [
            quote_toml(each.text)
            for each in getattr(built_in, name)
            if not each.negated
            and any(all(one.find(path) is None for one in said) for path in path_samples(each))
        ]
        if given and lost:
            yield LintFinding(
                "lint.names_lost",
                f"paths.{name} replaces the built-in list and loses {', '.join(lost)}",
                givers[-1].document.place(("paths", name)),
                "add them, with a ! before each that is left out on purpose",
            )


def find_tracked_secrets(policy: Policy, tracked: Sequence[str]) -> tuple[str, ...]:
    return tuple(path for path in tracked if policy.guards.find_secret(path) is not None)


def describe_tracked(paths: Sequence[str]) -> str:
    count = "1 tracked file is" if len(paths) == 1 else f"{len(paths)} tracked files are"
    return (
        f"{count} secret: {name_some(paths)}; every command can read the content from git's"
        " objects, and only uncommitted changes stay closed"
    )


def _tracked(policy: Policy, tracked: Sequence[str]) -> Iterator[LintFinding]:
    by_place: dict[Place, list[str]] = {}
    for path in tracked:
        if (found := policy.guards.find_secret(path)) is not None:
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
        compiled = policy.compile_profiles(profile.name)
        for rule in profile.rules:
            if rule.place.file == BUILT_IN:
                continue
            yield from _rule_findings(policy, rule)
            yield from _half_denied(policy, compiled, rule)
            yield from _other_names(rule)
            yield from _unknown_server(policy, rule)


def _closed(profile: Profile) -> tuple[LintFinding, ...]:
    """Report a profile that only denies: all else is denied too, perhaps not intentionally."""
    said = [rule.outcome for rule in profile.rules] + [each.outcome for each in profile.otherwise]
    says_so = any(rule.pattern.text == _ANYTHING for rule in profile.rules)
    if says_so or any(outcome is not Outcome.DENY for outcome in said):
        return ()
    message = f"the profile {quote_toml(profile.name)} allows nothing: what no rule names is denied"
    hint = f'{_REPLACES}. If that is intended, write deny = ["{_ANYTHING}"]'
    return (LintFinding("lint.allows_nothing", message, profile.place, hint),)


def _replaced(profile: Profile, before: Profile | None) -> Iterator[LintFinding]:
    if before is None or profile.name in profile.extends:
        return
    heads = [rule.pattern.head for rule in profile.rules if rule.is_for_every_call]
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
            f"extends = {quote_toml(profile.name)} keeps them; {_REPLACES}",
        )


def _is_said(head: HeadPattern, by: Sequence[HeadPattern]) -> bool:
    return any(each.matches(head.category, head.operation) for each in by)


_OF_RULES: Final = {
    "lint.rule_covered": ("never decides: {} covers it completely",
                          "remove it, or make the other rule narrower"),
    "lint.rule_never": ("never decides: {} overrides it",
                        "remove it, or change the list under [paths]"),
    "lint.network_host": ("gives a command the network of this machine",
                          ("the command can send out all it can read; keep the pattern as narrow"
                          " as possible")),
    "lint.network_wide": ("{}", "name the hosts and networks that are meant, or let it ask"),
    "lint.any_command": ("allows every command",
                         "name the programs, and leave the rest to otherwise"),
    "lint.rarely_confined": (("is confined like any command, but {0} rarely works so: it needs the"
                             " network, the home or a daemon"),
                             ('outside = ["{0} *"] in [hook] leaves it to the client and its own'
                             " prompt")),
    "lint.interpreter": ("allows every command: {} runs any code in its arguments",
                         "name the code it runs, as in python -m pytest * or make test"),
    "lint.option_names": ("knows no other name of {}",
                          "if the program has one, long or short, name it in a separate rule"),
    "lint.mcp_server": ("names the unknown server {}",
                        "add [mcp.servers.NAME], or correct the name"),
    "lint.half_denied": ("is {1}, but {0} stay allowed on the same paths",
                         ("to stop all writing there, put the path into [paths] protected; or deny"
                         " these, too")),
}  # fmt: skip
"""By code: the message after the rule's text, and the hint."""


def _of_rule(code: str, rule: Rule, *values: str) -> LintFinding:
    message, hint = (text.format(*values) for text in _OF_RULES[code])
    return LintFinding(code, f"{quote_toml(rule.pattern.text)} {message}", rule.place, hint)


def _covered(profile: Profile) -> Iterator[LintFinding]:
    for rule, stronger in covering_rules(profile.rules):
        where = f"{stronger.outcome.word}, {stronger.place}"
        yield _of_rule("lint.rule_covered", rule, f"{quote_toml(stronger.pattern.text)} ({where})")


def _rule_findings(policy: Policy, rule: Rule) -> Iterator[LintFinding]:
    if rule.outcome is Outcome.DENY:
        return
    swallowed = is_swallowed(policy.guards, rule)
    if swallowed is not None:
        yield _of_rule("lint.rule_never", rule, f"{quote_toml(swallowed.text)} ({swallowed.place})")
    if rule.network == "host":
        yield _of_rule("lint.network_host", rule)
    if rule.outcome is Outcome.ALLOW and rule.pattern.net is not None:
        from paddock.policy.network import describe_width  # noqa: PLC0415 - late on purpose

        if width := describe_width(rule):
            yield _of_rule("lint.network_wide", rule, width)
    if rule.outcome is not Outcome.ALLOW or "shell" not in rule.pattern.head.categories:
        return
    if rule.command is None or rule.command.is_any:
        yield _of_rule("lint.any_command", rule)
        return
    hook, program = policy.settings.hook, rule.pattern.target.split()[0].rpartition("/")[2]
    outside = {words[0] for pattern in hook.outside if (words := pattern.split())}
    if program in RARELY_CONFINED and hook.shell == "confine" and program not in outside:
        yield _of_rule("lint.rarely_confined", rule, program)
    if interpreter := find_interpreter(rule):
        yield _of_rule("lint.interpreter", rule, interpreter)


def _other_names(rule: Rule) -> Iterator[LintFinding]:
    """Report options that a rule closes by one name, whose other names are not known here."""
    from paddock.policy.commands.pattern import SAME_OPTIONS  # noqa: PLC0415 - late on purpose

    options = rule.command.options if rule.command and rule.outcome >= Outcome.ASK else ()
    unknown = sorted(set(options).difference(SAME_OPTIONS.values()))
    names = ", ".join(each if each.startswith("-") else f"-{each}" for each in unknown)
    if names:
        yield _of_rule("lint.option_names", rule, names)


def _unknown_server(policy: Policy, rule: Rule) -> Iterator[LintFinding]:
    name, slash, _ = rule.pattern.target.partition("/")
    is_servers = rule.pattern.head.category == "mcp" and slash and "*" not in name
    # Those of a file that is not trusted yet are not in force, and known.
    servers = (each.name for file in policy.documents for each in file.settings.mcp.servers)
    if is_servers and name not in servers:
        yield _of_rule("lint.mcp_server", rule, quote_toml(name))


def _unknown_credentials(policy: Policy, document: PolicyDocument) -> Iterator[LintFinding]:
    servers: Json = document.document.values.get("mcp", {}).get("servers", {})
    for server in document.settings.mcp.servers:
        found = credential_problems(server, policy.settings.credentials)
        for use, said, hint in found if server.name in servers else ():
            place = document.document.place(("mcp", "servers", server.name, use.key, use.name))
            yield LintFinding("lint.mcp_credential", said, place, hint)


def _half_denied(
    policy: Policy, profiles: Sequence[CompiledProfile], rule: Rule
) -> Iterator[LintFinding]:
    """Report a path closed only to `create`: its author usually means all writing."""
    head, path = rule.pattern.head, rule.pattern.path
    is_create = (head.category, head.operation) == ("file", "create")
    if rule.outcome is Outcome.ALLOW or path is None or not is_create:
        return
    denials = policy.guards.denials
    samples = [each for each in path_samples(path) if not denials(each, True, Writer.FILE_TOOL)]
    allowed = [
        operation
        for operation in _OTHER_WRITES
        if any(_allows(profiles, Action("file", operation, sample)) for sample in samples)
    ]
    if not {"str_replace", "delete"}.intersection(allowed):
        return
    done = "denied" if rule.outcome is Outcome.DENY else "asked about"
    left = " and ".join(filter(None, (", ".join(allowed[:-1]), allowed[-1])))
    yield _of_rule("lint.half_denied", rule, left, done)


def _allows(profiles: Sequence[CompiledProfile], action: Action) -> bool:
    return all(each.judge(action).finding.outcome is Outcome.ALLOW for each in profiles)


def _idle(found: IdleException) -> LintFinding:
    above = quote_toml(found.above.text)
    hint = f"make {above} narrower: nothing below a directory that matched can be excluded"
    if found.instead:
        hint = f"write {quote_toml(found.instead)} in place of {above}"
    return LintFinding(
        "lint.takes_back_nothing",
        f"{quote_toml(found.pattern.text)} excludes nothing from {found.name}: it is below {above}",
        found.pattern.place,
        hint,
    )


def _setting_findings(document: PolicyDocument) -> Iterator[LintFinding]:
    for key, value, code, message, hint in _DANGERS:
        profiles = document.profiles if key[0] == "shell" else ()
        for above in ((), *(("profiles", profile.name) for profile in profiles)):
            way = (*above, *key)
            found: Json = document.document.values
            for part in way:
                # A document that loaded has tables where tables belong.
                found = found.get(part, {})
            if found == value:
                place = document.document.place(way)
                yield LintFinding(code, f"{'.'.join(way)} {message}", place, hint)
