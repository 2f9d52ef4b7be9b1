"""Find the hosts of the user's package clients: ask the clients, and once their registries.

No registry is hard-coded: the defaults come from the clients. If a client is missing, hangs or
gives no usable answer, nothing is allowed for it, and the reason is reported.
"""

import html
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit, urlunsplit

from msgspec import Struct
from msgspec.structs import replace

from paddock.errors import ConfigError, HostError
from paddock.policy.network import canonical_host
from paddock.policy.settings import PackageRule
from paddock.text.json import Strict, read_json
from paddock.text.show import quote

_ANSWER_BYTES_MAX: Final = 2_000_000
_HOSTS_MAX: Final = 8
"""Limit of hosts that one registry may name: a longer list is not just its own hosts."""


class PackageHost(Strict, frozen=True):
    """A host that a client connects to, and the non-public addresses of its name."""

    name: str
    port: int
    addresses: tuple[str, ...] = ()


class PackageIndex(Strict, frozen=True):
    """An index of a client, the setting it comes from, and the hosts: its own, then those it names.

    `value` is without user and password. `variable` passes it to the client in the sandbox; empty
    if none is needed or possible. `problem`: why it does not report the hosts it uses.
    """

    client: str
    variable: str
    value: str
    origin: str
    hosts: tuple[PackageHost, ...] = ()
    has_credentials: bool = False
    problem: str = ""


class FoundPackages(Strict, frozen=True):
    """The answers of all clients and registries; `problems` name the clients that failed."""

    indexes: tuple[PackageIndex, ...]
    problems: tuple[str, ...] = ()


class PackageInquiry(Struct, frozen=True):
    """Functions for discovery; `run` and `fetch` raise HostError, `run` also OSError.

    `run` returns a client's output, `fetch` the final URL and the body, and `resolve` the
    addresses of a name.
    """

    run: Callable[[tuple[str, ...]], str]
    fetch: Callable[[str], tuple[str, bytes]]
    resolve: Callable[[str], Sequence[str]]


_ASKED: Final = (
    ("pip install --help", r"--(index-url) <url>[^(]*\(default ([^\s)]+)\)"),
    ("pip config list", r"^global\.(extra-index-url)='(.*)'$"),
    ("pip config list", r"^install\.(extra-index-url)='(.*)'$"),
    ("pip config list", r"^:env:\.(extra-index-url)='(.*)'$"),
    (
        "uv pip compile - --emit-index-url --no-header --offline",
        r"^--((?:extra-)?index-url) (\S+)$",
    ),
    ("npm config list --long", r'^((?:@[^:\s]+:)?registry) = "(.*)"'),
    ("go env", r"""^(GOPROXY|GOSUMDB)=["']?([^"'\n]*)"""),
    # cargo only reports its index in the error about a failed download.
    ("cargo generate-lockfile", r"(failed to (?:download from|fetch)) `([^`\s]+)`"),
)
"""Commands to run, and patterns for names and values in their output: later ones win."""
_VARIABLES: Final = {
    ("pip", "index-url"): "PIP_INDEX_URL",
    ("pip", "extra-index-url"): "PIP_EXTRA_INDEX_URL",
    ("uv", "index-url"): "UV_DEFAULT_INDEX",
    ("uv", "extra-index-url"): "UV_INDEX",
    # A scoped registry's name is not a valid variable name, and cargo has none for a source.
    ("npm", "registry"): "npm_config_registry",
    ("go", "GOPROXY"): "GOPROXY",
    ("go", "GOSUMDB"): "GOSUMDB",
}
_BETWEEN: Final = {
    # pip writes a line break as Python's repr() does.
    "extra-index-url": r"\s+|\\n",
    "GOPROXY": r"[,|]",
}
"""Patterns that separate the values of a list."""
_FIXED: Final = {
    # pip wraps its output at the terminal's width, even within a URL.
    "COLUMNS": "10000",
    "UV_PYTHON_DOWNLOADS": "never",
    "CARGO_HTTP_PROXY": "http://127.0.0.1:1",
    "CARGO_NET_RETRY": "0",
    "CARGO_NET_GIT_FETCH_WITH_CLI": "false",
}
_MANIFEST: Final = (
    '[package]\nname = "asked"\nversion = "0.0.0"\n'
    '[lib]\npath = "Cargo.toml"\n[dependencies]\nasked-index = "*"\n'
)


def package_rules(found: FoundPackages) -> tuple[PackageRule, ...]:
    """Return a rule for each host and port, with the non-public addresses of its name."""
    addresses: dict[str, set[str]] = {}
    for each in (host for index in found.indexes for host in index.hosts):
        name = f"[{each.name}]" if ":" in each.name else each.name
        addresses.setdefault(f"tool:net:connect {name}:{each.port}", set()).update(each.addresses)
    return tuple(PackageRule(each, tuple(sorted(addresses[each]))) for each in sorted(addresses))


def index_variables(found: FoundPackages) -> dict[str, str]:
    """Return variables that give clients in the sandbox the same indexes, without passwords."""
    values: dict[str, list[str]] = {}
    for each in found.indexes:
        if each.variable:
            values.setdefault(each.variable, []).append(each.value)
    return {name: (",".join if name == "GOPROXY" else " ".join)(values[name]) for name in values}


def find_packages(outside: PackageInquiry) -> FoundPackages:
    """Ask every client, then each registry once for its hosts. Never raises."""
    indexes, problems = list[PackageIndex](), list[str]()
    for client in dict.fromkeys(question.split()[0] for question, _ in _ASKED):
        try:
            given = list(_ask(outside, client))
        except (HostError, OSError) as error:
            problems.append(f"{client}: {error}")
            continue
        if not given:
            problems.append(f"{client}: it names no index")
        for each in given:
            try:
                indexes.append(_complete(outside, each))
            except ValueError:
                problems.append(f"{client}: {each.origin} is not the address of a registry")
    return FoundPackages(tuple(indexes), tuple(problems))


def _ask(outside: PackageInquiry, client: str) -> Iterator[PackageIndex]:
    """Yield a client's indexes, as it reports them. Raises: HostError."""
    found: dict[str, list[PackageIndex]] = {}
    for question, pattern in (each for each in _ASKED if each[0].startswith(client)):
        answers = re.findall(pattern, outside.run(tuple(question.split())), re.MULTILINE)
        found |= {name: [] for name, _ in answers}
        for name, text in answers:
            variable, origin = _VARIABLES.get((client, name), ""), f"{question}: {name}"
            for value in re.split(_BETWEEN[name], text) if name in _BETWEEN else [text]:
                if value not in ("", "direct") and (value != "off" or name == "GOSUMDB"):
                    found[name].append(PackageIndex(client, variable, value, origin))
    yield from (each for given in found.values() for each in given)


def _complete(outside: PackageInquiry, given: PackageIndex) -> PackageIndex:
    """Add the hosts to an index. Raises: ValueError: it is not the address of a registry."""
    if given.variable == "GOSUMDB":
        name, _, url = given.value.partition(" ")
        hosts = () if name == "off" else (_host(outside, url or f"https://{name.split('+')[0]}"),)
        return replace(given, hosts=hosts)
    prefix = "sparse+" if given.value.startswith("sparse+") else ""
    parts = urlsplit(given.value.removeprefix(prefix))
    # A query may be a token.
    userinfo, _, bare = parts.netloc.rpartition("@")
    url = urlunsplit((parts.scheme, bare, parts.path.removesuffix("config.json"), "", ""))
    given = replace(given, value=prefix + url, has_credentials=bool(userinfo or parts.query))
    own, named, why = _host(outside, url), set[PackageHost](), ""
    try:
        served = map(urlsplit, _served(outside, given.client, url.rstrip("/")))
        # A page has hundreds of links to one host: resolve it once.
        places = {f"{each.scheme}://{each.netloc}" for each in served}
        named = {_host(outside, each) for each in places}
    except HostError as error:
        why = error.message
    except (ValueError, TypeError, LookupError, AttributeError):
        why, named = "its answer is not understood", set[PackageHost]()
    if len(named) > _HOSTS_MAX:
        why, named = f"it names {len(named)} hosts, which is too many", set[PackageHost]()
    if not own.addresses:
        # Threat: a public registry names a host of the internal network.
        named = {replace(each, addresses=()) for each in named}
    others = sorted(named - {own}, key=lambda each: (each.name, each.port))
    return replace(given, hosts=(own, *others), problem=why)


def _host(outside: PackageInquiry, url: str) -> PackageHost:
    """Raises: ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
        raise ValueError(url)
    try:
        name = str(ip_address(parts.hostname))
    except ValueError:
        name = canonical_host(parts.hostname)
    found = map(ip_network, outside.resolve(name))
    addresses = tuple(str(each) for each in found if not each.is_global)
    return PackageHost(name, parts.port or (443 if parts.scheme == "https" else 80), addresses)


def _served(outside: PackageInquiry, client: str, url: str) -> Iterator[str]:
    """Yield URLs that a registry serves from. It gets no password, so it may refuse to answer.

    Raises: HostError, ValueError, TypeError, LookupError.
    """
    if client in ("pip", "uv"):
        try:
            final, page = outside.fetch(f"{url}/pip/")
        except HostError:
            final, page = outside.fetch(f"{url}/")
            final, page = outside.fetch(urljoin(final, _links(page)[0]))
        links = (urljoin(final, link) for link in _links(page))
        yield from (each for each in (final, *links) if each.startswith("http"))
    elif client == "npm":
        final, page = outside.fetch(f"{url}/npm/latest")
        answer: Any = read_json(page.decode())
        yield from (final, answer["dist"]["tarball"])
    elif client == "cargo":
        final, page = outside.fetch(f"{url}/config.json")
        answer = read_json(page.decode())
        yield from (final, answer["dl"], answer.get("api") or final)


def _links(page: bytes) -> list[str]:
    found = re.findall(r"""<a\b[^>]*?\bhref\s*=\s*["']([^"']+)""", page.decode("utf-8", "replace"))
    return [html.unescape(link) for link in found]


_PASSED: Final = re.compile(
    r"HOME|USER|LANG|(PIP|UV|NPM_CONFIG|CARGO|RUSTUP|PYENV|XDG)_\w+|GO[A-Z]+", re.IGNORECASE
)
_CONFIGURED: Final = ".npmrc .pip .config/pip .config/uv .config/go".split()


def open_inquiry(
    directory: Path,
    variables: Mapping[str, str],
    closed: Sequence[Path],
    fetch: Callable[[str], tuple[str, bytes]],
    resolve: Callable[[str], Sequence[str]],
    client_s: float = 20,
) -> PackageInquiry:
    """Return functions that ask this user's clients; `directory` is empty and the user's own.

    Threat: a project contains a client, its configuration, or (as with direnv) a variable that
    points to one: an agent's code would run outside, or choose the hosts that it may reach.
    Everything at or below `closed`, the workspaces, is ignored. Raises: ConfigError, OSError.
    """

    def is_closed(path: str) -> bool:
        real = Path(os.path.realpath(path))  # noqa: TID251 - programs and files of the user
        return any(real.is_relative_to(each) for each in closed)

    def without_closed(text: str) -> str:
        return ":".join(each for each in text.split(":") if each[:1] != "/" or not is_closed(each))

    kept = {
        name: value
        for name, value in variables.items()
        if _PASSED.fullmatch(name) and value == without_closed(value)
    }
    home = variables.get("HOME", "/")
    cargo = f"{kept.get('CARGO_HOME') or f'{home}/.cargo'}/config.toml"
    for each in (*(f"{home}/{name}" for name in _CONFIGURED), cargo):
        if is_closed(each):
            raise ConfigError(f"{quote(each)} is in a workspace, where an agent can change it")
    search = without_closed(variables.get("PATH", "")).split(":")
    path = ":".join(each for each in search if each.startswith("/"))
    (directory / "Cargo.toml").write_text(_MANIFEST)

    @cache
    def run(words: tuple[str, ...]) -> str:
        # Some systems only have pip under the name pip3.
        program = shutil.which(words[0], path=path) or shutil.which(f"{words[0]}3", path=path)
        if program is None or is_closed(program):
            raise HostError("it is not installed")
        return _output((program, *words[1:]), directory, {**kept, "PATH": path, **_FIXED}, client_s)

    return PackageInquiry(run, fetch, resolve)


def _output(
    words: Sequence[str], directory: Path, variables: Mapping[str, str], client_s: float
) -> str:
    """Return the program's output. Raises: HostError: it hangs, or prints too much; OSError."""
    begun = time.monotonic()
    process = subprocess.Popen(
        words,
        cwd=directory,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    # Kill its whole session: a child that keeps the pipe open would block the read.
    stop = partial(os.killpg, process.pid, signal.SIGKILL)
    timer = threading.Timer(client_s, stop)
    timer.start()
    with process:
        text = process.stdout.read(_ANSWER_BYTES_MAX + 1) if process.stdout else b""
        timer.cancel()
        timer.join()
        stop()
    if time.monotonic() - begun >= client_s:
        raise HostError(f"it did not answer within {client_s} s")
    if len(text) > _ANSWER_BYTES_MAX:
        raise HostError("its answer does not end")
    return text.decode("utf-8", "replace")
