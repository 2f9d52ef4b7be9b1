"""`paddock network`: show which hosts commands may reach and why; allow one more."""

import socket
import tempfile
import time
import urllib.request  # noqa: TID251 - package registries, not models
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct, to_builtins

from paddock.apps import command
from paddock.apps.console import EXIT_NO, Console
from paddock.assembly.inbox_answers import review_rule, save_rule
from paddock.assembly.project import Project
from paddock.errors import HostError, UsageError
from paddock.network.packages import FoundPackages, find_packages, open_inquiry, package_rules
from paddock.plane import trust
from paddock.plane.environment import real_path
from paddock.plane.json_files import JsonFile
from paddock.policy.decide import judge_for
from paddock.policy.network import NetTarget
from paddock.policy.positions import PatternError
from paddock.policy.rules import Rule, compile_rule
from paddock.policy.settings import Network
from paddock.sandbox.values import line_network
from paddock.storage.atomic import host_error, make_directories
from paddock.text.show import quote, show_name
from paddock.values.calls import Json
from paddock.values.decisions import Outcome

_FETCH_S = 10
_PAGE_BYTES_MAX = 2_000_000


def refresh_packages(project: Project) -> trust.KeptPackages:
    environment, agents = project.environment, project.agents.read_all()
    closed = [real_path(each) for each in (project.root.path, *(a.workspace for a in agents))]
    make_directories(environment.paddock_home)
    with (
        host_error("asking package clients"),
        tempfile.TemporaryDirectory(dir=environment.paddock_home) as directory,
    ):
        place, variables = Path(directory), dict(environment.variables)
        found = find_packages(open_inquiry(place, variables, closed, _fetch, _resolve))
    now, shown = datetime.now(UTC).isoformat(timespec="seconds"), to_builtins(found)
    kept = trust.KeptPackages(now, trust.network_here(), package_rules(found), shown)
    trust.write_packages(kept, project.root, environment)
    return kept


def _fetch(url: str) -> tuple[str, bytes]:
    if urlsplit(url).scheme not in ("http", "https"):
        raise HostError(f"{quote(url)} is not a page")
    opener = urllib.request.build_opener()  # noqa: TID251 - package registries, not models
    opener.addheaders = [("Accept", "text/html, application/json;q=0.9")]
    text, end = b"", time.monotonic() + _FETCH_S
    try:
        with opener.open(url, timeout=_FETCH_S) as page:
            while part := page.read1(_PAGE_BYTES_MAX):
                text += part
                if len(text) > _PAGE_BYTES_MAX or time.monotonic() > end:
                    raise HostError(f"response exceeds {_PAGE_BYTES_MAX} bytes or {_FETCH_S} s")
            return page.geturl(), text
    except (OSError, ValueError, HTTPException) as error:
        raise HostError(str(error)) from error


def _resolve(host: str) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return sorted({str(address[0]) for *_, address in found})


class _AgentReach(Struct, frozen=True):
    name: str
    profiles: tuple[str, ...]
    network: Network
    rules: tuple[Rule, ...]

    def as_json(self) -> dict[str, Json]:
        rules = [
            {
                "outcome": rule.outcome.word,
                "action": rule.pattern.text,
                **command.fields(rule, "addresses", "commands", "source"),
                "place": str(rule.place),
            }
            for rule in self.rules
        ]
        return to_builtins({**command.fields(self, "name", "network", "profiles"), "rules": rules})

    def rows(self) -> Iterator[str]:
        yield f"{self.name} ({', '.join(self.profiles)}): network {self.network}"
        for rule in self.rules:
            said = " ".join((rule.pattern.text, *rule.extras))
            yield f"  {rule.outcome.word:<6}{show_name(said)}  ({rule.source}, {rule.place})"


def _show(options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    if options.refresh:
        refresh_packages(project)
        project = command.use_project(options, console)
    kept = trust.read_packages(project.root, project.environment)
    names = dict.fromkeys((project.default_agent, *project.agents.names()))
    agents = [_reach_of(project, name) for name in names]
    packages: dict[str, Json] = {
        "allowed": project.policy.settings.network.packages,
        "same_network": kept is not None and kept.network == trust.network_here(),
        "found_at": None if kept is None else kept.found_at,
        **({} if kept is None else kept.found),
    }
    rows = [row for each in agents for row in each.rows()]
    value: Json = {"agents": [each.as_json() for each in agents], "packages": packages}
    return command.Reply(value, (*rows, *_package_rows(project, kept)), is_ours=True)


def _reach_of(project: Project, name: str) -> _AgentReach:
    lineage = project.agents.lineage(name)
    policy, chain = project.policy_for(lineage[0]), tuple(each.agent for each in lineage)
    compiled = judge_for(policy, chain).profiles()
    rules = [rule for each in compiled for rule in each.profile.rules if _is_net(rule)]
    names = tuple(dict.fromkeys(each.name for each in compiled))
    return _AgentReach(name, names, line_network(policy, chain, None), tuple(rules))


def _is_net(rule: Rule) -> bool:
    # Of the `tool:*` rules, only a deny covers the network.
    means = rule.pattern.head.matches("net", "connect") and rule.outcome is Outcome.DENY
    return means or rule.pattern.head.category == "net"


def _package_rows(project: Project, kept: trust.KeptPackages | None) -> Iterator[str]:
    is_allowed = project.policy.settings.network.packages
    yield f"package clients: {'allowed' if is_allowed else 'not allowed'} by [network] packages"
    if kept is None:
        yield "  never asked: paddock network show --refresh"
        return
    is_here = kept.network == trust.network_here()
    where = "this network" if is_here else "another network: private addresses are closed"
    yield f"  asked {kept.found_at}, in {where}"
    file = trust.packages_path(project.root, project.environment)
    found = JsonFile(str(file), kept.found).convert(FoundPackages)
    for index in found.indexes:
        yield f"  {index.client:<6}{show_name(index.value)}  ({show_name(index.origin)})"
        for host in index.hosts:
            led = f" also at {', '.join(host.addresses)}" if host.addresses else ""
            yield f"    {host.name}:{host.port}{led}"
        if index.has_credentials:
            yield "    commands do not get its password: declare it under [credentials]"
        if index.problem:
            yield f"    its hosts are unknown: {show_name(index.problem)}"
    for problem in found.problems:
        yield f"  no index from {show_name(problem)}"


def _allow(options: command.Options, console: Console) -> command.Reply:
    project = command.use_project(options, console)
    agent = project.agent_named(options.agent)
    review = review_rule(project, agent, _connections(options.host))
    say = console.warn if options.json else console.say
    say(f"to be appended to {show_name(str(review.file))}:\n{review.always.addition}")
    if not options.yes and not console.agrees("save this rule? [y/N] "):
        return command.Reply({"status": "error", "saved": False}, "not saved", EXIT_NO)
    save_rule(project, review, command.operator())
    return command.Reply({"status": "ok", "saved": True}, "saved and trusted")


def _connections(host: str) -> list[str]:
    try:
        net = compile_rule(f"tool:net:connect {host}", Outcome.ALLOW, "").pattern.net
    except PatternError as error:
        raise UsageError(error.message, where="HOST", hint=error.hint) from None
    if net is None or (not net.name and (net.network is None or net.network.num_addresses > 1)):
        hint = "for several hosts, write the rule in the policy, then: paddock trust"
        raise UsageError(f"{quote(host)} is not a single host", where="HOST", hint=hint)
    ports = [port for each in net.ports_for(Outcome.ALLOW) for port in each]
    one = net.name if net.network is None else net.network[0]
    return [str(NetTarget(one, port).as_action()) for port in ports]


COMMAND = command.Command(
    "Show which hosts the commands of each agent may reach, and which rule allows it; allow\n"
    "one more host. --refresh asks your package clients (pip, uv, npm, go, cargo) which\n"
    "indexes they use, and asks those for their hosts; [network] packages = true allows them.",
    "  paddock network show\n"
    "  paddock network show --refresh\n"
    "  paddock network allow example.org\n"
    "  paddock network allow db.example.org:5432 --agent main",
    command.Part(
        "show",
        "list the rules and hosts of each agent",
        _show,
        command.flag("--refresh", "ask the package clients again"),
    ),
    command.Part(
        "allow",
        "add a rule that allows a host",
        _allow,
        command.opt("--agent", "NAME", "the agent to allow it for (default: main)"),
        command.flag("--yes", "save the rule without asking"),
        command.opt("host", "HOST[:PORT]", "without a port: 443 and 80"),
    ),
)
