"""Provide network access to commands that policy lets connect: proxy, host keys, credentials.

In a sandbox ssh has no private key and no agent. It gets the user's known_hosts entries of the
hosts that the command may connect to, so it can verify those servers; all others stay unknown
(sshd(8), SSH_KNOWN_HOSTS FILE FORMAT).
"""

import hmac
import os
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, SandboxUnavailableError
from paddock.pattern import lazy_pattern
from paddock.policy.engine import Policy
from paddock.sandbox.inside import protocol
from paddock.sandbox.plan import CA_VARIABLES
from paddock.sandbox.values import SandboxPlan
from paddock.values.decisions import AgentChain, Outcome

if TYPE_CHECKING:
    from paddock.network.credentials import Credential
    from paddock.network.decisions import NetworkTerms, Witness
    from paddock.network.egress import Egress
    from paddock.network.requests import Authority
    from paddock.policy.network import NetworkJudge

_FILES: Final = (".ssh/known_hosts", "/etc/ssh/ssh_known_hosts")
_BYTES_MAX: Final = 1_048_576
_LINES_MAX: Final = 1_000
_HASHED: Final = "|1|"
_SSH_PORT: Final = 22
_FIELDS: Final = 3
_LITERAL: Final = lazy_pattern(r"(?<![\w.:])(?:\d{1,3}\.){3}\d{1,3}:\d{1,5}(?![\w.])")


def allowing(line: str) -> str:
    """Return the command that allows the one address that a line connects to, as far as it shows.

    The kernel only counts connections to addresses that no rule names.
    """
    places = set(_LITERAL.findall(line))
    return f"paddock network allow {places.pop() if len(places) == 1 else 'HOST:PORT'}"


class NetworkSecrets(Struct, frozen=True):
    """One runtime's certificate authority, CA bundle, and credentials with placeholders."""

    authority: "Authority"
    bundle: str
    credentials: "Callable[[], tuple[Credential, ...]]"
    """Read again, with new placeholders, for each sandbox. Raises: ConfigError."""


def judges_requests(policy: Policy, judge: "NetworkJudge") -> bool:
    return bool(policy.settings.credentials) or judge.names_requests


class NetworkServices(Struct, frozen=True):
    egress: "Callable[[], Egress]"
    policy_now: Callable[[], Policy | None]
    known_hosts: Callable[[], str]
    """The text of the user's known_hosts files."""
    indexes: Callable[[], dict[str, str]]
    """Variables that name the package indexes of the user's package clients."""
    secrets: "Callable[[], NetworkSecrets]"
    """Called only where a rule or a credential names requests. Raises: ConfigError."""

    def placed(
        self, plan: SandboxPlan, policy: Policy, chain: AgentChain, line: str | None
    ) -> SandboxPlan:
        from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few commands connect

        judge = NetworkJudge(policy, chain, line)

        def may_reach(host: str, port: int) -> bool:
            return judge.connect(host, port).outcome is not Outcome.DENY

        if judges_requests(policy, judge):
            variables = ((name, os.fsdecode(protocol.AUTHORITIES)) for name in CA_VARIABLES)
            plan = replace(
                plan,
                authorities=self.secrets().bundle,
                environment=(*plan.environment, *variables),
            )
        plan = replace(plan, environment=(*plan.environment, *self.indexes().items()))
        return replace(
            plan,
            network="policy",
            literals=tuple(str(each) for each, _ in judge.literals()),
            known_hosts=select_entries(self.known_hosts(), judge.names(), may_reach),
        )

    def terms(
        self, policy: Policy, chain: AgentChain, line: str | None, witness: "Witness"
    ) -> "NetworkTerms":
        from paddock.network.decisions import NetworkTerms  # noqa: PLC0415 - few commands connect
        from paddock.policy.network import NetworkJudge  # noqa: PLC0415 - few commands connect

        judge = NetworkJudge(policy, chain, line)

        def latest() -> NetworkJudge | None:
            now = self.policy_now()
            if now is policy:
                return judge
            return None if now is None else NetworkJudge(now, chain, line)

        if not judges_requests(policy, judge):
            return NetworkTerms(judge, latest, witness)
        secrets = self.secrets()
        try:
            credentials = secrets.credentials()
        except ConfigError as error:
            raise SandboxUnavailableError(error.message, hint=error.hint) from error
        return NetworkTerms(judge, latest, witness, secrets.authority, credentials)


def read_known_hosts(home: Path) -> str:
    """Return the text of the user's file and the system's; empty where neither exists."""
    found: list[str] = []
    for name in _FILES:
        try:
            with (home / name).open("rb") as file:
                found.append(file.read(_BYTES_MAX).decode("utf-8", "replace"))
        except OSError:
            continue
    return "\n".join(found)


def select_entries(text: str, names: Iterable[str], may_reach: Callable[[str, int], bool]) -> str:
    """Return the entries of hosts that may be reached, reduced to the names of those hosts.

    `names`: host names that rules write in full, to match hashed entries. Marked entries
    (authorities and revoked keys) are left out: an unknown key is not trusted.
    """
    known = tuple(names)
    lines: list[str] = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < _FIELDS or line.startswith(("#", "@")) or "\0" in line:
            continue
        hosts = ",".join(_reachable(fields[0], known, may_reach))
        if hosts:
            lines.append(" ".join((hosts, *fields[1:_FIELDS])))
    return "".join(f"{line}\n" for line in lines[:_LINES_MAX])


def _reachable(
    hosts: str, known: tuple[str, ...], may_reach: Callable[[str, int], bool]
) -> Iterator[str]:
    if hosts.startswith(_HASHED):
        yield from (name for name in known if _is_hash_of(hosts, name) and may_reach(name, 22))
        return
    for host in hosts.split(","):
        name, port = host, _SSH_PORT
        if host.startswith("["):
            name, _, digits = host[1:].partition("]:")
            port = int(digits) if digits.isascii() and digits.isdigit() else 0
        if not any(sign in name for sign in "*?!") and may_reach(name.lower(), port):
            yield host


def _is_hash_of(hashed: str, name: str) -> bool:
    try:
        salt, digest = (b64decode(part, validate=True) for part in hashed[3:].split("|"))
    except ValueError:
        return False
    # SHA-1 is part of the format; no security depends on its strength here.
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), digest)
