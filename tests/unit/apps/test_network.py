"""`paddock network` and `paddock init --network`: what commands may reach, by whom and why."""

import json
import threading
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from paddock.assembly.project import find_project
from paddock.plane.create import PACKAGES_TEMPLATE
from paddock.plane.discover import find_root
from paddock.plane.environment import read_environment
from paddock.plane.trust import packages_path
from paddock.policy.decide import decide
from paddock.policy.rules import parse_concrete
from paddock.values.decisions import Outcome
from tests.support.places import Ran, run_command

PACKAGES = "\n[network]\npackages = true\n"


class Person:
    """Somebody with package clients of their own, in a project."""

    def __init__(self, base: Path) -> None:
        self.home, self.project, self.programs = base / "home", base / "project", base / "bin"
        for directory in (self.home, self.project, self.programs):
            directory.mkdir()
        self.variables = {"HOME": str(self.home), "PATH": str(self.programs)}

    def uses(self, address: str) -> None:
        """npm, the only client, with this registry."""
        npm = self.programs / "npm"
        npm.write_text(f"#!/bin/sh\necho 'registry = \"{address}\"'\n")
        npm.chmod(0o755)

    def run(self, *arguments: str) -> Ran:
        return run_command(*arguments, variables=self.variables, here=self.project)

    def outcome(self, action: str, agent: str = "main") -> Outcome:
        project = find_project(self.project, read_environment(self.variables), None)
        chain = tuple(each.agent for each in project.agents.lineage(agent))
        return decide(project.policy, chain, [parse_concrete(f"tool:net:connect {action}")]).outcome

    def digest(self) -> str:
        return find_project(self.project, read_environment(self.variables), None).policy.digest

    @property
    def kept(self) -> Path:
        environment = read_environment(self.variables)
        return packages_path(find_root(self.project, environment, None), environment)

    def allow_packages(self) -> None:
        policy = self.project / "paddock.toml"
        policy.write_bytes(policy.read_bytes() + PACKAGES.encode())
        assert self.run("trust", "--yes").status == 0


@pytest.fixture
def person(tmp_path: Path) -> Person:
    made = Person(tmp_path)
    made.run("init")
    made.uses("https://npm.example/r/")
    return made


def net_rules(shown: Ran, agent: int = 0) -> list[tuple[str, str, str]]:
    rules = shown.json["agents"][agent]["rules"]
    return [(each["outcome"], each["action"], each["source"]) for each in rules]


NPM = ("allow", "tool:net:connect npm.example:443", "network.packages")


# Packages


def test_without_the_setting_nothing_is_allowed_whatever_was_found(person):
    shown = person.run("network", "show", "--refresh", "--json")

    assert (net_rules(shown), shown.json["packages"]["allowed"]) == ([], False)
    assert [each["value"] for each in shown.json["packages"]["indexes"]] == [
        "https://npm.example/r/"
    ]
    assert person.outcome("npm.example:443") is Outcome.DENY


def test_with_the_setting_what_was_found_is_allowed_and_nothing_else(person):
    before = person.digest()
    person.allow_packages()
    unasked = (person.outcome("npm.example:443"), person.digest())
    shown = person.run("network", "show", "--refresh", "--json")

    assert unasked[0] is Outcome.DENY
    assert len({before, unasked[1], person.digest()}) == 3
    assert net_rules(shown) == [NPM]
    assert shown.json["agents"][0] | {"rules": []} == {
        "name": "main",
        "network": "policy",
        "profiles": ["standard"],
        "rules": [],
    }
    outcomes = [
        person.outcome(f"{each}")
        for each in ("npm.example:443", "npm.example:80", "x.npm.example:443", "example:443")
    ]
    assert outcomes == [Outcome.ALLOW, Outcome.DENY, Outcome.DENY, Outcome.DENY]
    assert "allow tool:net:connect npm.example:443" in person.run("network", "show").out
    # What came into force is on record.
    loaded = person.run(
        "ledger", "query", "--ledger", "governance", "--type", "POLICY_LOADED", "--json"
    )
    assert person.digest() in loaded.out


def test_an_untrusted_policy_opens_no_network(person):
    person.allow_packages()
    person.run("network", "show", "--refresh")
    policy = person.project / "paddock.toml"
    policy.write_bytes(policy.read_bytes() + b"# changed\n")
    shown = person.run("network", "show", "--json")

    assert (net_rules(shown), shown.json["packages"]["allowed"]) == ([], False)
    assert person.outcome("npm.example:443") is Outcome.DENY
    assert "[network] is not in force" in person.run("trust").err or shown.err


def test_a_deny_of_policy_is_stronger_and_an_agent_that_is_locked_reaches_nothing(person):
    person.allow_packages()
    person.run("network", "show", "--refresh")
    person.run("agent", "create", "reader", "--profile", "locked", "--parent", "main")
    locked = person.outcome("npm.example:443", "reader")
    policy = person.project / "paddock.toml"
    policy.write_text(
        policy.read_text() + '[profiles.standard]\nextends = "standard"\n'
        'deny = ["tool:net:connect *.example"]\n'
    )
    person.run("trust", "--yes")

    assert (locked, person.outcome("npm.example:443")) == (Outcome.DENY, Outcome.DENY)


def test_the_setting_counts_in_the_users_own_configuration_too(person):
    own = person.home / ".config/paddock/config.toml"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.parent.chmod(0o700)
    own.write_text("[network]\npackages = true\n")
    own.chmod(0o600)
    person.run("network", "show", "--refresh")

    assert person.outcome("npm.example:443") is Outcome.ALLOW


def test_trust_names_what_packages_open(person):
    policy = person.project / "paddock.toml"
    policy.write_bytes(policy.read_bytes() + PACKAGES.encode())

    assert "[network] packages is true: commands reach the hosts of your package clients" in (
        person.run("trust").out
    )


def test_what_was_found_and_is_changed_is_told_with_its_place(person):
    person.run("network", "show", "--refresh")
    kept = json.loads(person.kept.read_bytes())
    kept["found"]["indexes"][0]["hosts"] = 5
    person.kept.write_text(json.dumps(kept))
    shown = person.run("network", "show")

    assert (shown.status, str(person.kept) in shown.err) == (3, True)


@pytest.mark.parametrize("damage", [b"{", b'{"rules": 1}', b"", b'{"rules": [], "x": 1}'])
def test_a_kept_file_that_does_not_load_allows_nothing_and_is_made_anew(person, damage):
    person.allow_packages()
    person.run("network", "show", "--refresh")
    person.kept.write_bytes(damage)
    spoilt, shown = person.outcome("npm.example:443"), person.run("network", "show")
    person.run("network", "show", "--refresh")

    assert (spoilt, shown.status, "error[config.invalid]" in shown.err) == (Outcome.DENY, 3, True)
    assert person.outcome("npm.example:443") is Outcome.ALLOW


@pytest.mark.parametrize(
    "action", ["tool:net:connect *", "tool:file:create x", "tool:net:connect a b"]
)
def test_a_kept_rule_of_another_kind_is_left_out(person, action):
    person.allow_packages()
    person.run("network", "show", "--refresh")
    kept = json.loads(person.kept.read_bytes())
    kept["rules"].append({"action": action, "addresses": ["10.0.0.0/40"]})
    person.kept.write_text(json.dumps(kept))

    assert net_rules(person.run("network", "show", "--json")) == [NPM]


def test_in_another_network_private_addresses_are_closed(person):
    person.allow_packages()
    person.run("network", "show", "--refresh")
    kept = json.loads(person.kept.read_bytes())
    kept["rules"] = [{"action": NPM[1], "addresses": ["10.1.2.3/32"]}]

    def addresses(network: str) -> tuple[object, object]:
        person.kept.write_text(json.dumps({**kept, "network": network}))
        shown = person.run("network", "show", "--json").json
        return shown["agents"][0]["rules"][0]["addresses"], shown["packages"]["same_network"]

    assert addresses(kept["network"]) == (["10.1.2.3/32"], True)
    assert addresses("sha256:elsewhere") == ([], False)


class _Registry(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        answers = {
            "/r/npm/latest": b'{"dist": {"tarball": "https://files.example/npm.tgz"}}',
            "/rubbish/npm/latest": b"\xff\x00",
        }
        if self.path.startswith("/broken"):
            self.wfile.write(b"\r\n\r\nSSH-2.0-no\r\n")
            return
        body = answers.get(self.path)
        self.send_response(404 if body is None else 200)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, *args: object) -> None:
        del args


@pytest.fixture
def registry() -> Generator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Registry)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.loopback
def test_a_registry_says_where_its_files_are(person, registry):
    person.uses(f"{registry}/r")
    person.allow_packages()
    shown = person.run("network", "show", "--refresh", "--json")

    assert net_rules(shown)[-1:] == [
        ("allow", "tool:net:connect files.example:443", "network.packages")
    ]


@pytest.mark.loopback
@pytest.mark.parametrize("path", ["none", "rubbish", "broken"])
def test_a_registry_that_says_nothing_is_told(person, registry, path):
    person.uses(f"{registry}/{path}")
    shown = person.run("network", "show", "--refresh")

    assert (shown.status, shown.out.count("its hosts are unknown")) == (0, 1)


# A rule by a person


def test_a_host_is_allowed_by_a_rule_that_is_shown_proved_and_trusted(person):
    before = [person.outcome(each) for each in ("example.org:443", "example.org:80")]
    ran = person.run("network", "allow", "EXAMPLE.org", "--yes")

    assert before == [Outcome.DENY, Outcome.DENY]
    assert (ran.status, ran.out.count('action  = "tool:net:connect example.org:')) == (0, 2)
    assert b"\n\n\n" not in (person.project / "paddock.toml").read_bytes()
    after = [
        person.outcome(each)
        for each in ("example.org:443", "example.org:80", "example.org:22", "a.example.org:443")
    ]
    assert after == [Outcome.ALLOW, Outcome.ALLOW, Outcome.DENY, Outcome.DENY]
    assert person.run("trust").out.endswith("trusted already\n")


@pytest.mark.parametrize(
    ("host", "allowed", "other"),
    [
        ("db.example.org:5432", "db.example.org:5432", "db.example.org:443"),
        ("10.1.2.3:8080", "10.1.2.3:8080", "10.1.2.4:8080"),
        ("[fd00::1]:443", "[fd00::1]:443", "[fd00::2]:443"),
    ],
)
def test_a_port_and_a_literal_address_are_allowed_and_their_neighbours_are_not(
    person, host, allowed, other
):
    assert person.run("network", "allow", host, "--yes").status == 0
    assert (person.outcome(allowed), person.outcome(other)) == (Outcome.ALLOW, Outcome.DENY)


@pytest.mark.parametrize(
    "host",
    [
        "",
        "*",
        "*.example.org",
        "10.0.0.0/8",
        "example.org:*",
        "a b",
        "example.org:0",
        "localhost",
        "127.0.0.1:80",
        "https://example.org/",
        "example.org\n:443",
        "example.org:1-5000",
    ],
)
def test_what_is_not_one_host_is_refused_and_changes_nothing(person, host):
    policy = (person.project / "paddock.toml").read_bytes()
    ran = person.run("network", "allow", host, "--yes")

    assert (ran.status, ran.err.count("error[")) == (2, 1)
    assert (person.project / "paddock.toml").read_bytes() == policy


def test_nothing_is_saved_without_a_yes_nor_against_a_deny(person):
    policy = person.project / "paddock.toml"
    unasked = person.run("network", "allow", "example.org")
    policy.write_text(
        policy.read_text() + '[profiles.standard]\nextends = "standard"\n'
        'deny = ["tool:net:connect *.org"]\n'
    )
    untrusted = person.run("network", "allow", "example.org", "--yes")
    person.run("trust", "--yes")
    text = policy.read_bytes()
    denied = person.run("network", "allow", "example.org", "--yes")

    assert (unasked.status, untrusted.status, denied.status) == (2, 3, 3)
    assert unasked.out.startswith("to be appended to ")
    assert "no allow rule can lift tool:net:connect *.org" in denied.err
    assert policy.read_bytes() == text


def test_what_is_allowed_already_is_not_written_again(person):
    person.run("network", "allow", "example.org", "--yes")
    ran = person.run("network", "allow", "example.org:443", "--yes")

    assert (ran.status, "policy allows it already" in ran.err) == (2, True)


# A new project


def test_a_project_is_made_with_the_packages_of_its_user(tmp_path):
    person = Person(tmp_path)
    person.uses("https://npm.example/r/")
    ran = person.run("init", "--network", "packages", "--json")

    assert ran.json["packages"] == ["npm.example:443"]
    assert (person.project / "paddock.toml").read_bytes() == PACKAGES_TEMPLATE
    assert person.outcome("npm.example:443") is Outcome.ALLOW


def test_a_policy_that_was_there_is_not_changed_by_it(person):
    before = (person.project / "paddock.toml").read_bytes()
    ran = person.run("init", "--network", "packages")

    assert (ran.status, "does not allow packages" in ran.err) == (0, True)
    assert (person.project / "paddock.toml").read_bytes() == before
    assert person.outcome("npm.example:443") is Outcome.DENY


def test_a_bare_plane_is_told_how_it_is_done_there(tmp_path):
    person = Person(tmp_path)
    ran = person.run("init", "--bare", "plane", "--network", "packages")

    assert (ran.status, "set packages = true under [network]" in ran.err) == (2, True)
    assert list(person.project.iterdir()) == []
