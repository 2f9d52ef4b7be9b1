"""Load a `Policy` from the built-in values, the user's configuration and the project's file.

A key of a trusted project replaces the user's, which replaces the built-in one. A profile
in a file replaces the one of the same name completely, unless it extends it.

An untrusted project file can only tighten. These parts of it apply:
  * `protected`, `generated`, `secret` and `warned`: as additional, separate lists, whose `!`
    excludes nothing from the other lists;
  * `safe`: a path is safe only if both lists permit it;
  * a profile whose name is known without the file: the stricter of both answers, without
    the network of its rules and without its `shell`;
  * `[agents]`: the profile applies in addition to the agent's own; an unknown one is `locked`.
Everything else is listed in `Policy.ignored`; an error stops the load, trusted or not.
"""

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import cached_property, lru_cache, partial, reduce
from hashlib import sha256
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.policy.compiled import (
    CODES,
    GENERATED,
    OWN,
    PROTECTED,
    READ_CLOSED,
    SAFE,
    SECRET,
    STATE,
    WARNED,
    Hit,
    find_closing,
    find_dependency,
    find_hits,
    find_listed,
    find_warning,
    is_safe,
    source_of,
)
from paddock.policy.globs import Glob
from paddock.policy.load import PathsTable, PolicyDocument, Scope, read_policy
from paddock.policy.pathset import (
    CACHED_PATHS,
    ROOT,
    Comparison,
    PathList,
    PathPattern,
    compile_lists,
)
from paddock.policy.positions import BUILT_IN_PLACE, Place, quote_toml
from paddock.policy.presets import (
    BUILT_IN_VERSION,
    CLIENT_SETTINGS,
    INSTALLED_FOLDERS,
    LOCKED,
    MIXED_FOLDERS,
    STANDARD,
    built_in_paths,
    own_lists,
    presets,
)
from paddock.policy.profiles import CompiledProfile
from paddock.policy.rules import Profile, Rule, compile_rule, parse_concrete
from paddock.policy.settings import AgentBinding, PackageRule, Settings, lay_over
from paddock.values.calls import Json
from paddock.values.decisions import Agent, Outcome, PlaneKind, RuleMatch
from paddock.values.entries import DIGEST_PREFIX, digest_of

# A list may have several layers: the patterns of an untrusted file are a layer of their
# own, so that no `!` in it excludes a path from another layer. A path is forbidden if any
# layer forbids it, and `safe` only if all of them permit it.

_CLIENT: Final = "where a coding agent's client finds its hooks and MCP servers"
_DIRECTORY: Final = "one of Paddock's own directories"
_CLOSED: Final = {
    OWN: "one of Paddock's own files",
    STATE: "Paddock's own state, which no agent reads",
    PROTECTED: "protected",
    GENERATED: "written only by commands",
    SECRET: "secret",
}
GUARDING_LISTS: Final = (PROTECTED, GENERATED, SECRET)
PATH_LISTS: Final = (*GUARDING_LISTS, WARNED, SAFE)
_KINDS: Final = (OWN, STATE, *PATH_LISTS)
Listed = tuple[str, PathList]
"""The kind of a list, and the list."""
_READ: Final = frozenset(INSTALLED_FOLDERS)
_WRITTEN: Final = _READ | frozenset(MIXED_FOLDERS)


class Writer(Enum):
    """The way a file is changed: by a file tool, or a command (in the sandbox or by redirection).

    Only commands write `generated` paths; in a dependency folder the file-name patterns of
    `protected` and `secret` do not apply to them.
    """

    FILE_TOOL = "file tool"
    COMMAND = "command"


class PathGuards(Struct, frozen=True, eq=False, dict=True):
    lists: tuple[Listed, ...]
    above: PathList
    directories: PathList
    folders: PathList

    @cached_property
    def compiled(self) -> Json:
        return compile_lists(self.lists), (_READ, _WRITTEN)

    @cached_property
    def patterns(self) -> tuple[PathPattern, ...]:
        """All patterns by their compiled number."""
        return tuple(pattern for _, listed in self.lists for pattern in listed.patterns)

    @cached_property
    def hits(self) -> Callable[[str], list[Hit]]:
        return lru_cache(maxsize=CACHED_PATHS)(partial(find_hits, self.compiled[0][0]))

    def layers(self, *kinds: str) -> tuple[PathList, ...]:
        return tuple(listed for kind, listed in self.lists if kind in kinds)

    @property
    def secret(self) -> tuple[PathList, ...]:
        """Lists that close reading; Paddock's own state has its own, which no file changes."""
        return self.layers(*READ_CLOSED)

    def plus(self, lists: Iterable[Listed]) -> "PathGuards":
        """Add lists, so that more paths are forbidden and warned of, and fewer are safe."""
        found = sorted((*self.lists, *lists), key=lambda each: _KINDS.index(each[0]))
        return replace(self, lists=tuple(found))

    def denials(self, path: str, is_write: bool, writer: Writer) -> tuple[RuleMatch, ...]:
        by_command = writer is Writer.COMMAND
        closing = find_closing(self.compiled, path, self.hits(path), is_write, by_command)
        found = [_denial(self.patterns[number], path, kind) for kind, number in closing]
        directory = self.directories.find_itself(path) if is_write else None
        if directory is not None:
            at = int(closing[:1] != [] and closing[0][0] == OWN)
            found.insert(at, _denial(directory, path, OWN, _DIRECTORY))
        return tuple(found)

    def link_denials(self, path: str) -> list[RuleMatch]:
        # `find_itself` always names the root, which no link can replace.
        folder = None if path in (ROOT, "") else self.folders.find_itself(path)
        return [] if folder is None else [_denial(folder, path, OWN, _CLIENT)]

    def find_warning(self, path: str) -> PathPattern | None:
        number = find_warning(self.compiled, self.hits(path))
        return None if number < 0 else self.patterns[number]

    def is_safe(self, path: str) -> bool:
        return is_safe(self.compiled, self.hits(path))

    def find_secret(self, path: str) -> PathPattern | None:
        return self._first(path, READ_CLOSED)

    def find_secret_for_command(self, path: str) -> PathPattern | None:
        hits = self.hits(path)
        closing = find_closing(self.compiled, path, hits, is_write=False, by_command=True)
        return self.patterns[closing[0][1]] if closing else None

    def is_in_dependency(self, path: str) -> bool:
        """Return True if `path` is in a dependency folder, where fewer names are closed."""
        return find_dependency(path, _READ) >= 0

    def find_generated(self, path: str) -> PathPattern | None:
        return self._first(path, (GENERATED,))

    def is_below_generated(self, path: str) -> bool:
        """Return True if `path` is inside a generated directory, whose files can be rebuilt."""
        parent = path.rpartition("/")[0]
        return parent != "" and self.find_generated(parent) is not None

    def find_protected(self, path: str) -> PathPattern | None:
        return self._first(path, (OWN, PROTECTED))

    def is_above_own(self, path: str) -> bool:
        """Return True if `path` is a directory that holds, or could hold, Paddock's files."""
        return self.above.find_itself(path) is not None

    def is_own_directory(self, path: str) -> bool:
        return self.directories.find_itself(path) is not None

    def _first(self, path: str, wanted: tuple[str, ...]) -> PathPattern | None:
        hits = self.hits(path)
        found = find_listed(self.compiled[0], hits, wanted) if hits else None
        return self.patterns[found[0][1]] if found else None


def compile_guards(
    kind: PlaneKind, tables: tuple[PathsTable, ...], planes_below: tuple[str, ...] = ()
) -> PathGuards:
    own = own_lists(kind, planes_below)
    files, state, *places = (PathList(patterns, Comparison.GUARDING) for patterns in own)
    held = reduce(lay_over, tables, built_in_paths())
    return PathGuards(((OWN, files), (STATE, state), *_lists(held)), *places)


def _lists(table: PathsTable) -> Iterator[Listed]:
    for kind in PATH_LISTS:
        patterns: tuple[PathPattern, ...] | None = getattr(table, kind)
        is_guarding = kind in GUARDING_LISTS
        if patterns is not None:
            comparison = Comparison.GUARDING if is_guarding else Comparison.PERMITTING
            yield kind, PathList(patterns, comparison)


def _denial(pattern: PathPattern, path: str, kind: str, what: str = "") -> RuleMatch:
    place = pattern.place
    is_client = kind == OWN and pattern.text in CLIENT_SETTINGS
    what = what or (_CLIENT if is_client else _CLOSED[kind])
    reason = f"{quote_toml(path)} is {what} ({quote_toml(pattern.text)}, {place})"
    lifting = pattern.lifting(path) if kind in (PROTECTED, SECRET) else ""
    if lifting:
        reason += f"; a person can lift it: add {quote_toml(lifting)} last to {kind} in [paths]"
    source = source_of(kind)
    return RuleMatch(
        Outcome.DENY, pattern.text, source, place.file, place.line, reason, CODES[kind]
    )


KNOWN_TO_UNTRUSTED: Final = frozenset({"paths", "profiles", "agents"})
LOOSENING_KEYS: Final = ("allow", "confine", "otherwise")
"""Keys of a profile that can allow calls. In an untrusted file they only close all others."""

_DOES: Final = {Outcome.ALLOW: "allows", Outcome.CONFINE: "confines"}


class PolicySource(Struct, frozen=True):
    """A policy file as text. `name` is shown in places; JSON if it ends in `.json`."""

    name: str
    text: bytes
    trusted: bool = True


class Policy(Struct, frozen=True, eq=False):
    """A compiled policy. Immutable; equal policies have equal digests.

    `digest` is `sha256:…` over the texts, their trust and the built-in values.
    `ignored` lists, with places, the parts of an untrusted file that do not apply.
    """

    digest: str
    settings: Settings
    guards: PathGuards
    profile_table: tuple[Profile, ...]
    overlays: tuple[Profile, ...] = ()
    """Profiles of an untrusted file, which apply in addition to those of the same name."""
    also_bound: tuple[AgentBinding, ...] = ()
    """Bindings of an untrusted file, which apply in addition to the agents' profiles."""
    ignored: tuple[str, ...] = ()
    documents: tuple[PolicyDocument, ...] = ()
    sources: tuple[PolicySource | None, PolicySource | None] = (None, None)
    untrusted: PolicyDocument | None = None
    plane_kind: PlaneKind = PlaneKind.PROJECT
    planes_below: tuple[str, ...] = ()
    """The bare planes below the workspace, relative to it."""
    packages: tuple[PackageRule, ...] = ()
    """Hosts of package clients, whether or not `[network]` allows them."""
    given: "Policy | None" = None
    """The opening program's policy, which also applies: see `combine_policies`."""
    note: str = ""
    """Added to every answer of its profiles."""

    @classmethod
    def parse(cls, text: str | bytes, name: str = "(policy of the program)") -> "Policy":
        """Parse the text of a policy file, for `paddock.open`; JSON if `name` ends in `.json`.

        Refusals and errors name a line as `name:line`.

        Raises: ConfigError, which names each mistake with its line.
        """
        source = text.encode() if isinstance(text, str) else text
        return load_policy(None, PolicySource(name, source))

    @property
    def profiles(self) -> tuple[str, ...]:
        return tuple(profile.name for profile in self.profile_table)

    def find_profile(self, name: str) -> Profile | None:
        return next((each for each in self.profile_table if each.name == name), None)

    def compile_profiles(self, name: str, title: str = "") -> list[CompiledProfile]:
        """Compile a profile, and the one that an untrusted file lays over it.

        For an unknown name it is `locked`, with a note.
        """
        profile, note = self.find_profile(name), self.note
        if profile is None:
            # Threat: an agent whose profile was removed must not fall back to a milder one.
            note = f"the profile {name!r} is unknown, so {LOCKED} applies"
            profile = self.find_profile(LOCKED) or Profile(LOCKED)
        found = [CompiledProfile(profile, note, title=title)]
        for each in self.overlays:
            if each.name == profile.name:
                note = f"{each.place.file} is not trusted, so it can only tighten"
                found.append(CompiledProfile(each, note, True, title))
        return found

    def profiles_of(
        self, agent: Agent, title: str = "", others: tuple[str, ...] = ()
    ) -> list[CompiledProfile]:
        """Return all profiles of an agent: its own, those of `[agents]`, those of `given`.

        `others` are the profiles of the combined policy; one unknown here counts as `standard`.
        """
        others = others if self.given is None else self.given.profiles
        names = [agent.profile, *filter(None, [self.settings.profile_for(agent.name)])]
        names += [each.profile for each in self.also_bound if each.name == agent.name]
        unknown = set(others).difference(self.profiles)
        held = [
            each
            for name in dict.fromkeys(names)
            for each in self.compile_profiles(STANDARD if name in unknown else name, title)
        ]
        if self.given is None:
            return held
        return held + self.given.profiles_of(agent, title, self.profiles)

    def with_profile(self, profile: Profile) -> "Policy":
        """Return this policy with `profile` in place of the one of its name, to try a change."""
        if self.untrusted is not None and profile.place.file == self.untrusted.file:
            kept = tuple(each for each in self.overlays if each.name != profile.name)
            return replace(self, overlays=(*kept, _overlay(profile)))
        others = tuple(each for each in self.profile_table if each.name != profile.name)
        return replace(self, profile_table=(*others, profile))

    def with_own(self, path: str) -> "Policy":
        """Return this policy with a file of the workspace protected as one of Paddock's own."""
        glob = Glob(f"/{path}", False, False, False, tuple((name,) for name in path.split("/")))
        own = PathList([PathPattern(glob)], Comparison.GUARDING)
        return replace(
            self,
            digest=digest_of(f"{self.digest} {path}".encode()),
            guards=self.guards.plus([(OWN, own)]),
        )

    def as_if_trusted(self) -> "Policy":
        project, user = self.sources
        if self.untrusted is None or project is None:
            return self
        project = replace(project, trusted=True)
        return load_policy(project, user, self.plane_kind, self.planes_below, self.packages)


@lru_cache(maxsize=8)
def load_policy(
    project: PolicySource | None,
    user: PolicySource | None = None,
    plane_kind: PlaneKind = PlaneKind.PROJECT,
    planes_below: tuple[str, ...] = (),
    packages: tuple[PackageRule, ...] = (),
) -> Policy:
    """Load and compile; ConfigError if a file does not load, trusted or not.

    `planes_below` are the bare planes below the workspace, relative to it. `packages` are
    allowed to every profile but `locked` if `[network]` says so.
    """
    documents: list[PolicyDocument] = []
    settings, table = Settings(), {profile.name: profile for profile in presets()}
    for source, scope in ((user, Scope.USER), (project, Scope.PROJECT)):
        if source is None:
            continue
        document = read_policy(source.name, source.text, scope, settings, table)
        documents.append(document)
        if scope is Scope.PROJECT and not source.trusted:
            break
        settings = document.settings
        table.update({profile.name: profile for profile in document.profiles})
    untrusted = documents[-1] if project is not None and not project.trusted else None
    trusted = tuple(each for each in documents if each is not untrusted)
    allowed = packages if settings.network.packages else ()
    said = [
        each.document for each in trusted if "packages" in each.document.values.get("network", {})
    ]
    place = said[-1].place(("network", "packages")) if said else BUILT_IN_PLACE
    rules = package_rules(allowed, "network.packages", place)
    policy = Policy(
        digest=_digest(project, user, plane_kind, planes_below, allowed),
        settings=settings,
        guards=compile_guards(plane_kind, tuple(each.paths for each in trusted), planes_below),
        profile_table=tuple(
            each if each.name == LOCKED else replace(each, rules=each.rules + rules)
            for each in table.values()
        ),
        documents=tuple(documents),
        sources=(project, user),
        plane_kind=plane_kind,
        planes_below=planes_below,
        packages=packages,
    )
    return policy if untrusted is None else _tightened(policy, untrusted)


def package_rules(
    packages: tuple[PackageRule, ...], source: str, place: Place = BUILT_IN_PLACE
) -> tuple[Rule, ...]:
    from ipaddress import ip_network  # noqa: PLC0415 - only a network with packages needs it

    rules: list[Rule] = []
    for each in packages:
        try:
            action = parse_concrete(each.action)
            rule = compile_rule(each.action, Outcome.ALLOW, source, place)
            addresses = tuple(str(ip_network(text)) for text in each.addresses)
        except ValueError:
            continue
        # Threat: the stored rules were changed. They may only name single hosts.
        if (action.head, str(action)) == ("tool:net:connect", each.action):
            rules.append(replace(rule, addresses=addresses))
    return tuple(rules)


def _tightened(policy: Policy, document: PolicyDocument) -> Policy:
    known = policy.profiles
    laid = (profile for profile in document.profiles if profile.name in known)
    # `document.settings` begins with the bindings of the trusted files.
    also = tuple(
        binding if binding.profile in known else AgentBinding(binding.name, LOCKED)
        for binding in document.settings.agents
        if binding not in policy.settings.agents
    )
    return replace(
        policy,
        guards=policy.guards.plus(_lists(document.paths)),
        overlays=tuple(_overlay(profile) for profile in laid),
        untrusted=document,
        also_bound=also,
        ignored=tuple(_ignored(document, frozenset(known))),
    )


def _overlay(profile: Profile) -> Profile:
    rules = tuple(replace(rule, network=None) for rule in profile.rules)
    return replace(profile, rules=rules, shell=None)


def _ignored(document: PolicyDocument, known: frozenset[str]) -> list[str]:
    found = [
        f"{document.document.place((name,))}: [{name}] is not in force"
        for name in document.document.values
        if name not in KNOWN_TO_UNTRUSTED
    ]
    for profile in document.profiles:
        if profile.name not in known:
            found.append(
                f"{profile.place}: the profile {profile.name!r} is not in force; "
                f"an agent that has it is {LOCKED}"
            )
            continue
        given = document.document.values["profiles"][profile.name]
        for name in (*LOOSENING_KEYS, "shell"):
            if name in given:
                place = document.document.place(("profiles", profile.name, name))
                holds = "only tightens" if name in LOOSENING_KEYS else "is not in force"
                found.append(f"{place}: {name} of [profiles.{profile.name}] {holds}")
        own = f"profiles.{profile.name}.rules"
        allowing = [rule for rule in profile.rules if rule.source == own and rule.outcome in _DOES]
        found.extend(
            f"{rule.place}: the rule that {_DOES[rule.outcome]} {rule.pattern.text!r} only tightens"
            for rule in allowing
        )
    found.extend(
        f"{document.document.place(('agents', name))}: [agents.{name!r}] only tightens"
        for name in document.document.values.get("agents", {})
    )
    return found


def _digest(
    project: PolicySource | None,
    user: PolicySource | None,
    kind: PlaneKind,
    planes_below: tuple[str, ...],
    packages: tuple[PackageRule, ...],
) -> str:
    parts = [BUILT_IN_VERSION.encode(), kind.value.encode()]
    for source in (user, project):
        if source is None:
            parts.append(b"none")
            continue
        form = b"json" if source.name.endswith(".json") else b"toml"
        parts += [b"trusted" if source.trusted else b"untrusted", form, source.text]
    parts += [plane.encode() for plane in planes_below]
    parts += [" ".join((rule.action, *rule.addresses)).encode() for rule in packages]
    # Each part is prefixed with its length, so that no two sets of texts collide.
    joined = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return DIGEST_PREFIX + sha256(joined).hexdigest()
