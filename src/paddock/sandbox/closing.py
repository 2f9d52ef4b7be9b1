"""Which names of a workspace are closed to commands: by the very decisions of the file tools. Pure.

A name is closed to reading unless this agent could view it without being asked: what
is secret, what its permissions leave out, what a profile denies or asks about. A
command cannot stop in the middle to ask, and unknown is no.
"""

from enum import Enum
from typing import Final, Protocol

from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.policy.guards import Writer
from paddock.policy.permissions import AgentPermissions, compile_permissions
from paddock.values.actions import Action
from paddock.values.agents import AgentChain
from paddock.values.decisions import Outcome
from paddock.workspace.paths import is_temporary_name

_NAMES_KEPT: Final = 65_536
_ANY_NAME: Final = "a"
WRITES: Final = ("create", "delete", "link", "mode")
"""What a command can do to a file that it may open for writing, as a policy names it."""


class Closing(Enum):
    OPEN = "open"
    CLOSED = "closed"
    """This name; what is below it is asked about too."""
    SEALED = "sealed"
    """This name and all that is or ever will be below it."""


class NameJudge(Protocol):
    def judge(self, path: str, is_directory: bool) -> Closing:
        """`path` is workspace-relative, as the disk gave it."""
        ...


class ReadJudge:
    """Closed to reading. A directory is never closed, only sealed: names are no contents."""

    __slots__ = ("_permissions", "_profiles", "_secrets")

    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self._secrets = _Secrets(policy)
        self._permissions = [_restricting(compile_permissions(agent)) for agent in chain]
        self._profiles = _Profiles(policy, chain, ("view",))

    def judge(self, path: str, is_directory: bool) -> Closing:
        if self._secrets.holds(path):
            return Closing.SEALED
        for permissions in self._permissions:
            if permissions is not None and _is_outside(permissions, path, is_directory):
                return Closing.SEALED
        return Closing.OPEN if is_directory or self._profiles.allow(path) else Closing.SEALED


class WriteJudge:
    """Closed to writing by a command, for a backend that cannot judge changes afterwards.

    A name is open only if creating, deleting, linking and changing the mode of it are all
    allowed outright: the kernel's rights for a directory tell these apart too coarsely.
    What is closed to reading is closed to writing too.
    """

    __slots__ = ("_chain", "_guards", "_permissions", "_profiles", "_read")

    def __init__(self, policy: Policy, chain: AgentChain) -> None:
        self._guards = policy.guards
        self._read = ReadJudge(policy, chain)
        self._permissions = [compile_permissions(agent) for agent in chain]
        self._profiles = _Profiles(policy, chain, WRITES)

    def judge(self, path: str, is_directory: bool) -> Closing:
        if self._read.judge(path, is_directory) is Closing.SEALED:
            return Closing.SEALED
        if self._guards.is_above_own(path):
            # Threat: a right for it would reach own files that are yet to be made in it.
            return Closing.CLOSED
        # The plane's other directories stay as they are, and agents work in them.
        asked = f"{path}/{_ANY_NAME}" if self._guards.is_own_directory(path) else path
        if self._guards.denials(asked, is_write=True, writer=Writer.COMMAND):
            return Closing.SEALED
        if not self._may_change(path):
            return Closing.CLOSED
        # A right for a directory reaches names that are yet to be made in it.
        if is_directory and not self._may_change(f"{path}/{_ANY_NAME}"):
            return Closing.CLOSED
        return Closing.OPEN

    def _may_change(self, path: str) -> bool:
        action = Action("file", "create", path)
        if any(permissions.denials(action) for permissions in self._permissions):
            return False
        return self._profiles.allow(path)


class _Secrets:
    """What is secret, and drafts of Paddock's own: they may hold what is."""

    __slots__ = ("_by_name", "_guards")

    def __init__(self, policy: Policy) -> None:
        self._guards = policy.guards
        patterns = [pattern for layer in self._guards.secret for pattern in layer.patterns]
        # Nothing sealed is entered, so where no pattern has a slash the name alone decides,
        # and most names of a tree repeat.
        is_by_name = all(pattern.glob.anywhere for pattern in patterns)
        self._by_name: dict[str, bool] | None = {} if is_by_name else None

    def holds(self, path: str) -> bool:
        """Whether the last component makes `path` secret; those before it are known not to."""
        name = path.rpartition("/")[2]
        if self._by_name is None or self._guards.is_in_dependency(path):
            return self._matches(path, name)
        known = self._by_name.get(name)
        if known is None:
            known = self._matches(name, name)
            if len(self._by_name) < _NAMES_KEPT:
                self._by_name[name] = known
        return known

    def _matches(self, path: str, name: str) -> bool:
        if is_temporary_name(name):
            # Threat: the draft of a secret file while it is being written.
            return True
        return self._guards.find_secret_for_command(path) is not None


class _Profiles:
    __slots__ = ("_by_path", "_general", "_judge")

    def __init__(self, policy: Policy, chain: AgentChain, operations: tuple[str, ...]) -> None:
        self._judge = judge_for(policy, chain)
        # Where no rule tells paths apart, the answer is the same for all.
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
    # A search of a directory is refused where nothing below it may be read; a list that
    # names the directory itself (`src/`) says so only of what is in it.
    inside = Action("file", "view", f"{path}/{_ANY_NAME}")
    return bool(permissions.denials(Action("search", "grep", path))) and bool(
        permissions.denials(inside)
    )


def _restricting(permissions: AgentPermissions) -> AgentPermissions | None:
    """None for permissions that restrict no reading."""
    if permissions.read is None and permissions.forbidden is None:
        return None
    return permissions


def _names_paths(policy: Policy, chain: AgentChain, operation: str) -> bool:
    profiles = judge_for(policy, chain).profiles()
    return any(
        rule.pattern.path is not None and rule.pattern.head.matches("file", operation)
        for profile in profiles
        for rule in profile.rules
    )
