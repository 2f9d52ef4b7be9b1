"""Compile a plan from policy, a chain of agents and facts of the host. Pure.

Readable are the directories that policy lists and the toolchains that were found, without closed
places. `[shell] read` replaces the system directories but not the toolchains, because PATH is the
operator's choice. The workspace is readable except for `hidden`, and is not in these lists.
"""

from enum import Enum
from functools import lru_cache
from typing import Final, Protocol

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from paddock.ledger.format.line import encode_json
from paddock.pattern import lazy_pattern
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy, Writer
from paddock.policy.pathset import AgentPermissions, compile_permissions
from paddock.policy.settings import SYSTEM_READ, Git
from paddock.sandbox.git_config import find_distrust, take_git
from paddock.sandbox.host.host_facts import (
    SYSTEM_PATHS,
    GitOutside,
    HostFacts,
    LeftOut,
    Link,
    Resolver,
    is_below,
    is_changeable,
    is_covered,
    is_led_by,
    overlaps,
    topmost,
)
from paddock.sandbox.values import SandboxPlan, line_network, strictest_shell
from paddock.values.calls import Json
from paddock.values.decisions import Action, AgentChain, Outcome
from paddock.values.entries import digest_of
from paddock.workspace.paths import is_temporary_name

SECRET_PLACES: Final = (
    ".aws",
    ".azure",
    ".config/gcloud",
    ".docker",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".mozilla",
    ".netrc",
    ".password-store",
    ".pki",
    ".ssh",
)
"""Below home: a toolchain that overlaps one of these is not trusted."""

PLAIN_VARIABLES: Final = frozenset(
    {"CI", "COLORTERM", "COLUMNS", "LANG", "LANGUAGE", "LINES", "NO_COLOR", "TERM", "TZ"}
)
_LOCALE: Final = lazy_pattern(r"LC_[A-Z]+")
CA_VARIABLES: Final = (
    *("SSL_CERT_FILE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "REQUESTS_CA_BUNDLE", "PIP_CERT"),
    *("NODE_EXTRA_CA_CERTS", "CARGO_HTTP_CAINFO", "AWS_CA_BUNDLE", "DENO_CERT"),
)
"""Variables that name the certificate authorities that programs trust."""
PLACE_VARIABLES: Final = frozenset(
    {"CONDA_PREFIX", "GOROOT", "JAVA_HOME", "SSL_CERT_DIR", "VIRTUAL_ENV", *CA_VARIABLES}
)
_VALUE_CHARS_MAX: Final = 1024
_DEFAULT_PATH: Final = ("/usr/local/bin", "/usr/bin", "/bin")


class CompiledPlan(Struct, frozen=True):
    plan: SandboxPlan
    left_out: tuple[LeftOut, ...]
    toolchains: tuple[str, ...]
    moved_last: tuple[str, ...] = ()
    """Directories of PATH that were moved to its end, because commands can change them."""


def compile_plan(
    policy: Policy,
    chain: AgentChain,
    facts: HostFacts,
    hidden: tuple[str, ...] = (),
) -> CompiledPlan:
    """Compile one agent's plan; `hidden`: from `hidden.NameIndex`. ConfigError: bad chain."""
    compiler = _PlanCompiler(facts)
    shell = strictest_shell(policy, chain, compiler.readable, compiler.writable)
    network = line_network(policy, chain, None)
    writable = topmost(shell.write)
    toolchains, names = compiler.toolchains()
    downloads = compiler.downloads() if shell.caches else ()
    readable = topmost(
        path for path in (*shell.read, *toolchains, *downloads) if not is_covered(path, writable)
    )
    git_outside = compiler.git_outside(shell.git)
    reach = (*readable, *writable, facts.workspace)
    on_path = [link for place in facts.search_path for link in place.links]
    links = {link for link in (*compiler.used_links, *on_path) if not is_covered(link[0], reach)}
    changeable = (*writable, facts.workspace, *facts.changeable)
    search_path, moved_last = _search_path(facts, reach, changeable)
    git_config, without = take_git(facts.git, reach, git_outside)
    # Threat: an agent's profile names more memory than its parent has by default.
    most_mb = max(1, facts.memory_mb * 3 // 4)
    memory_mb = min(shell.limits.memory_mb or most_mb, most_mb)
    plan = SandboxPlan(
        workspace=facts.workspace,
        readable=readable,
        writable=writable,
        hidden=hidden,
        network=network,
        git=shell.git,
        commit=shell.commit,
        enforcement=shell.enforcement,
        limits=replace(shell.limits, memory_mb=memory_mb),
        environment=_environment(facts, reach, search_path),
        policy_digest=policy.digest,
        git_config=git_config,
        links=tuple(sorted(links)),
        caches=facts.caches if shell.caches else "",
        downloads=downloads,
        git_outside=git_outside,
        unix_sockets=_has_sockets(shell.read, compiler.readable(SYSTEM_READ), writable, network),
    )
    left_out = tuple(dict.fromkeys((*compiler.left_out, *without)))
    return CompiledPlan(plan, left_out, names, moved_last)


def _has_sockets(
    read: tuple[str, ...], system: tuple[str, ...], writable: tuple[str, ...], network: str
) -> bool:
    """Return True if a command may create Unix sockets.

    A seccomp filter sees no path, and a read-only mount does not prevent a connection. Through an
    overlay of the workspace the kernel finds only sockets created there (Linux 4.9).
    Threat: a daemon of the host listens in a directory that policy opens, or on an abstract name.
    """
    return network != "host" and not writable and all(is_covered(path, system) for path in read)


def contained(plan: SandboxPlan) -> SandboxPlan:
    """Threat: a dry run writes outside the workspace, or sends requests."""
    return replace(
        plan,
        readable=topmost((*plan.readable, *plan.writable)),
        writable=(),
        caches_read_only=True,
        network="none" if plan.network == "none" else "loopback",
    )


_UNBOUND: Final = {"hidden", "known_hosts"}


@lru_cache(maxsize=8)
def plan_digest(plan: SandboxPlan) -> str:
    """Digest the plan as canonical JSON; an approval is bound to it.

    Leaves out `hidden`, which only restricts and follows from policy and workspace, and
    `known_hosts`: a new secret or a new known host invalidates no approval. Leaves out variables of
    terminal and language: they grant nothing.
    """
    environment = tuple(pair for pair in plan.environment if not _is_plain(pair[0]))
    described = plan_json(replace(plan, environment=environment)).items()
    text = encode_json({name: value for name, value in described if name not in _UNBOUND})
    return digest_of(text.encode("utf-8", "surrogateescape"))


def plan_json(plan: SandboxPlan) -> dict[str, Json]:
    config, outside = plan.git_config, plan.git_outside
    return to_builtins(plan, order="sorted") | {
        "environment": dict(sorted(plan.environment)),
        "git_outside": outside
        and {"path": outside.common, "worktree": outside.own, "folder": outside.folder},
        "known_hosts": plan.known_hosts.splitlines(),
        "authorities": bool(plan.authorities),
        "git_config": {
            "values": [[key, value] for key, value in config.values],
            "ignored": config.ignored,
            "attributes": config.attributes,
            "environment": dict(config.variables),
            "is_signing": config.is_signing,
        },
    }


class _PlanCompiler:
    def __init__(self, facts: HostFacts) -> None:
        self.facts = facts
        self.by_asked = {place.asked: place for place in facts.existing}
        self.left_out = list(facts.left_out)
        self.used_links: list[Link] = []
        # The workspace is a hole as well: it is mounted separately, without its hidden names.
        self.holes = (*(place.path for place in facts.closed), facts.workspace)
        self.changeable = (facts.workspace, *facts.changeable)

    def readable(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        found: list[str] = []
        for path in self._resolve(asked):
            if is_below(self.facts.home, path):
                # Threat: keys, tokens and histories of all of the user's programs.
                self.left_out.append(LeftOut(path, "it is or contains the home directory"))
            else:
                found += self._carve(path)
        return tuple(found)

    def writable(self, asked: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(path for path in self._resolve(asked) if self._may_write(path))

    def _may_write(self, path: str) -> bool:
        facts = self.facts
        why = ""
        if is_below(facts.home, path):
            why = "it is or contains the home directory"
        elif is_below(path, facts.workspace):
            why = "it is in the workspace, where each path is judged"
        elif is_below(facts.workspace, path):
            why = "it contains the workspace"
        for place in facts.closed:
            if overlaps(path, place.path):
                why = why or f"it overlaps {place.what}"
        if why:
            self.left_out.append(LeftOut(path, why))
        return not why

    def toolchains(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        found: list[str] = []
        names: list[str] = []
        for toolchain in self.facts.toolchains:
            why = self._distrust(toolchain.readable)
            if why:
                self.left_out += [LeftOut(path, why) for path in toolchain.readable]
                continue
            self.used_links += toolchain.links
            for path in toolchain.readable:
                left = self._carve(path)
                found += left
                names += [f"{toolchain.name}: {path}"] if left else []
        return tuple(found), tuple(dict.fromkeys(names))

    def downloads(self) -> tuple[str, ...]:
        return tuple(
            path
            for path in self.facts.downloads
            if not any(overlaps(path, hole) for hole in self.holes)
        )

    def git_outside(self, git: Git) -> GitOutside | None:
        outside = self.facts.git_outside
        if outside is None or git == "none":
            return None
        why = find_distrust(outside, self.facts)
        if why:
            self.left_out.append(LeftOut(outside.common, why))
            return None
        self.used_links += outside.links
        return outside

    def _resolve(self, asked: tuple[str, ...]) -> list[str]:
        found: list[str] = []
        for path in asked:
            place = self.by_asked.get(at_home(path, self.facts.home))
            if place is not None and is_led_by(place.links, self.changeable):
                # Threat: a command replaces a directory that it may write by a symlink to
                # `~/.ssh`, and policy opens that name.
                why = f"a link that commands can change leads to {place.real}"
                self.left_out.append(LeftOut(path, why))
            elif place is not None:
                found.append(place.real)
                self.used_links += place.links
            elif path not in SYSTEM_PATHS:
                self.left_out.append(LeftOut(path, "it does not exist"))
        return found

    def _carve(self, path: str) -> list[str]:
        for place in self.facts.closed:
            if is_below(path, place.path):
                self.left_out.append(LeftOut(path, f"it is in {place.what}"))
        return self._carved(path)

    def _carved(self, place: str) -> list[str]:
        if is_covered(place, self.holes):
            return []
        if not any(is_below(hole, place) for hole in self.holes):
            return [place]
        listing = next((each for each in self.facts.listings if each.directory == place), None)
        if listing is None:
            # Threat: a hole in an unlisted directory cannot be cut out, so none of it is shown.
            why = "it contains a closed place or the workspace, and could not be listed"
            self.left_out.append(LeftOut(place, why))
            return []
        self.used_links += listing.links
        below = (f"{place.rstrip('/')}/{name}" for name in listing.names)
        return [each for path in below for each in self._carved(path)]

    def _distrust(self, paths: tuple[str, ...]) -> str:
        home = self.facts.home
        if any(is_below(home, path) for path in paths):
            return "a toolchain that is or contains the home directory"
        secrets = [f"{home.rstrip('/')}/{name}" for name in SECRET_PLACES]
        is_around = any(overlaps(path, secret) for path in paths for secret in secrets)
        return "a toolchain that overlaps a secret place" if is_around else ""


def at_home(path: str, home: str) -> str:
    return home + path[1:] if path == "~" or path.startswith("~/") else path.rstrip("/") or "/"


def _environment(
    facts: HostFacts,
    reach: tuple[str, ...],
    search_path: tuple[str, ...],
) -> tuple[tuple[str, str], ...]:
    places = [pair for pair in facts.variables if pair[0] in PLACE_VARIABLES]
    places += [pair for toolchain in facts.toolchains for pair in toolchain.variables]
    allowed = [pair for pair in facts.variables if _is_plain(pair[0])]
    allowed += [pair for pair in places if pair[1][:1] == "/" and is_covered(pair[1], reach)]
    made = {
        name: value
        for name, value in allowed
        if len(value) <= _VALUE_CHARS_MAX and value.isprintable()
    }
    made["PATH"] = ":".join(search_path)
    return tuple(sorted(made.items()))


def _is_plain(name: str) -> bool:
    return name in PLAIN_VARIABLES or _LOCALE.fullmatch(name) is not None


def _search_path(
    facts: HostFacts, reach: tuple[str, ...], changeable: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Threat: a planted `.venv/bin/git`: what a command can change comes last in PATH."""
    found = [each for each in facts.search_path if ":" not in each.asked]
    readable = [each for each in found if is_covered(each.real, reach)]
    # Threat: `.venv/bin` links to `/usr/bin` now, and later is a directory; also `a/../bin`.
    fickle = {
        each.asked
        for each in readable
        if is_changeable(each, changeable) or ".." in each.asked.split("/")
    }
    asked = tuple(dict.fromkeys(each.asked for each in readable))
    # Stable: both kinds keep their order.
    made = tuple(sorted(asked, key=lambda each: each in fickle))
    behind = max((place for place, each in enumerate(asked) if each not in fickle), default=0)
    moved = tuple(each for each in asked[:behind] if each in fickle)
    return made or _DEFAULT_PATH, moved


_BASH: Final = ("/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash")
SH: Final = "/bin/sh"


def find_interpreter(plan: SandboxPlan) -> str:
    resolver = Resolver()
    for path in _BASH:
        place = resolver.find(path)
        if place is not None and is_covered(place.real, plan.readable):
            return path
    return SH


# Pure.
#
# A name is closed to reading unless this agent may view it without a question: secrets, names
# outside its permissions, and names that a profile denies or asks about are closed. A command
# cannot stop midway for an approval.

_NAMES_KEPT: Final = 65_536
_ANY_NAME: Final = "a"
WRITES: Final = ("create", "delete", "link", "mode")
"""The policy operations that a command can do to a file it may open for writing."""


class Closing(Enum):
    OPEN = "open"
    CLOSED = "closed"
    """This name; names below it are judged too."""
    SEALED = "sealed"
    """This name and all names below it, now and later."""


class NameJudge(Protocol):
    def judge(self, path: str, is_directory: bool) -> Closing:
        """`path` is workspace-relative, as read from disk."""
        ...


class ReadJudge:
    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self._guards = policy.guards
        patterns = [pattern for layer in self._guards.secret for pattern in layer.patterns]
        # Sealed directories are not entered, so without a slash in any pattern the last name
        # decides alone; most names of a tree repeat, so caching by name pays.
        self._is_by_name = all(pattern.glob.anywhere for pattern in patterns)
        self._is_secret = lru_cache(maxsize=_NAMES_KEPT)(self._matches)
        compiled = map(compile_permissions, chain)
        self._permissions = [
            each for each in compiled if each.read is not None or each.forbidden is not None
        ]
        self._profiles = _Profiles(policy, chain, ("view",))

    def judge(self, path: str, is_directory: bool) -> Closing:
        is_by_name = self._is_by_name and not self._guards.is_in_dependency(path)
        if self._is_secret(path.rpartition("/")[2] if is_by_name else path):
            return Closing.SEALED
        for permissions in self._permissions:
            if _is_outside(permissions, path, is_directory):
                return Closing.SEALED
        return Closing.OPEN if is_directory or self._profiles.allow(path) else Closing.SEALED

    def _matches(self, path: str) -> bool:
        if is_temporary_name(path.rpartition("/")[2]):
            # Threat: the draft of a secret file while it is being written.
            return True
        return self._guards.find_secret_for_command(path) is not None


class WriteJudge:
    """Judge of write access, for a backend that cannot judge changes afterwards.

    Open only if creating, deleting, linking and changing the mode are all allowed outright: the
    kernel's rights are too coarse to distinguish them.
    """

    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self._guards = policy.guards
        self._read = ReadJudge(policy, chain)
        self._permissions = [compile_permissions(agent) for agent in chain]
        self._profiles = _Profiles(policy, chain, WRITES)

    def judge(self, path: str, is_directory: bool) -> Closing:
        if self._read.judge(path, is_directory) is Closing.SEALED:
            return Closing.SEALED
        if self._guards.is_above_own(path):
            # Threat: a right for it would cover Paddock's own files created in it later.
            return Closing.CLOSED
        # Agents may work in the plane's other directories, but not replace them.
        asked = f"{path}/{_ANY_NAME}" if self._guards.is_own_directory(path) else path
        if self._guards.denials(asked, is_write=True, writer=Writer.COMMAND):
            return Closing.SEALED
        if not self._may_change(path):
            return Closing.CLOSED
        # A right for a directory covers names created in it later.
        if is_directory and not self._may_change(f"{path}/{_ANY_NAME}"):
            return Closing.CLOSED
        return Closing.OPEN

    def _may_change(self, path: str) -> bool:
        action = Action("file", "create", path)
        if any(permissions.denials(action) for permissions in self._permissions):
            return False
        return self._profiles.allow(path)


class _Profiles:
    def __init__(self, policy: Policy, chain: AgentChain, operations: tuple[str, ...]) -> None:
        self._judge = judge_for(policy, chain)
        # Where no rule names paths, the answer is the same for all.
        self._by_path = tuple(each for each in operations if _names_paths(policy, chain, each))
        general = [each for each in operations if each not in self._by_path]
        self._general = bool(self._judge.profiles()) and all(
            self._allows(each, ".") for each in general
        )

    def allow(self, path: str) -> bool:
        return self._general and all(self._allows(each, path) for each in self._by_path)

    def _allows(self, operation: str, path: str) -> bool:
        verdicts = self._judge.verdicts(Action("file", operation, path))
        return all(verdict.finding.outcome is Outcome.ALLOW for _, verdict in verdicts)


def _is_outside(permissions: AgentPermissions, path: str, is_directory: bool) -> bool:
    if not is_directory:
        return bool(permissions.denials(Action("file", "view", path)))
    # A directory is outside if neither it may be searched nor an entry in it viewed: a pattern
    # such as `src/` covers only the entries in it.
    inside = Action("file", "view", f"{path}/{_ANY_NAME}")
    return bool(permissions.denials(Action("search", "grep", path))) and bool(
        permissions.denials(inside)
    )


def _names_paths(policy: Policy, chain: AgentChain, operation: str) -> bool:
    profiles = judge_for(policy, chain).profiles()
    return any(
        rule.pattern.path is not None and rule.pattern.head.matches("file", operation)
        for profile in profiles
        for rule in profile.rules
    )
