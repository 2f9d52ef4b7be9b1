"""Which hosts the user's own package clients use: what they say, and what their registries do."""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from paddock.errors import ConfigError, HostError
from paddock.network.packages import (
    FoundPackages,
    PackageHost,
    PackageIndex,
    PackageInquiry,
    find_packages,
    index_variables,
    open_inquiry,
    package_rules,
)
from paddock.policy.settings import PackageRule

ABSENT = tuple(f"{each}: it is not installed" for each in ("pip", "uv", "npm", "go", "cargo"))
HELP = "pip install --help: index-url"
PUBLIC, INSIDE = "93.184.215.14", "10.1.2.3"


def fetch_nothing(url: str) -> tuple[str, bytes]:
    raise HostError("HTTP Error 404: Not Found")


def pages(known: Mapping[str, str]) -> Callable[[str], tuple[str, bytes]]:
    def fetch(url: str) -> tuple[str, bytes]:
        return (url, known[url].encode()) if url in known else fetch_nothing(url)

    return fetch


def resolve_nothing(_: str) -> tuple[str, ...]:
    return ()


class Machine(Struct, frozen=True):
    """A user with a home, programs, and a workspace in which an agent writes."""

    base: Path

    @property
    def home(self) -> Path:
        return self.base / "home"

    @property
    def workspace(self) -> Path:
        return self.base / "workspace"

    def program(self, name: str, script: str, folder: Path | None = None) -> Path:
        path = (folder or self.base / "bin") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def says(self, name: str, text: str) -> None:
        """A client that gives one answer to every question."""
        answer = self.base / f"{name}.txt"
        answer.write_text(text)
        self.program(name, f"exec /bin/cat {answer}")

    def outside(
        self,
        fetch: Callable[[str], tuple[str, bytes]] = fetch_nothing,
        resolve: Callable[[str], tuple[str, ...]] = resolve_nothing,
        client_s: float = 20,
        **variables: str,
    ) -> PackageInquiry:
        directory = self.home / "empty"
        directory.mkdir(exist_ok=True)
        # No clients of this machine, unless a test means them.
        given = {"HOME": str(self.home), "PATH": str(self.base / "bin"), **variables}
        return open_inquiry(directory, given, [self.workspace], fetch, resolve, client_s)

    def indexes(self, client: str, **variables: str) -> list[tuple[str, str]]:
        found = find_packages(self.outside(**variables)).indexes
        return [(each.variable, each.value) for each in found if each.client == client]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    made = Machine(tmp_path)
    for directory in (made.home, made.workspace, tmp_path / "bin"):
        directory.mkdir()
    return made


def index(
    client: str, variable: str, value: str, origin: str, *hosts: PackageHost, problem: str = ""
) -> PackageIndex:
    return PackageIndex(client, variable, value, origin, hosts, False, problem)


def web(name: str, *addresses: str, port: int = 443) -> PackageHost:
    return PackageHost(name, port, addresses)


# What each client says

PIP_HELP = """
  -i, --index-url <url>       Base URL of the Python Package Index (default {}). This should
"""
NPM_LIST = """\
; "default" config from default values
; registry = "https://default.example/" ; overridden by user
; "user" config from /home/u/.npmrc
@acme:registry = "https://npm.acme.example/x/"
//npm.acme.example/x/:_authToken = (protected)
registry = "https://npm.example/r/"
"""
CARGO_ANSWER = """\
    Updating `mirror` index
error: failed to get `asked-index` as a dependency of package `asked v0.0.0 (/home/u)`
Caused by:
  failed to download from `https://crates.example/index/config.json`
"""


@pytest.mark.parametrize(
    ("client", "answer", "indexes"),
    [
        (
            "pip",
            PIP_HELP.format("https://a.example/simple")
            + "global.extra-index-url='\\nhttps://b.example/s\\nhttps://c.example/s'\n",
            [
                ("PIP_INDEX_URL", "https://a.example/simple"),
                ("PIP_EXTRA_INDEX_URL", "https://b.example/s"),
                ("PIP_EXTRA_INDEX_URL", "https://c.example/s"),
            ],
        ),
        (
            "pip",
            PIP_HELP.format("https://a.example/simple")
            + ":env:.extra-index-url='https://mine.example/s'\n"
            + "global.extra-index-url='https://all.example/s'\n",
            [
                ("PIP_INDEX_URL", "https://a.example/simple"),
                ("PIP_EXTRA_INDEX_URL", "https://mine.example/s"),
            ],
        ),
        (
            "uv",
            (
                "--index-url https://a.example/simple\n"
                "--extra-index-url https://b.example:8443/s\n"
                "--extra-index-url http://c.example/s\n"
            ),
            [
                ("UV_DEFAULT_INDEX", "https://a.example/simple"),
                ("UV_INDEX", "https://b.example:8443/s"),
                ("UV_INDEX", "http://c.example/s"),
            ],
        ),
        (
            "npm",
            NPM_LIST,
            [
                ("", "https://npm.acme.example/x/"),
                ("npm_config_registry", "https://npm.example/r/"),
            ],
        ),
        (
            "go",
            "GOPROXY='https://a.example,https://b.example|direct'\nGOSUMDB='sum.example+key'\n",
            [
                ("GOPROXY", "https://a.example"),
                ("GOPROXY", "https://b.example"),
                ("GOSUMDB", "sum.example+key"),
            ],
        ),
        ("go", "GOPROXY='off'\nGOSUMDB='off'\n", [("GOSUMDB", "off")]),
        ("cargo", CARGO_ANSWER, [("", "https://crates.example/index/")]),
    ],
)
def test_a_client_is_asked_for_its_indexes(machine, client, answer, indexes):
    machine.says(client, answer)

    assert machine.indexes(client) == indexes


def test_a_sum_database_is_reached_by_its_name_or_by_the_address_behind_it(machine):
    machine.says("go", "GOSUMDB='sum.example+key https://mirror.example:8443/sum'\n")
    named = find_packages(machine.outside()).indexes[0].hosts
    machine.says("go", "GOSUMDB='sum.example+key'\n")

    assert (named, find_packages(machine.outside()).indexes[0].hosts) == (
        (web("mirror.example", port=8443),),
        (web("sum.example"),),
    )


def test_pip_is_asked_also_where_it_is_called_pip3(machine):
    machine.says("pip3", PIP_HELP.format("https://a.example/simple"))

    assert machine.indexes("pip") == [("PIP_INDEX_URL", "https://a.example/simple")]


# Passwords


@pytest.mark.parametrize(
    "address",
    ["https://u:sesame@a.example/s", "https://sesame@a.example/s", "https://a.example/s?t=sesame"],
)
def test_no_password_is_kept_and_that_there_was_one_is_told(machine, address):
    asked: list[str] = []

    def fetch(url: str) -> tuple[str, bytes]:
        asked.append(url)
        return fetch_nothing(url)

    machine.says("uv", f"--index-url {address}\n")
    found = find_packages(machine.outside(fetch))

    origin = "uv pip compile - --emit-index-url --no-header --offline: index-url"
    host = (web("a.example"),)
    assert found.indexes == (
        PackageIndex(
            "uv",
            "UV_DEFAULT_INDEX",
            "https://a.example/s",
            origin,
            host,
            True,
            "HTTP Error 404: Not Found",
        ),
    )
    assert ("sesame" in repr((found, asked, package_rules(found), index_variables(found)))) is False


# What registries say of themselves


def test_a_registry_is_asked_once_which_hosts_it_uses(machine):
    machine.says("pip", PIP_HELP.format("https://a.example/simple"))
    machine.says("npm", 'registry = "https://npm.example/r/"\n')
    machine.says("cargo", CARGO_ANSWER)
    known = {
        "https://a.example/simple/pip/": (
            '<a class="x" href="https://files.example/1.whl#sha256=0">1</a>'
            "<a href='../../2.whl'>2</a><a href=\"mailto:me@a.example\">me</a>"
        ),
        "https://npm.example/r/npm/latest": json.dumps(
            {"dist": {"tarball": "http://tar.example:8080/npm.tgz"}}
        ),
        "https://crates.example/index/config.json": json.dumps(
            {"dl": "https://dl.example/{crate}/{version}", "api": "https://api.example"}
        ),
    }
    found = find_packages(machine.outside(pages(known)))

    assert [each.hosts for each in found.indexes] == [
        (web("a.example"), web("files.example")),
        (web("npm.example"), web("tar.example", port=8080)),
        (web("crates.example"), web("api.example"), web("dl.example")),
    ]
    assert [each.problem for each in found.indexes] == ["", "", ""]


def test_a_host_is_resolved_once_however_many_links_lead_to_it(machine):
    machine.says("pip", PIP_HELP.format("https://packages.example.org/simple"))
    page = "".join(f'<a href="https://files.example.org/{n}.whl">{n}</a>' for n in range(300))
    asked: list[str] = []

    def resolve(name: str) -> tuple[str, ...]:
        asked.append(name)
        return (PUBLIC,)

    fetch = pages({"https://packages.example.org/simple/pip/": page})
    found = find_packages(machine.outside(fetch, resolve))

    assert [each.hosts for each in found.indexes] == [
        (web("packages.example.org"), web("files.example.org"))
    ]
    assert len(asked) <= 3


def test_an_index_without_pip_is_asked_for_the_first_package_that_it_lists(machine):
    machine.says("uv", "--index-url https://a.example/simple\n")
    known = {
        "https://a.example/simple/": '<a href="six/">six</a><a href="other/">other</a>',
        "https://a.example/simple/six/": '<a href="https://files.example/six.whl">six</a>',
    }
    found = find_packages(machine.outside(pages(known)))

    assert found.indexes[0].hosts == (web("a.example"), web("files.example"))


def test_a_registry_that_moved_is_reached_at_both_places(machine):
    machine.says("npm", 'registry = "https://npm.example/"\n')

    def fetch(_: str) -> tuple[str, bytes]:
        return "https://moved.example/npm/latest", b'{"dist": {"tarball": "https://t.example/x"}}'

    assert find_packages(machine.outside(fetch)).indexes[0].hosts == (
        web("npm.example"),
        web("moved.example"),
        web("t.example"),
    )


@pytest.mark.parametrize(
    "page",
    [
        "",
        "[]",
        "{}",
        '{"dist": 1}',
        '{"dist": {"tarball": 5}}',
        "\xff",
        "[" * 9000,
        '{"dist": {"tarball": "file:///etc/passwd"}}',
        '{"dist": {"tarball": "https://a b/"}}',
    ],
)
def test_an_answer_that_is_not_understood_allows_the_registry_alone(machine, page):
    machine.says("npm", 'registry = "https://npm.example/"\n')
    found = find_packages(machine.outside(pages({"https://npm.example/npm/latest": page})))

    assert [(each.hosts, each.problem) for each in found.indexes] == [
        ((web("npm.example"),), "its answer is not understood")
    ]


def test_a_registry_that_names_many_hosts_is_not_believed(machine):
    machine.says("uv", "--index-url https://a.example/simple\n")

    def hosts(count: int) -> tuple[PackageHost, ...]:
        page = "".join(f'<a href="https://h{number}.example/x">x</a>' for number in range(count))
        known = pages({"https://a.example/simple/pip/": page})
        return find_packages(machine.outside(known)).indexes[0].hosts

    assert hosts(7) == (web("a.example"), *(web(f"h{number}.example") for number in range(7)))
    assert hosts(8) == (web("a.example"),)


@pytest.mark.parametrize(
    ("own", "other", "expected"),
    [
        (PUBLIC, INSIDE, ((), ())),
        (INSIDE, INSIDE, ((f"{INSIDE}/32",), (f"{INSIDE}/32",))),
        (INSIDE, PUBLIC, ((f"{INSIDE}/32",), ())),
        ("fd00::1", "fd00::2", (("fd00::1/128",), ("fd00::2/128",))),
    ],
)
def test_a_private_address_counts_where_the_registry_itself_has_one(machine, own, other, expected):
    machine.says("uv", "--index-url https://a.example/simple\n")
    page = pages({"https://a.example/simple/pip/": '<a href="https://files.example/x">x</a>'})
    addresses = {"a.example": (own,), "files.example": (other,)}

    found = find_packages(machine.outside(page, addresses.__getitem__))

    assert tuple(each.addresses for each in found.indexes[0].hosts) == expected


# Clients that are not as they should be


def test_a_client_that_is_missing_is_told_and_the_others_are_asked(machine):
    machine.says("npm", 'registry = "https://npm.example/"\n')
    found = find_packages(machine.outside())

    assert [each.value for each in found.indexes] == ["https://npm.example/"]
    assert found.problems == tuple(each for each in ABSENT if not each.startswith("npm"))


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("sleep 60 & wait", "it did not answer within 1.5 s"),
        ("exec 1>&- 2>&-; exec /bin/sleep 60", "it names no index"),
        ("exec /usr/bin/yes", "its answer does not end"),
        ("exit 3", "it names no index"),
        ("", "it names no index"),
        ("printf '\\377\\000\\033[2J'", "it names no index"),
    ],
)
def test_a_client_that_hangs_or_talks_rubbish_stops_nobody(machine, script, problem):
    path = f"{machine.base / 'bin'}:/usr/bin:/bin" if "sleep" in script else None
    machine.program("uv", script)
    machine.says("npm", 'registry = "https://npm.example/"\n')
    named = {} if path is None else {"PATH": path}
    seconds = 1.5 if "within" in problem else 20
    found = find_packages(machine.outside(client_s=seconds, **named))

    assert [each for each in found.problems if each.startswith("uv")] == [f"uv: {problem}"]
    assert "https://npm.example/" in [each.value for each in found.indexes]


@pytest.mark.parametrize(
    "address",
    [
        "file:///srv/simple",
        "ftp://a.example/",
        "https://",
        "https://a.example:0/",
        "simple",
        "https://a.example:99999/",
        "https://[::1/",
        "https://0x7f.1/",
        "https://a b.example/",
    ],
)
def test_what_is_no_address_of_a_registry_is_told_and_allows_nothing(machine, address):
    machine.says("npm", f'registry = "{address}"\n@x:registry = "https://npm.example/"\n')
    found = find_packages(machine.outside())

    assert [each.value for each in found.indexes] == ["https://npm.example/"]
    said = "npm: npm config list --long: registry is not the address of a registry"
    assert said in found.problems


@given(answer=st.text(max_size=300), page=st.binary(max_size=300), path=st.text(max_size=30))
def test_whatever_is_said_nothing_is_raised_and_no_rule_is_more_than_a_host(answer, page, path):
    line = (
        f'registry = "https://npm.example/{path}"\n--index-url https://u.example/{path}\n{answer}'
    )

    def run(_: tuple[str, ...]) -> str:
        return line

    def fetch(url: str) -> tuple[str, bytes]:
        return url, page

    outside = PackageInquiry(run, fetch, lambda _: (INSIDE,))
    for rule in package_rules(find_packages(outside)):
        head, _, target = rule.action.partition(" ")
        assert (head, set(target) <= set("abcdefghijklmnopqrstuvwxyz0123456789-_.:[]")) == (
            "tool:net:connect",
            True,
        )


# Whose word counts


def test_a_client_of_the_workspace_is_never_run(machine):
    mark = machine.base / "ran"
    evil = machine.program("npm", f"echo > {mark}", machine.workspace / "bin")
    search = f"{evil.parent}:bin:{machine.base / 'bin'}"
    absent = find_packages(machine.outside(PATH=search)).problems
    (machine.base / "bin/npm").symlink_to(evil)
    linked = find_packages(machine.outside(PATH=search)).problems
    (machine.base / "bin/npm").unlink()
    machine.says("npm", 'registry = "https://npm.example/"\n')

    assert (absent, linked, mark.exists()) == (ABSENT, ABSENT, False)
    assert machine.indexes("npm", PATH=search) == [("npm_config_registry", "https://npm.example/")]


@pytest.mark.parametrize(
    "name",
    [
        "PIP_CONFIG_FILE",
        "npm_config_userconfig",
        "CARGO_HOME",
        "XDG_CONFIG_DIRS",
        "GOENV",
        "UV_CONFIG_FILE",
    ],
)
def test_a_variable_counts_unless_it_leads_into_a_workspace(machine, name):
    machine.program("uv", f'echo "--index-url https://${{{name}:+given.}}example/"')
    inside = {
        name: f"/etc:{machine.workspace}/file" if "DIRS" in name else f"{machine.workspace}/x"
    }
    outside = {name: f"{machine.home}/file"}

    assert machine.indexes("uv", **inside) == [("UV_DEFAULT_INDEX", "https://example/")]
    assert machine.indexes("uv", **outside) == [("UV_DEFAULT_INDEX", "https://given.example/")]


@pytest.mark.parametrize("name", ["LD_PRELOAD", "NODE_OPTIONS", "PYTHONPATH", "BASH_ENV"])
def test_a_variable_that_runs_code_is_not_passed_on(machine, name):
    machine.program("uv", f'echo "--index-url https://${{{name}:+given.}}example/"')

    assert machine.indexes("uv", **{name: ""}) == [("UV_DEFAULT_INDEX", "https://example/")]
    assert machine.indexes("uv", **{name: "x"}) == [("UV_DEFAULT_INDEX", "https://example/")]


@pytest.mark.parametrize("name", [".npmrc", ".config/pip", ".cargo"])
def test_a_file_of_the_user_that_lies_in_a_workspace_is_refused(machine, name):
    link = machine.home / name
    link.parent.mkdir(parents=True, exist_ok=True)
    own = machine.base / "dotfiles"
    link.symlink_to(own)
    machine.outside()
    link.unlink()
    link.symlink_to(machine.workspace / "dotfiles")

    with pytest.raises(ConfigError, match="is in a workspace, where an agent can change it"):
        machine.outside()


# What becomes of it


def test_rules_and_variables_are_made_of_what_was_found():
    found = FoundPackages(
        (
            index(
                "pip", "PIP_INDEX_URL", "https://a.example/s", "x", web("a.example", "10.0.0.1/32")
            ),
            index("pip", "PIP_EXTRA_INDEX_URL", "https://b.example/s", "x", web("b.example")),
            index("pip", "PIP_EXTRA_INDEX_URL", "https://c.example/s", "x", web("c.example")),
            index(
                "uv",
                "UV_DEFAULT_INDEX",
                "https://a.example/s",
                "x",
                web("a.example", "10.0.0.2/32"),
            ),
            index("npm", "", "https://d.example/s", "x", web("fd00::1", "fd00::1/128", port=8443)),
            index("go", "GOPROXY", "https://e.example", "x"),
            index("go", "GOPROXY", "https://f.example", "x"),
        )
    )

    assert package_rules(found) == (
        PackageRule("tool:net:connect [fd00::1]:8443", ("fd00::1/128",)),
        PackageRule("tool:net:connect a.example:443", ("10.0.0.1/32", "10.0.0.2/32")),
        PackageRule("tool:net:connect b.example:443"),
        PackageRule("tool:net:connect c.example:443"),
    )
    assert index_variables(found) == {
        "PIP_INDEX_URL": "https://a.example/s",
        "PIP_EXTRA_INDEX_URL": "https://b.example/s https://c.example/s",
        "UV_DEFAULT_INDEX": "https://a.example/s",
        "GOPROXY": "https://e.example,https://f.example",
    }


# The clients of this machine

PROJECT = {
    "pip": ("pip.conf", "[global]\nextra-index-url = https://u:sesame@own.example/s\n"),
    "npm": (".npmrc", "@own:registry=https://own.example/s\n"),
    "cargo": (
        ".cargo/config.toml",
        'source.own.registry = "sparse+https://own.example/s/"\nsource.crates-io.replace-with = "own"',
    ),
}
USERS = {"pip": ".config/pip/pip.conf", "npm": ".npmrc", "cargo": ".cargo/config.toml"}


@pytest.mark.parametrize("client", ["pip", "npm", "cargo"])
def test_a_real_client_is_asked_and_only_the_files_of_the_user_count(machine, client, monkeypatch):
    if shutil.which(client) is None:
        pytest.skip(f"no {client} on this machine")
    file, text = PROJECT[client]
    (machine.workspace / file).parent.mkdir(exist_ok=True)
    (machine.workspace / file).write_text(text)
    monkeypatch.chdir(machine.workspace)
    own = {"PATH": os.environ["PATH"]}
    own |= {"RUSTUP_HOME": os.environ.get("RUSTUP_HOME", f"{Path.home()}/.rustup")}

    without = machine.indexes(client, **own)
    users = machine.home / USERS[client]
    users.parent.mkdir(parents=True, exist_ok=True)
    users.write_text(text)
    values = [value for _, value in machine.indexes(client, **own)]

    assert without != []
    assert "own.example" not in repr(without)
    assert [value for value in values if "own.example" in value] == [
        "https://own.example/s/" if client == "cargo" else "https://own.example/s"
    ]
