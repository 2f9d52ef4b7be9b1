"""Loading: the built-in values, the user's configuration, the project's file → `Policy`.

The user's own configuration holds defaults for every project; a key that it
gives replaces the built-in one whole, and a key that a trusted project gives
replaces both. A profile in a file replaces one of its name whole, unless it extends it.

An untrusted project file (it came with a clone, or was changed behind our back)
can only tighten. Of it holds:
  * `protected`, `generated`, `secret` and `warned`: what they name, besides what
    holds already. Each stays a list of its own: its `!` takes nothing out of ours;
  * `safe`: a path is safe only where both lists say so;
  * a profile that exists without the file: what both of that name say is decided
    under both, and the stricter answer holds, as of a child and its parent. So what
    the file allows is allowed where it was already, and what it does not name is
    denied. The network that its rules set, and its `shell`, do not hold;
  * a profile that its `[agents]` gives an agent holds besides the one that the agent
    has. One that stands there alone is `locked`, whoever has it.
Everything else is ignored and listed in `Policy.ignored`. It must load all the
same: a file with a mistake stops, trusted or not.
"""

from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final

from paddock.policy.document import PolicyDocument, Scope, read_policy
from paddock.policy.guards import PathGuards, compile_guards, tighten
from paddock.policy.patterns import PathPattern
from paddock.policy.presets import BUILT_IN_VERSION, LOCKED, built_in_paths, presets
from paddock.policy.profiles import CompiledProfile
from paddock.policy.rules import Profile
from paddock.policy.settings import AgentBinding, Settings
from paddock.policy.tables import PathsTable
from paddock.values.decisions import Outcome, PlaneKind
from paddock.values.entries import DIGEST_PREFIX

KNOWN_TO_UNTRUSTED: Final = frozenset({"paths", "profiles", "agents"})
LOOSENING_KEYS: Final = ("allow", "confine", "otherwise")
"""Of a profile: what may let run. Of an untrusted file it opens nothing, and closes the rest."""

_DOES: Final = {Outcome.ALLOW: "allows", Outcome.CONFINE: "confines"}


@dataclass(frozen=True, slots=True)
class PolicySource:
    """A policy file as text. `name` is how places show it; JSON if it ends in `.json`."""

    name: str
    text: bytes
    trusted: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """All that decides, compiled once. Immutable; equal policies have equal digests.

    `digest` is `sha256:…` over the texts, their trust and the built-in values.
    `ignored` says what an untrusted file wanted and did not get, each with its
    place; it is for showing once.
    """

    digest: str
    settings: Settings
    guards: PathGuards
    profile_table: tuple[Profile, ...]
    overlays: tuple[Profile, ...] = ()
    """Profiles of an untrusted file, which hold besides those of their names."""
    also_bound: tuple[AgentBinding, ...] = ()
    """What an untrusted file gives agents: it holds besides the profiles that they have."""
    ignored: tuple[str, ...] = ()
    documents: tuple[PolicyDocument, ...] = ()
    untrusted: PolicyDocument | None = None
    """The one of `documents` that only tightens, if one does."""
    plane_kind: PlaneKind = PlaneKind.PROJECT
    planes_below: tuple[str, ...] = ()
    """The bare planes that stand below the workspace, relative to it."""
    compiled: dict[str, CompiledProfile] = field(default_factory=dict[str, CompiledProfile])
    """Profiles compiled so far: a cache, filled as names are asked for."""

    @property
    def profiles(self) -> tuple[str, ...]:
        """The names of all profiles."""
        return tuple(profile.name for profile in self.profile_table)

    def find_profile(self, name: str) -> Profile | None:
        """Return the profile of that name, if any."""
        for profile in self.profile_table:
            if profile.name == name:
                return profile
        return None

    def compiled_profile(self, name: str) -> CompiledProfile:
        """Return the profile ready to be asked; `locked`, with a note, for an unknown name."""
        known = self.compiled.get(name)
        if known is not None:
            return known
        profile, note = self.find_profile(name), ""
        if profile is None:
            # Threat: an agent whose profile was taken away must not fall back to more.
            note = f"the profile {name!r} is unknown, so {LOCKED} holds"
            profile = self.find_profile(LOCKED) or Profile(LOCKED)
        overlay = next((each for each in self.overlays if each.name == profile.name), None)
        made = CompiledProfile(profile, overlay, note)
        if not note:
            self.compiled[name] = made
        return made

    def with_profile(self, profile: Profile) -> "Policy":
        """Return this policy with `profile` in place of the one of its name: for a "what if".

        One that stands in the untrusted file is laid over the other, as it is now.
        """
        if self.untrusted is not None and profile.place.file == self.untrusted.file:
            laid = tuple(each for each in self.overlays if each.name != profile.name)
            return replace(self, overlays=(*laid, _overlay(profile)), compiled={})
        others = tuple(each for each in self.profile_table if each.name != profile.name)
        return replace(self, profile_table=(*others, profile), compiled={})

    def path_list(self, name: str) -> tuple[PathPattern, ...]:
        """Return the patterns of a list of `[paths]`, those of an untrusted file left aside."""
        patterns: tuple[PathPattern, ...] | None = getattr(built_in_paths(), name)
        for table in self._trusted_tables():
            given: tuple[PathPattern, ...] | None = getattr(table, name)
            patterns = patterns if given is None else given
        return patterns or ()

    def with_paths(self, table: PathsTable) -> "Policy":
        """Return this policy with lists in place of those that `path_list` says: a "what if"."""
        tables = (*self._trusted_tables(), table)
        guards = compile_guards(self.plane_kind, tables, self.planes_below)
        if self.untrusted is not None:
            guards = tighten(guards, self.untrusted.paths)
        return replace(self, guards=guards)

    def _trusted_tables(self) -> tuple[PathsTable, ...]:
        return tuple(each.paths for each in self.documents if each is not self.untrusted)

    def as_if_trusted(self) -> "Policy":
        """Return what holds once the untrusted file is trusted: for a "what if"."""
        if self.untrusted is None:
            return self
        profiles = (*self.profile_table, *self.untrusted.profiles)
        tables = tuple(each.paths for each in self.documents)
        return replace(
            self,
            settings=self.untrusted.settings,
            guards=compile_guards(self.plane_kind, tables, self.planes_below),
            profile_table=tuple({profile.name: profile for profile in profiles}.values()),
            overlays=(),
            also_bound=(),
            ignored=(),
            untrusted=None,
            compiled={},
        )


def load_policy(
    project: PolicySource | None,
    user: PolicySource | None = None,
    plane_kind: PlaneKind = PlaneKind.PROJECT,
    planes_below: tuple[str, ...] = (),
) -> Policy:
    """Load and compile; see the module for what holds of which file.

    `planes_below` are the bare planes that stand below the workspace, relative to it.

    Raises:
        ConfigError: a file does not load, trusted or not.
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
    policy = Policy(
        digest=_digest(project, user, plane_kind, planes_below),
        settings=settings,
        guards=compile_guards(plane_kind, tuple(each.paths for each in trusted), planes_below),
        profile_table=tuple(table.values()),
        documents=tuple(documents),
        plane_kind=plane_kind,
        planes_below=planes_below,
    )
    return policy if untrusted is None else _tightened(policy, untrusted)


def _tightened(policy: Policy, document: PolicyDocument) -> Policy:
    known = policy.profiles
    overlays = tuple(_overlay(profile) for profile in document.profiles if profile.name in known)
    # `document.settings` begins with the bindings that held already.
    also = tuple(
        binding if binding.profile in known else AgentBinding(binding.name, LOCKED)
        for binding in document.settings.agents
        if binding not in policy.settings.agents
    )
    return replace(
        policy,
        guards=tighten(policy.guards, document.paths),
        overlays=overlays,
        untrusted=document,
        also_bound=also,
        ignored=tuple(_ignored(document, frozenset(known))),
    )


def _overlay(profile: Profile) -> Profile:
    """Return what holds of an untrusted profile: its rules and its `otherwise`."""
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
    for name in document.document.values.get("agents", {}):
        place = document.document.place(("agents", name))
        found.append(f"{place}: [agents.{name!r}] only tightens")
    return found


def _digest(
    project: PolicySource | None,
    user: PolicySource | None,
    kind: PlaneKind,
    planes_below: tuple[str, ...],
) -> str:
    """Return the digest of all that a decision depends on.

    Each part with its length before it, so that no two sets of texts collide.
    """
    hashed = sha256()
    parts = [BUILT_IN_VERSION.encode(), kind.value.encode()]
    for source in (user, project):
        if source is None:
            parts.append(b"none")
            continue
        form = b"json" if source.name.endswith(".json") else b"toml"
        parts += [b"trusted" if source.trusted else b"untrusted", form, source.text]
    parts += [plane.encode() for plane in planes_below]
    for part in parts:
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return DIGEST_PREFIX + hashed.hexdigest()
