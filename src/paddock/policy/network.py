"""Network rules: hosts, ports and requests of a rule, and what a command may reach.

    connect  HOST[:PORTS]               example.org:443, *.example.org, 10.0.0.0/8:5432, [::1]:80
    request  METHOD HOST[:PORTS]/PATH   GET api.example.org/repos/**, * api.example.org/**
    HOST     a name; `*.NAME`: names below it, at any depth, not itself; `*`: every name; a literal
             address, or a network; IPv6 in brackets
    PORTS    443, or 80,443, or 8000-8010; in a deny also `*`
    PATH     by components: `*` for any part of one, `**` for any number; without the query

Without a port an allow or ask of a connection means 443 and 80, one of a request 443, and a deny
every port. Only a rule that names the category `net` opens anything; a deny may say `tool:*`.

If a request rule of a profile allows or asks about requests to a host and port, each request of
such a connection is judged separately. Otherwise requests are not inspected, and a deny of any
request denies the connection.

Threat: one target has many spellings (`EXAMPLE.org.`, `::ffff:10.0.0.1`, `/v1/%2e%2e/admin`). A
host is compared in one form. An allow has to match every reading of a path, a deny or ask any.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import reduce
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import product
from stringprep import in_table_a1
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from paddock.pattern import lazy_pattern
from paddock.policy.commands import compile_command_pattern, parse_line
from paddock.policy.compiled import ONE, OTHERWISE, RUN, conclude, find_rules, matches_path
from paddock.policy.decide import judge_for
from paddock.policy.engine import Policy
from paddock.policy.positions import PatternError, Table, quote_toml
from paddock.policy.profiles import CompiledProfile, Finding, Verdict, strictness
from paddock.policy.rules import ANY, Rule, compile_rule
from paddock.values.calls import Json
from paddock.values.decisions import Action, AgentChain, Outcome, RuleMatch

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network
Host: TypeAlias = str | Address

PORTS_MAX: Final = 32
"""Ports of an allow or ask; each needs a listener in the sandbox."""
NAME_CHARS_MAX: Final = 253
EVERY_PORT: Final = range(1, 65_536)
WEB_PORTS: Final = (80, 443)
_HOSTS: Final = lazy_pattern(r"(?:\[([^\[\]]+)\]|([^\[\]:]+))(?::([^:]+))?")
_REQUEST: Final = lazy_pattern(r"([A-Za-z]{1,32}|\*) +([^/ ]+)(/.*)", re.DOTALL)
_PORTS: Final = lazy_pattern(r"[0-9]{1,5}(?:-[0-9]{1,5})?")
_LABEL: Final = lazy_pattern(r"[a-z0-9_-]{1,63}")
_PATH: Final = lazy_pattern(
    r"(?:/(?:\*\*|(?!\.\.?(?:/|$)|[^/]*\*\*)[A-Za-z0-9._~!$&'()*+,=:@-]+))*/?"
)
_SENT: Final = lazy_pattern(r"/[!\"$->@-~]*")
"""A path in a request line: printable ASCII, without `#` and `?`."""
_EMBED_IPV4: Final = tuple(
    ip_network(block) for block in ("::/96", "::ffff:0:0/96", "64:ff9b::/96", "64:ff9b:1::/96")
)
"""Compatible, mapped, NAT64. In the rest of 64:ff9b:1::/48 (RFC 8215) the position of the IPv4
address is a local choice."""
_HINTS: Final = {
    "connect": "write HOST:PORT, as example.org:443, *.example.org:443 or [2001:db8::1]:443",
    "request": "write METHOD HOST/PATH, as GET api.example.org/repos/**, the path without % and ?",
}


def canonical_host(text: str) -> str:
    """Return a name for comparison: ASCII (IDNA), lower case, no final dot; ValueError."""
    if len(text) > NAME_CHARS_MAX + 1:
        raise ValueError(f"a name has at most {NAME_CHARS_MAX} characters")
    labels = [_ascii_label(label) for label in text.removesuffix(".").split(".")]
    for label in labels:
        if _LABEL.fullmatch(label) is None:
            raise ValueError(f"invalid label {quote_toml(label)}: use 1 to 63 of a-z, 0-9, - and _")
    if labels[-1].isdigit() or labels[-1].startswith("0x"):
        raise ValueError("its last label is a number, as in an address in another spelling")
    name = ".".join(labels)
    if len(name) > NAME_CHARS_MAX:
        raise ValueError(f"in ASCII it has more than {NAME_CHARS_MAX} characters")
    return name


def _ascii_label(label: str) -> str:
    folded = unicodedata.normalize("NFC", label.lower())
    if folded.isascii():
        return folded
    try:
        encoded = folded.encode("idna")
        is_same = encoded.decode("idna") == folded
    except UnicodeError:
        raise ValueError(f"invalid label {quote_toml(label)}") from None
    if not is_same or any(map(in_table_a1, folded)):
        # Threat: IDNA 2003 and IDNA 2008 encode `faß.example` differently.
        raise ValueError(f"{quote_toml(label)} can be read in two ways: write it as xn--…")
    return encoded.decode("ascii")


def _read_host(text: str) -> Host:
    if "%" in text:
        raise ValueError("an address with a zone is valid on one machine only")
    try:
        return ip_address(text)
    except ValueError:
        name = canonical_host(text)
    if f".{name}".endswith(".localhost"):
        raise ValueError("localhost is the sandbox's loopback, which needs no rule")
    return name


def held_addresses(address: Address) -> tuple[IPv4Address, ...]:
    """Return the IPv4 addresses embedded in an IPv6 address, to which a translator may send."""
    if isinstance(address, IPv4Address) or int(address) <= 1:  # `::` and `::1` embed none.
        return ()
    if any(address in network for network in _EMBED_IPV4):
        return (IPv4Address(address.packed[-4:]),)
    if address.teredo is not None:
        return address.teredo  # Its server, and its client.
    return () if address.sixtofour is None else (address.sixtofour,)


class NetPattern(Struct, frozen=True):
    """The target of a rule; one of `name`, `suffix` and `network` says which hosts it means."""

    name: str = ""
    suffix: str | None = None
    network: Network | None = None
    ports: tuple[range, ...] = ()
    """The ports given; empty: the default of the rule's outcome."""
    method: str = ""
    """Empty for a connection."""
    path: str = ""

    def ports_for(self, outcome: Outcome) -> tuple[range, ...]:
        if self.ports or outcome is Outcome.DENY:
            return self.ports or (EVERY_PORT,)
        return tuple(range(port, port + 1) for port in WEB_PORTS if not self.method or port == 443)

    def names(self, host: Host, port: int, outcome: Outcome) -> bool:
        if not any(port in each for each in self.ports_for(outcome)):
            return False
        if isinstance(host, str):
            return host == self.name or (self.suffix is not None and host.endswith(self.suffix))
        forms = (host, *held_addresses(host)) if outcome is Outcome.DENY else (host,)
        return self.network is not None and any(each in self.network for each in forms)

    def matches(self, action: Action, outcome: Outcome) -> bool:
        target = read_target(action.operation, action.target)
        if bool(self.method) is not bool(target.method):
            return False
        is_named = self.names(target.host, target.port, outcome)
        is_asked = self.method == "" or self.matches_request(target.method, target.path, outcome)
        return is_named and is_asked

    def matches_request(self, method: str, path: str, outcome: Outcome) -> bool:
        pattern, is_exact = self.path, outcome is Outcome.ALLOW
        readings = _readings(path)
        if not is_exact:
            pattern, method = pattern.lower(), method.upper()
            readings = {each.lower() for each in readings}
            readings |= {each.removesuffix("/") for each in readings}
        parts = _components(pattern)
        found = (matches_path(parts, each[1:].split("/")) for each in readings)
        return self.method in (ANY, method) and (all(found) if is_exact else any(found))


def _components(path: str) -> Json:
    def pieces(part: str) -> Json:
        found = (piece for text in part.split(ANY) for piece in (RUN, text) if piece != "")
        return (ONE, RUN) if part == ANY else tuple(found)[1:]

    parts = path[1:].split("/")
    found = [RUN if part == "**" else pieces(part) for part in parts]
    # `/v1/**` matches what is below /v1/, not /v1 itself.
    return (*found, (RUN,)) if parts[-1] == "**" else tuple(found)


def _readings(path: str) -> set[str]:
    """Return a path as servers may read it: as sent, decoded once or twice, each normalized."""
    once = _decoded(path)
    sent = (path, once, _decoded(once))
    return {*sent, *map(_normalized, sent)}


def _decoded(path: str) -> str:
    return re.sub(r"%([0-9A-Fa-f]{2})", lambda found: chr(int(found[1], 16)), path)


def _normalized(path: str) -> str:
    """Resolve dots, drop empty components and the part after a `;`; a backslash is a slash."""
    kept: list[str] = []
    parts = [part.partition(";")[0] for part in path.replace("\\", "/").split("/")]
    for part in parts:
        if part == "..":
            del kept[-1:]
        elif part not in ("", "."):
            kept.append(part)
    end = "/" if kept and parts[-1] in ("", ".", "..") else ""
    return f"/{'/'.join(kept)}{end}"


def _split(operation: str, text: str) -> tuple[str, str, str, str]:
    request = _REQUEST.fullmatch(text) if operation == "request" else None
    hosts = _HOSTS.fullmatch(request[2] if request is not None else text)
    if hosts is None or (request is None) is not (operation == "connect"):
        hint = _HINTS.get(operation, "write tool:net:connect or tool:net:request")
        raise PatternError(f"{quote_toml(text)} is not a target of tool:net:{operation}", hint)
    method, path = ("", "") if request is None else (request[1], request[3])
    return method, hosts[1] or hosts[2], hosts[3] or "", path


def parse_target(operation: str, target: str) -> NetPattern:
    method, host, given, path = _split(operation, target)
    try:
        pattern, ports = _parse_host(host), tuple(map(_parse_ports, given.split(",")))
        is_network = pattern.network is not None and re.match(r"/\d+(?::|/|$)", path)
        if method != method.upper() or _PATH.fullmatch(path) is None or is_network:
            raise ValueError("no request has such a method or path")
    except ValueError as error:
        message = f"{quote_toml(target)} can match nothing: {error}"
        raise PatternError(message, _HINTS[operation]) from error
    return replace(pattern, ports=ports if given else (), method=method, path=path)


def _parse_host(host: str) -> NetPattern:
    if host == ANY:
        return NetPattern(suffix="")
    is_network = "/" in host and "%" not in host
    found = "" if is_network else _read_host(host.removeprefix("*."))
    if is_network or not isinstance(found, str):
        return NetPattern(network=ip_network(host))
    return NetPattern(suffix=f".{found}") if host.startswith("*.") else NetPattern(name=found)


def _parse_ports(text: str) -> range:
    if text in ("", ANY):
        return EVERY_PORT
    first, _, last = text.partition("-")
    found = range(int(first), int(last or first) + 1) if _PORTS.fullmatch(text) else range(0)
    if not found or found[0] not in EVERY_PORT or found[-1] not in EVERY_PORT:
        raise ValueError(f"{quote_toml(text)} is not a port or a range of ports")
    return found


def check_opening(text: str, pattern: NetPattern | None) -> None:
    """Raise PatternError for a target that only a deny may have."""
    if pattern is None:
        message, hint = "names no host, as only a deny may", "write tool:net:connect * for any"
    elif sum(map(len, pattern.ports)) > PORTS_MAX:
        message, hint = f"names more than {PORTS_MAX} ports, as only a deny may", "name the ports"
    elif pattern.network is not None and pattern.network.is_loopback:
        message, hint = "is the sandbox's loopback", "it needs no rule; the host's cannot be opened"
    else:
        return
    raise PatternError(f"{quote_toml(text)} {message}", hint)


def check_extras(table: Table, rule: Rule) -> None:
    name = "commands" if table.has("commands") else "addresses"
    problem = "it names no command" if table.has("commands") and not rule.commands else ""
    try:
        _ = [ip_network(text) for text in rule.addresses]
        for text in rule.commands:
            shell = compile_rule(f"tool:shell:run {text}", Outcome.ALLOW, name)
            if shell.command is None or shell.command.is_any:
                problem = f"{quote_toml(text)} matches any command"
    except ValueError as error:
        problem = str(error)
    if rule.pattern.net is None or rule.outcome is Outcome.DENY:
        problem = f"{quote_toml(rule.pattern.text)} opens no network"
    if problem:
        hint = 'of a rule that allows or asks: addresses = ["10.0.0.0/8"], commands = ["psql *"]'
        table.problem(name, f"{name} is not valid here: {problem}", hint)


class NetTarget(Struct, frozen=True):
    """The target of an action; `method` is empty for a connection."""

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
    method, host, port, path = _split(operation, target)
    port = port or ("443" if method else "")
    try:
        return _target(host, int(port) if port.isascii() and port.isdigit() else 0, method, path)
    except ValueError as error:
        message = f"{quote_toml(target)} is not one host and port: {error}"
        raise PatternError(message, _HINTS[operation]) from error


def _target(host: str, port: int, method: str = "", target: str = "") -> NetTarget:
    # The query is ignored: no rule can name one.
    path = target.partition("?")[0]
    if port not in EVERY_PORT:
        raise ValueError("a port is a number from 1 to 65535")
    if method or target:
        has_control = re.search(r"[\0-\x1f\x7f]", _decoded(_decoded(path)))
        is_method = re.fullmatch(r"[A-Za-z]{1,32}", method)
        if has_control or not (is_method and _SENT.fullmatch(path)):
            raise ValueError("a request has a method, and a path of printable ASCII characters")
    return NetTarget(_read_host(host), port, method, path)


def find_miss(rule: Rule, action: Action) -> str:
    """Say why a rule does not match an action of its kind; empty if that is a guess."""
    net, target = rule.pattern.net, read_target(action.operation, action.target)
    if net is None or bool(net.method) is not bool(target.method):
        return ""
    if net.matches(action, rule.outcome):
        commands = ", ".join(rule.commands)
        return f"it counts only for commands like {commands}" if commands else ""
    if net.names(target.host, target.port, rule.outcome):
        return "its method or its path differs in one of the readings"
    if net.suffix == f".{target.host}":
        return "it matches names below this one, not the name itself"
    is_named = replace(net, ports=(EVERY_PORT,)).names(target.host, target.port, rule.outcome)
    return "it is for other ports" if is_named else ""


def describe_width(rule: Rule) -> str:
    """Say why an allow may match more than its author means; empty if it does not."""
    net = rule.pattern.net
    if net is None:
        return ""
    if net.suffix is not None and net.suffix.count(".") < 2:
        return "allows hosts that anyone can register: all a command can read can leave"
    given = (net.network, *map(ip_network, rule.addresses))
    if any(each is not None and each.prefixlen < 8 for each in given):
        return "opens more addresses than a private network has"
    is_ssh = any(22 in ports for ports in net.ports_for(rule.outcome))
    return "allows ssh, which can carry anything and has no requests to judge" if is_ssh else ""


def sample_actions(patterns: Sequence[NetPattern]) -> Iterator[Action]:
    hosts: list[Host] = ["example.org"]
    for net in patterns:
        suffixed = "" if net.suffix is None else f"a.example{net.suffix}"
        hosts += [net.name or suffixed] if net.network is None else [net.network[0]]
    ports = (*WEB_PORTS, *(each[0] for net in patterns for each in net.ports))
    requests = [("", ""), ("GET", "/")]
    requests += [(net.method.replace(ANY, "GET"), net.path.replace(ANY, "x")) for net in patterns]
    for host, port, (method, path) in dict.fromkeys(product(hosts, ports, requests)):
        yield NetTarget(host, port, method, path).as_action()


def judge_net(profile: CompiledProfile, action: Action) -> Verdict:
    """Judge an action without a command; rules with `commands` do not count."""
    try:
        target = read_target(action.operation, action.target)
    except PatternError as problem:
        return Verdict(Finding(Outcome.DENY, None, problem.message, 2))
    return _Rules(profile, None).judge(target)


_Numbered: TypeAlias = tuple[int, Rule, NetPattern]


class _Rules:
    def __init__(self, profile: CompiledProfile, line: str | None) -> None:
        self._profile = profile
        self.rules = [
            (number, rule, rule.pattern.net)
            for number, rule in enumerate(profile.profile.rules)
            if rule.pattern.net is not None and _counts(rule, line)
        ]
        # A rule without a target can only be a deny.
        is_closed = find_rules(profile.table, "net", "connect", "") != []
        otherwise = conclude(profile.table, [], "net", "connect", "")[0]
        self.opens = not is_closed and (otherwise != Outcome.DENY or any(self.opening()))

    def opening(self) -> Iterator[tuple[Rule, NetPattern]]:
        return ((rule, net) for _, rule, net in self.rules if rule.outcome is not Outcome.DENY)

    def naming(self, target: NetTarget, is_request: bool) -> Iterator[_Numbered]:
        for number, rule, net in self.rules:
            is_meant = bool(net.method) is is_request
            if is_meant and net.names(target.host, target.port, rule.outcome):
                yield number, rule, net

    def request_rule(self, target: NetTarget) -> Rule | None:
        """Return a rule that makes requests to the host and port be judged separately."""
        named = (rule for _, rule, _ in self.naming(target, is_request=True))
        return next((rule for rule in named if rule.outcome is not Outcome.DENY), None)

    def judge(self, target: NetTarget) -> Verdict:
        request_rule = self.request_rule(target)
        is_request = bool(target.method) and request_rule is not None
        # An allowed connection does not allow a request that a request rule judges.
        connects = self.naming(target, is_request=False)
        matched = [n for n, rule, _ in connects if not is_request or rule.outcome is Outcome.DENY]
        # Threat: `deny = ["tool:net:request DELETE */**"]`, but requests are not inspected.
        matched += [
            number
            for number, rule, net in self.naming(target, is_request=True)
            if (request_rule is None and rule.outcome is Outcome.DENY)
            or (is_request and net.matches_request(target.method, target.path, rule.outcome))
        ]
        matched += find_rules(self._profile.table, "net", "connect", "")
        if is_request or request_rule is None:
            matched += find_rules(self._profile.table, "net", "request", "")
        action = target.as_action()
        judged = action if is_request else action._replace(operation="connect")
        verdict = self._profile.verdict(list(dict.fromkeys(matched)), judged, str(action))
        finding = verdict.finding
        if request_rule is not None and not is_request and finding.rank:
            reason = f"{quote_toml(request_rule.pattern.text)}: each request is judged separately"
            finding = Finding(Outcome.ALLOW, request_rule.shown, reason, 0)
        is_web = isinstance(target.host, str) and target.port in WEB_PORTS
        if finding.rank == OTHERWISE and finding.outcome is not Outcome.DENY and not is_web:
            reason = f"{finding.reason}, but only of names at the ports 80 and 443"
            finding = Finding(Outcome.DENY, None, reason, 2)
        return Verdict(finding, verdict.matched)

    def lead_to(self, target: NetTarget) -> set[Network]:
        found: set[Network] = set()
        for rule, net in self.opening():
            if net.names(target.host, target.port, rule.outcome):
                found |= {*map(ip_network, rule.addresses), *filter(None, (net.network,))}
        return found


def _counts(rule: Rule, line: str | None) -> bool:
    """Return True if the rule's `commands` exactly match all simple commands of the line."""
    if not rule.commands or line is None:
        return not rule.commands
    parsed, patterns = parse_line(line), [*map(compile_command_pattern, rule.commands)]
    is_read = parsed.commands != () and not parsed.problems
    return is_read and all(any(p.matches_exactly(c) for p in patterns) for c in parsed.wanted)


class Reach(Struct, frozen=True):
    """The decision for a connection or a request; no `rule`: `otherwise`, or denied by default.

    `addresses`: networks that the host may resolve to besides public ones. `is_judged`: a rule
    allows or asks about requests to this host and port, so each of them is judged separately.
    """

    outcome: Outcome
    rule: RuleMatch | None
    addresses: tuple[Network, ...] = ()
    is_judged: bool = False


class NetworkJudge:
    """Decide what one command of an agent may reach: the strictest of the agent and its ancestors.

    `line` is the command, for rules with `commands`; None: such rules do not count. Hosts are
    names, or literal addresses without brackets; anything else is denied.
    """

    def __init__(self, policy: Policy, chain: AgentChain, line: str | None) -> None:
        self._all = [_Rules(each, line) for each in judge_for(policy, chain).profiles()]

    @property
    def can_reach(self) -> bool:
        """Return True if any connection may be allowed or asked about; if unsure, True."""
        return self._all != [] and all(each.opens for each in self._all)

    @property
    def depends_on_line(self) -> bool:
        """Return True if a rule counts only because of its `commands`."""
        return any(rule.commands for each in self._all for _, rule, _ in each.rules)

    def ports(self, host: str) -> tuple[int, ...]:
        ports = self._named_ports()
        return tuple(p for p in ports if self.connect(host, p).outcome is not Outcome.DENY)

    def connect(self, host: str, port: int) -> Reach:
        """Judge a connection before its name is resolved."""
        return self._reach(_find_target(host, port))

    def find_denial(self, address: Address, port: int) -> RuleMatch | None:
        """Return the rule that denies an address to which a name resolved."""
        target = NetTarget(address, port)
        named = (rule for each in self._all for _, rule, _ in each.naming(target, is_request=False))
        return next((rule.shown for rule in named if rule.outcome is Outcome.DENY), None)

    @property
    def names_requests(self) -> bool:
        return any(pattern.method for each in self._all for _, pattern in each.opening())

    def names(self) -> tuple[str, ...]:
        found = {pattern.name for each in self._all for _, _, pattern in each.rules}
        return tuple(sorted(found - {""}))

    def literals(self) -> tuple[tuple[IPv4Network, tuple[int, ...]], ...]:
        """Return the IPv4 networks that rules of all agents in the chain name, with their ports."""
        named = [{net.network for _, net in each.opening() if net.network} for each in self._all]
        found: dict[IPv4Network, tuple[int, ...]] = {}
        for network in reduce(_common, named) if named else ():
            targets = [NetTarget(network[0], port) for port in self._named_ports()]
            ports = [t.port for t in targets if all(each.lead_to(t) for each in self._all)]
            if ports and isinstance(network, IPv4Network):
                found[network] = tuple(ports)
        return tuple(sorted(found.items()))

    def request(self, method: str, host: str, port: int, target: str) -> Reach:
        """Judge a request of a connection that `connect` allowed; `target` as sent.

        If a profile has no request rule for the host, its ask of the connection was answered.
        """
        return self._reach(_find_target(host, port, method, target or "?"))

    def _named_ports(self) -> list[int]:
        opening = (each.opening() for each in self._all[:1])
        ranges = (
            p for rules in opening for rule, net in rules for p in net.ports_for(rule.outcome)
        )
        return sorted({*WEB_PORTS, *(port for each in ranges for port in each)})

    def _reach(self, target: NetTarget | None) -> Reach:
        if target is None or not self._all:
            return Reach(Outcome.DENY, None)
        found: list[Finding] = []
        for each in self._all:
            finding = each.judge(target).finding
            is_asked = finding.outcome is Outcome.ASK
            if target.method and is_asked and each.request_rule(target) is None:
                finding = replace(finding, outcome=Outcome.ALLOW)
            found.append(finding)
        deciding = min(found, key=strictness)
        rule = deciding.rule if deciding.rank == 0 else None
        if deciding.outcome is Outcome.DENY:
            return Reach(Outcome.DENY, rule)
        both = reduce(_common, (each.lead_to(target) for each in self._all))
        is_judged = any(each.request_rule(target) for each in self._all)
        return Reach(deciding.outcome, rule, tuple(sorted(both, key=str)), is_judged)


def _find_target(host: str, port: int, method: str = "", target: str = "") -> NetTarget | None:
    try:
        return _target(host, port, method, target)
    except ValueError:
        return None


def _common(some: set[Network], others: set[Network]) -> set[Network]:
    pairs = ((one, other) for one in some for other in others if one.overlaps(other))
    return {max(pair, key=lambda each: each.prefixlen) for pair in pairs}
