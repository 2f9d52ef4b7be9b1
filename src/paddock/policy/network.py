"""The network in policy: the hosts, ports and requests of a rule, and what a command may reach.

    connect  HOST[:PORTS]               example.org:443, *.example.org, 10.0.0.0/8:5432, [::1]:80
    request  METHOD HOST[:PORTS]/PATH   GET api.example.org/repos/**, * api.example.org/**
    HOST     a name; `*.NAME`: names below it, at any depth, not itself; `*`: every name; a literal
             address, or a network; what is IPv6 in brackets
    PORTS    443, or 80,443, or 8000-8010; in a deny also `*`
    PATH     by components: `*` for any part of one, `**` for any number; without the query

Where no port is given an allow or ask of a connection means 443 and 80, one of a request 443, and a
deny every port. Only a rule that names the category `net` opens anything; a deny may say `tool:*`.

A connection to a host and port that a request rule of a profile allows or asks about carries
requests, each judged by itself. Where none does, requests are not seen: a deny of any of them
denies the connection.

Threat: one thing has many spellings (`EXAMPLE.org.`, `::ffff:10.0.0.1`, `/v1/%2e%2e/admin`). A host
is compared in one form. An allow has to match every reading of a path; a deny or an ask any of
them, whatever the case of its letters.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import reduce
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import product
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paddock.pattern import lazy_pattern
from paddock.policy.commands import compile_command_pattern, parse_line
from paddock.policy.compiled import ONE, OTHERWISE, RUN, conclude, find_rules, matches_path
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.policy.places import PatternError, quote_toml
from paddock.policy.profiles import CompiledProfile, Finding, Verdict, strictness
from paddock.policy.rules import ANY, Rule, parse_pattern
from paddock.values.calls import Json
from paddock.values.decisions import Action, AgentChain, Outcome, RuleMatch

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Host: TypeAlias = str | Address

PORTS_MAX: Final = 32
"""Of an allow or ask: each is a listener in the sandbox."""
NAME_CHARS_MAX: Final = 253
EVERY_PORT: Final = range(1, 65_536)
WEB_PORTS: Final = (80, 443)
_HOSTS: Final = lazy_pattern(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::([^:]+))?")
_PORTS: Final = lazy_pattern(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_LABEL: Final = lazy_pattern(r"[a-z0-9_-]{1,63}")
_METHOD: Final = lazy_pattern(r"[A-Z]{1,32}|\*")
_PATH: Final = lazy_pattern(r"/[A-Za-z0-9._~!$&'()*+,=:@/-]*")
_SENT: Final = lazy_pattern(r"/[!\"$->@-~]*")
"""A path as it is sent: printable ASCII, without `#` and `?`."""
_HOLD_IPV4: Final = (ip_network("64:ff9b::/96"), ip_network("::/96"))
_CONNECT_HINT: Final = "write HOST:PORT, as in example.org:443, 10.0.0.1:80 or [2001:db8::1]:443"
_REQUEST_HINT: Final = "write METHOD HOST[:PORT]/PATH, as in GET api.example.org/repos"


def canonical_host(text: str) -> str:
    """Return a name in the one form that is compared: ASCII (IDNA), lower case, no dot at the end.

    Raises:
        ValueError: what is no name, with the reason; an address is none.
    """
    if len(text) > NAME_CHARS_MAX + 1:
        raise ValueError(f"a name has at most {NAME_CHARS_MAX} characters")
    labels = [_ascii_label(label) for label in text.removesuffix(".").split(".")]
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise ValueError(f"{quote_toml(label)} is no part of a name: 1 to 63 of a-z, 0-9, - _")
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        raise ValueError("its last part is a number, as of an address in another spelling")
    name = ".".join(labels)
    if len(name) > NAME_CHARS_MAX:
        raise ValueError(f"in ASCII it has more than {NAME_CHARS_MAX} characters")
    return name


def _ascii_label(label: str) -> str:
    folded = unicodedata.normalize("NFC", label.lower())
    if folded.isascii():
        return folded
    try:
        ascii_form = folded.encode("idna")
        is_same = ascii_form.decode("idna") == folded
    except UnicodeError:
        raise ValueError(f"{quote_toml(label)} is no part of a name") from None
    if not is_same:
        # Threat: `faß.example` is one name for IDNA 2003, and another one for IDNA 2008.
        raise ValueError(f"{quote_toml(label)} can be read in two ways: write it as xn--…")
    return ascii_form.decode("ascii")


def _read_host(text: str) -> Host:
    if "%" in text:
        raise ValueError("an address with a zone is of one machine alone")
    try:
        return ip_address(text)
    except ValueError:
        name = canonical_host(text)
    if f".{name}".endswith(".localhost"):
        raise ValueError("localhost is the sandbox's own loopback, which needs no rule")
    return name


def _forms(address: Address) -> tuple[Address, ...]:
    """An address, and the IPv4 addresses that it may hold."""
    if isinstance(address, IPv4Address):
        return (address,)
    held = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if any(address in network for network in _HOLD_IPV4):
        held.append(IPv4Address(int(address) & 0xFFFF_FFFF))
    return (address, *(each for each in held if each is not None))


class NetPattern(Struct, frozen=True):
    """The target of a rule; one of `name`, `suffix` and `network` says which hosts it means."""

    name: str = ""
    suffix: str | None = None
    network: Network | None = None
    ports: tuple[range, ...] = ()
    """As they are given; none: what holds for the rule's outcome."""
    method: str = ""
    """Empty for a connection."""
    path: str = ""

    def sample_hosts(self) -> tuple[Host, ...]:
        if self.network is not None:
            return (self.network[0], self.network[-1])
        return (self.name,) if self.name else (f"example{self.suffix}", f"a.example{self.suffix}")

    def ports_for(self, outcome: Outcome) -> tuple[range, ...]:
        if self.ports or outcome is Outcome.DENY:
            return self.ports or (EVERY_PORT,)
        return tuple(range(port, port + 1) for port in WEB_PORTS if not self.method or port == 443)

    def names(self, host: Host, port: int, outcome: Outcome) -> bool:
        if not any(port in each for each in self.ports_for(outcome)):
            return False
        if isinstance(host, str):
            return host == self.name or (self.suffix is not None and host.endswith(self.suffix))
        forms = _forms(host) if outcome is Outcome.DENY else (host,)
        return self.network is not None and any(each in self.network for each in forms)

    def matches_request(self, method: str, path: str, outcome: Outcome) -> bool:
        if outcome is Outcome.ALLOW:
            pattern, readings = _components(self.path), _readings(path)
            return self.method in (ANY, method) and all(_matches(pattern, r) for r in readings)
        pattern = _components(self.path.lower())
        readings = _readings(path.lower())
        readings |= {reading.removesuffix("/") for reading in readings}
        is_meant = self.method in (ANY, method.upper())
        return is_meant and any(_matches(pattern, reading) for reading in readings)


def _matches(pattern: Json, reading: str) -> bool:
    return matches_path(pattern, reading[1:].split("/"))


def _components(path: str) -> Json:
    parts = path[1:].split("/")
    found = [RUN if part == "**" else _pieces(part) for part in parts]
    # `/v1/**` is what lies below /v1/, and not /v1 itself.
    return (*found, (RUN,)) if parts[-1] == "**" else tuple(found)


def _pieces(part: str) -> Json:
    if part == ANY:
        return (ONE, RUN)
    return tuple(piece for text in part.split(ANY) for piece in (RUN, text) if piece != "")[1:]


def _readings(path: str) -> set[str]:
    """What servers may take a path for: as sent, decoded (also twice), each without its dots."""
    once = _decoded(path)
    sent = (path, once, _decoded(once))
    return {*sent, *map(_plain, sent)}


def _decoded(path: str) -> str:
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), path)


def _plain(path: str) -> str:
    """Without dots, empty components, backslashes, and what stands behind a `;` in a component."""
    kept: list[str] = []
    parts = [part.partition(";")[0] for part in path.replace("\\", "/").split("/")]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    end = "/" if kept and parts[-1] in ("", ".", "..") else ""
    return f"/{'/'.join(kept)}{end}"


def parse_target(operation: str, target: str) -> NetPattern:
    """Parse the target of a rule; PatternError where it can match nothing."""
    if operation == "connect":
        return _parse_hosts(target)
    method, _, rest = target.partition(" ")
    hosts, slash, path = rest.strip().partition("/")
    path = slash + path
    parts = path.split("/")
    is_path = _PATH.fullmatch(path) is not None and "//" not in path
    is_path = is_path and all(p == "**" or ("**" not in p and p not in (".", "..")) for p in parts)
    if operation != "request" or _METHOD.fullmatch(method) is None or not is_path:
        raise PatternError(
            f"{quote_toml(target)} can match no request of tool:net:{operation}",
            f"{_REQUEST_HINT}/**, the path without query, % and dots; * is any part of a component",
        )
    pattern = _parse_hosts(hosts)
    if pattern.network is not None and re.match(r"\d+(?::|$)", parts[1]):
        raise PatternError(f"{quote_toml(target)} names a network", "name one host for requests")
    return replace(pattern, method=method, path=path)


def _split(text: str, hint: str = _CONNECT_HINT) -> tuple[str, str]:
    found = _HOSTS.fullmatch(text)
    if found is None:
        raise PatternError(f"{quote_toml(text)} is not one host and its port", hint)
    return found[1] or found[2], found[3] or ""


def _parse_hosts(text: str) -> NetPattern:
    host, given = _split(text)
    ports = _parse_ports(text, given)
    if host == ANY:
        return NetPattern(suffix="", ports=ports)
    try:
        if "/" in host and "%" not in host:
            return NetPattern(network=ip_network(host), ports=ports)
        found = _read_host(host.removeprefix("*."))
        if isinstance(found, str):
            is_name = not host.startswith("*.")
            return NetPattern(
                found if is_name else "", None if is_name else f".{found}", None, ports
            )
        return NetPattern(network=ip_network(host), ports=ports)
    except ValueError as error:
        hint = "write a name, *.NAME for names below it, * for every name, an address, or a network"
        raise PatternError(f"{quote_toml(host)} is no host: {error}", hint) from error


def _parse_ports(text: str, given: str) -> tuple[range, ...]:
    if given in ("", ANY):
        return (EVERY_PORT,) if given else ()
    found: list[range] = []
    for part in given.split(",") if _PORTS.fullmatch(given) else ():
        first, _, last = part.partition("-")
        found.append(range(int(first), int(last or first) + 1))
    if not found or not all(each and each[0] > 0 and each[-1] in EVERY_PORT for each in found):
        hint = "write a number, several (80,443), or a range (8000-8010)"
        raise PatternError(f"{quote_toml(given)} in {quote_toml(text)} names no ports", hint)
    return tuple(found)


def check_opening(text: str, pattern: NetPattern | None) -> None:
    """Raise PatternError for what a deny may say, and an allow or an ask may not."""
    if pattern is None:
        hint = "write tool:net:connect * for every name, or better the names"
        raise PatternError(f"{quote_toml(text)} names no host, as only a deny may", hint)
    if sum(map(len, pattern.ports)) > PORTS_MAX:
        hint = "name the ports; only a deny has * or a long range"
        raise PatternError(f"{quote_toml(text)} names more than {PORTS_MAX} ports", hint)
    if pattern.network is not None and pattern.network.is_loopback:
        hint = "a command needs no rule for what it serves itself, and has nothing of this machine"
        raise PatternError(f"{quote_toml(text)} is the sandbox's own loopback", hint)


def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Parse `addresses` of a rule; PatternError for the first that is no network."""
    try:
        return tuple(map(ip_network, texts))
    except ValueError as error:
        hint = 'write addresses or networks, as in ["10.0.0.0/8", "fd00::/8"]'
        raise PatternError(f"addresses holds what is no network: {error}", hint) from error


class NetTarget(Struct, frozen=True):
    """What an action names; `method` is empty for a connection."""

    host: Host
    port: int
    method: str = ""
    path: str = ""

    def as_action(self) -> Action:
        host = f"[{self.host}]" if isinstance(self.host, IPv6Address) else str(self.host)
        text = f"{host}:{self.port}"
        if not self.method:
            return Action("net", "connect", text)
        return Action("net", "request", f"{self.method} {text}{self.path}")


def read_target(operation: str, target: str) -> NetTarget:
    """Read the target of an action: one host, one port, one request; PatternError else."""
    method, slash, path, hosts, hint = "", "", "", target, _CONNECT_HINT
    if operation == "request":
        method, _, rest = target.partition(" ")
        hosts, slash, path = rest.strip().partition("/")
        hint = _REQUEST_HINT
    host, port = _split(hosts, hint)
    try:
        if slash:
            port = port or "443"
        number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else 0
        return _target(host, number, method or slash, slash + path)
    except ValueError as error:
        raise PatternError(f"{quote_toml(target)} cannot be judged: {error}", hint) from error


def _target(host: str, port: int, method: str = "", target: str = "") -> NetTarget:
    # A query never widens: it is not looked at.
    path = target.partition("?")[0]
    if port not in EVERY_PORT:
        raise ValueError("a port is a number from 1 to 65535")
    if method or target:
        decoded = _decoded(_decoded(path))
        if re.fullmatch(r"[A-Za-z]{1,32}", method) is None:
            raise ValueError(f"{quote_toml(method)} is no method")
        if _SENT.fullmatch(path) is None or re.search(r"[\0-\x1f\x7f]", decoded):
            raise ValueError(f"{quote_toml(path)} is no path of printable ASCII characters")
    return NetTarget(_read_host(host), port, method, path)


def net_matches(rule: Rule, target: NetTarget) -> bool:
    """Return whether a rule's pattern matches, whatever commands it counts for."""
    pattern = rule.pattern.net
    if pattern is None or bool(pattern.method) is not bool(target.method):
        return False
    return pattern.names(target.host, target.port, rule.outcome) and (
        not target.method or pattern.matches_request(target.method, target.path, rule.outcome)
    )


def sample_actions(texts: Sequence[str]) -> Iterator[Action]:
    """Yield connections and requests that these patterns, or none of them, may match."""
    patterns = [net for text in texts if (net := parse_pattern(text).net) is not None]
    hosts = dict.fromkeys(str(host) for each in patterns for host in each.sample_hosts())
    ports = dict.fromkeys((*WEB_PORTS, *(each[0] for net in patterns for each in net.ports)))
    requests = dict.fromkeys((net.method, net.path) for net in patterns if net.method)
    for host, port in product((*hosts, "example.org"), ports):
        yield NetTarget(_read_host(host), port).as_action()
        for method, path in (*requests, ("GET", "/")):
            method = "GET" if method == ANY else method
            yield NetTarget(_read_host(host), port, method, path.replace("*", "x")).as_action()


def judge_net(profile: CompiledProfile, action: Action) -> Verdict:
    """Judge an action for no command in particular: a rule with `commands` counts for none."""
    try:
        target = read_target(action.operation, action.target)
    except PatternError as problem:
        return Verdict(Finding(Outcome.DENY, None, problem.message, 2))
    return _Rules(profile, None).judge(target)


class _Rules:
    """The rules of one profile that count for one command."""

    __slots__ = ("_profile", "opens", "rules")

    def __init__(self, profile: CompiledProfile, line: str | None) -> None:
        self._profile = profile
        self.rules = [
            (number, rule, rule.pattern.net)
            for number, rule in enumerate(profile.profile.rules)
            if rule.pattern.net is not None and _counts(rule, line)
        ]
        is_opened = any(rule.outcome is not Outcome.DENY for _, rule, _ in self.rules)
        otherwise = conclude(profile.table, [], "net", "connect", "")[0]
        # A rule without a target is a deny of all.
        is_closed = find_rules(profile.table, "net", "connect", "") != []
        self.opens = not is_closed and (is_opened or otherwise != Outcome.DENY)

    def naming(self, target: NetTarget, operation: str) -> Iterator[tuple[int, Rule]]:
        """Rules of an operation that mean host and port, whatever else they say."""
        for number, rule, pattern in self.rules:
            is_meant = bool(pattern.method) is (operation == "request")
            if is_meant and pattern.names(target.host, target.port, rule.outcome):
                yield number, rule

    def ending(self, target: NetTarget) -> Rule | None:
        """A rule by which requests to the host and port are judged one by one."""
        named = (rule for _, rule in self.naming(target, "request"))
        return next((rule for rule in named if rule.outcome is not Outcome.DENY), None)

    def judge(self, target: NetTarget) -> Verdict:
        ending = self.ending(target)
        is_request = bool(target.method) and ending is not None
        connects, requests = self.naming(target, "connect"), self.naming(target, "request")
        # What is allowed of connections says nothing of a request that a rule looks at.
        matched = [n for n, rule in connects if not is_request or rule.outcome is Outcome.DENY]
        # Threat: `deny = ["tool:net:request DELETE */**"]`, and nobody looks at the requests.
        matched += [
            number
            for number, rule in requests
            if (ending is None and rule.outcome is Outcome.DENY)
            or (is_request and net_matches(rule, target))
        ]
        table = self._profile.table
        matched += find_rules(table, "net", "connect", "")
        if is_request or ending is None:
            matched += find_rules(table, "net", "request", "")
        action = target.as_action()
        judged = action if is_request else action._replace(operation="connect")
        verdict = self._profile.verdict(list(dict.fromkeys(matched)), judged, str(action))
        finding = verdict.finding
        if ending is not None and not is_request and finding.rank:
            reason = f"each request is judged by itself, as {quote_toml(ending.pattern.text)} says"
            finding = Finding(Outcome.ALLOW, ending.shown, reason, 0)
        is_web = isinstance(target.host, str) and target.port in WEB_PORTS
        if finding.rank == OTHERWISE and finding.outcome is not Outcome.DENY and not is_web:
            reason = f"{finding.reason}, of names at the ports 80 and 443 alone"
            finding = Finding(Outcome.DENY, None, reason, 2)
        return Verdict(finding, verdict.matched)

    def lead_to(self, target: NetTarget) -> set[Network]:
        """Where what may be allowed or asked about may lead, besides public addresses."""
        return {
            network
            for operation in ("connect", "request")
            for _, rule in self.naming(target, operation)
            if rule.outcome is not Outcome.DENY and rule.pattern.net is not None
            for network in (*rule.addresses, rule.pattern.net.network)
            if network is not None
        }


def _counts(rule: Rule, line: str | None) -> bool:
    """Whether a line consists only of simple commands that the rule's `commands` match exactly."""
    if not rule.commands or line is None:
        return not rule.commands
    parsed, patterns = parse_line(line), [*map(compile_command_pattern, rule.commands)]
    is_read = parsed.commands != () and not parsed.problems
    return is_read and all(any(p.matches_exactly(c) for p in patterns) for c in parsed.wanted)


class Reach(Struct, frozen=True):
    """What policy says to a connection or a request; no `rule`: `otherwise`, or unknown is no.

    `addresses` are where the host may lead besides public addresses.
    """

    outcome: Outcome
    rule: RuleMatch | None
    addresses: tuple[Network, ...] = ()


class NetworkJudge:
    """What one command of one agent may reach: the strictest of the agent and its ancestors.

    `line` is the command, for rules with `commands`; None where those count for nothing. Hosts are
    names, or literal addresses without brackets; what is neither is denied.
    """

    def __init__(self, policy: Policy, chain: AgentChain, line: str | None) -> None:
        profiles = [*judge_for(policy, chain).profiles()]
        profiles += [each.overlay for each in profiles if each.overlay is not None]
        self._all = [_Rules(profile, line) for profile in profiles]

    @property
    def can_reach(self) -> bool:
        """Whether any connection may be allowed or asked about; errs on the side of yes."""
        return self._all != [] and all(each.opens for each in self._all)

    def ports(self, host: str) -> tuple[int, ...]:
        """Return the ports of `host` that are allowed or asked about; none: it is denied."""
        ports = self._named_ports()
        return tuple(p for p in ports if self.connect(host, p).outcome is not Outcome.DENY)

    def connect(self, host: str, port: int) -> Reach:
        """Judge a connection, before anything is resolved."""
        try:
            target = _target(host, port)
        except ValueError:
            return Reach(Outcome.DENY, None)
        return self._reach(target, [each.judge(target).finding for each in self._all])

    def address(self, address: Address, port: int) -> Reach:
        """Judge where a name leads: DENY with its rule where a deny by address holds."""
        target = NetTarget(address, port)
        for each in self._all:
            for _, rule in each.naming(target, "connect"):
                if rule.outcome is Outcome.DENY:
                    return Reach(Outcome.DENY, rule.shown)
        return Reach(Outcome.ALLOW, None)

    def names(self) -> tuple[str, ...]:
        """Return the names that rules write out, without those that a pattern stands for."""
        found = {pattern.name for each in self._all for _, _, pattern in each.rules}
        return tuple(sorted(found - {""}))

    def literals(self) -> tuple[tuple[IPv4Network, tuple[int, ...]], ...]:
        """Return the IPv4 networks that rules of every member name, each with its ports."""
        named = [
            {
                pattern.network
                for _, rule, pattern in each.rules
                if pattern.network and rule.outcome is not Outcome.DENY
            }
            for each in self._all
        ]
        found: list[tuple[IPv4Network, tuple[int, ...]]] = []
        for network in sorted(reduce(_common, named), key=str) if named else ():
            if isinstance(network, IPv4Network):
                targets = (NetTarget(network[0], port) for port in self._named_ports())
                ports = tuple(t.port for t in targets if all(each.lead_to(t) for each in self._all))
                found += [(network, ports)] if ports else []
        return tuple(found)

    def ends_tls(self, host: str, port: int) -> bool:
        """Whether a rule allows or asks about requests to this host and port."""
        try:
            target = _target(host, port)
        except ValueError:
            return False
        return any(each.ending(target) is not None for each in self._all)

    def request(self, method: str, host: str, port: int, target: str) -> Reach:
        """Judge a request of a connection that `connect` has let through; `target` as sent.

        A member that names no requests of the host is not asked again.
        """
        try:
            wanted = _target(host, port, method or "-", target)
        except ValueError:
            return Reach(Outcome.DENY, None)
        found = [each.judge(wanted).finding for each in self._all]
        asked = [each.ending(wanted) is None for each in self._all]
        return self._reach(
            wanted,
            [
                replace(finding, outcome=Outcome.ALLOW)
                if was_asked and finding.outcome is Outcome.ASK
                else finding
                for finding, was_asked in zip(found, asked, strict=True)
            ],
        )

    def _named_ports(self) -> list[int]:
        opening = (e for e in self._all[:1] for e in e.rules if e[1].outcome is not Outcome.DENY)
        ranges = (each for _, rule, pattern in opening for each in pattern.ports_for(rule.outcome))
        return sorted({*WEB_PORTS, *(port for each in ranges for port in each)})

    def _reach(self, target: NetTarget, found: list[Finding]) -> Reach:
        if not found:
            return Reach(Outcome.DENY, None)
        deciding = min(found, key=strictness)
        rule = deciding.rule if deciding.rank == 0 else None
        if deciding.outcome is Outcome.DENY:
            return Reach(Outcome.DENY, rule)
        both = reduce(_common, (each.lead_to(target) for each in self._all))
        return Reach(deciding.outcome, rule, tuple(sorted(both, key=str)))


def _common(some: set[Network], others: set[Network]) -> set[Network]:
    """Two networks are apart, or one of them lies in the other."""
    pairs = ((one, other) for one in some for other in others if one.overlaps(other))
    return {max(pair, key=lambda each: each.prefixlen) for pair in pairs}
