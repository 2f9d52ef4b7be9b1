"""Read one policy file strictly; each rule and pattern keeps its place in the file.

Nothing loads partly: an unknown key, a wrong type, a pattern that can match nothing
or an example that does not hold refuses the whole file, and all problems are reported.
"""

import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from functools import partial
from ipaddress import ip_network
from typing import Annotated, Final, cast

from msgspec import Meta, Struct
from msgspec.structs import astuple, fields, replace

from paddock import limits as hard
from paddock.limits import policy_rules_max
from paddock.pattern import lazy_pattern
from paddock.policy.pathset import PathPattern, compile_pattern
from paddock.policy.positions import (
    Document,
    NonEmpty,
    PatternError,
    Reader,
    Report,
    Table,
    Text,
    fail,
    parse_document,
    quote_toml,
    suggest,
)
from paddock.policy.profiles import rule_matches
from paddock.policy.rules import Profile, Rule, compile_rule, parse_concrete, read_profile
from paddock.policy.settings import (
    CREDENTIAL,
    AgentBinding,
    AnchorSettings,
    CredentialSettings,
    CredentialSource,
    HookSettings,
    LoweredLimits,
    McpServer,
    ProviderSettings,
    Settings,
    credential_uses,
    host_paths,
    net_action,
    read_shell_changes,
    reserved_problem,
)
from paddock.values.decisions import Outcome, Permissions

# Each function reads one table over the values in force and returns the new values; a key
# that is given replaces its value completely.

_LOWERABLE: Final = "those that a policy may lower: " + ", ".join(
    each.name for each in fields(LoweredLimits)
)


class PathsTable(Struct, frozen=True):
    protected: tuple[PathPattern, ...] | None = None
    generated: tuple[PathPattern, ...] | None = None
    warned: tuple[PathPattern, ...] | None = None
    safe: tuple[PathPattern, ...] | None = None
    secret: tuple[PathPattern, ...] | None = None


def read_hook(table: Table, base: HookSettings) -> HookSettings:
    if table.has("sandbox_shell"):
        base = replace(base, shell="confine" if table.read("sandbox_shell", bool) else "read")
        if table.has("shell"):
            table.problem(
                "sandbox_shell",
                "[hook] has both sandbox_shell and shell, which mean the same setting",
                f'keep shell = "{base.shell}", and remove sandbox_shell',
            )
    return table.fill(base, {"also_write": host_patterns, "outside": _command_patterns})


def _command_patterns(table: Table, name: str) -> tuple[str, ...]:
    def parse(given: Text) -> str:
        pattern = compile_rule(f"tool:shell:run {given.text}", Outcome.ALLOW, name, given.place)
        if pattern.command is None or pattern.command.is_any:
            raise PatternError(
                f"{name} in {table.title} has {quote_toml(given.text)}, which matches any command",
                'name the programs; with shell = "read" every command runs outside',
            )
        return given.text

    return table.parsed(name, parse)


def read_agents(
    table: Table, base: tuple[AgentBinding, ...], profiles: AbstractSet[str]
) -> tuple[AgentBinding, ...]:
    bindings = {binding.name: binding for binding in base}
    for name, entry in table.each():
        profile: str = entry.read("profile", NonEmpty, "")
        binding = entry.fill(AgentBinding(name, profile), {"permissions": _permissions})
        if not profile:
            if not entry.has("profile"):
                table.problem(name, f"{entry.title} has no profile", 'add profile = "locked"')
            continue
        if profile not in profiles:
            message = f"the profile {quote_toml(profile)} of {entry.title} is unknown"
            entry.problem("profile", message, suggest(profile, profiles))
        bindings[name] = binding
        if entry.has("permissions") and not binding.is_declared:
            message = f"permissions in {entry.title} need a workspace or a parent"
            entry.problem("permissions", message, "without one it maps a client's agent type")
    return tuple(bindings.values())


def _permissions(table: Table, name: str) -> Permissions | None:
    lists = table.table(name)
    readers = {each.name: _pattern_texts for each in fields(Permissions)}
    return None if lists is None else lists.fill(Permissions(), readers)


def _pattern_texts(table: Table, name: str) -> tuple[str, ...]:
    return tuple(pattern.text for pattern in _patterns(table, name))


def read_limits(table: Table, base: LoweredLimits) -> LoweredLimits:
    most = {each.name: cast("int", each.default) for each in fields(LoweredLimits)}
    most["shell_timeout_s"] = hard.shell_timeout_raised_s
    for name in table.names():
        if name not in most and hasattr(hard, name) and table.has(name):
            table.problem(name, f"the limit {quote_toml(name)} is fixed", _LOWERABLE)

    def read(table: Table, name: str) -> int | None:
        return table.read(name, Annotated[int, Meta(ge=1, le=most[name])])

    return table.fill(base, dict.fromkeys(most, read))


def _refuse_in_project(table: Table, name: str) -> None:
    # Threat: a cloned project that names a command runs it on the host, and one that names a
    # server gets the conversation and the key.
    title = f"[{name}]" if name in _USERS_TABLES else name
    hint = "move it to paddock/config.toml in the user's configuration directory"
    table.problem(name, f"{title} is allowed only in the user's own configuration", hint)


_TLS_HOST: Final = lazy_pattern(
    r"((?:[a-z0-9_-]{1,63}\.)*[a-z_-][a-z0-9_-]{0,62})(?::([0-9]{1,5}))?"
)


def read_credentials(table: Table) -> tuple[CredentialSettings, ...]:
    found = [_read_credential(name, entry) for name, entry in table.each()]
    variables = [each.variable for each in found]
    for each in found:
        if each.variable and variables.count(each.variable) > 1:
            message = f"more than one credential has the variable {quote_toml(each.variable)}"
            table.report.add((*table.key, each.name, "variable"), message, "use another variable")
    return tuple(found)


def _read_credential(name: str, entry: Table) -> CredentialSettings:
    # Threat: a user may write the secret itself there, so no message quotes the value.
    kept = None if entry.is_text("from") else entry.table("from")
    source = CredentialSource() if kept is None else kept.fill(CredentialSource())
    if sum(map(bool, astuple(source))) != 1:
        message = f"from in {entry.title} needs exactly one source"
        entry.problem("from", message, "give one of env, file, command or keyring")
    elif source.file and not source.file.startswith(("/", "~/")):
        message = f"file in {entry.title} is {quote_toml(source.file)}, not an absolute path"
        entry.problem("from", message, "write it from / or ~/")
    variable: str = entry.read("variable", NonEmpty, "")
    why = reserved_problem(variable)
    if _VARIABLE.fullmatch(variable) is None:
        why = "which is not a variable name"
    if why:
        message = f"variable in {entry.title} is {quote_toml(variable)}, {why}"
        entry.problem("variable", message, 'name one, as "ISSUES_TOKEN"')
    hosts = entry.parsed("hosts", _parse_tls_host)
    if not entry.texts("hosts"):
        entry.problem("hosts", f"{entry.title} names no hosts", 'as ["api.example.org:443"]')
    entry.finish()
    return CredentialSettings(name, hosts, variable, source)


def _parse_tls_host(given: Text) -> tuple[str, int]:
    # Threat: under a wildcard, a name that anyone may register would get the value.
    match = _TLS_HOST.fullmatch(given.text)
    port = int(match[2] or 443) if match else 0
    if match is None or len(match[1]) > 253 or not 0 < port < 65536:
        message = f"hosts of a credential has {quote_toml(given.text)}, not a name and a port"
        hint = 'write each host in lower case and without *, as "api.example.org:443"'
        raise PatternError(message, hint)
    return match[1], port


_SERVER_NAME: Final = lazy_pattern(r"[a-z][a-z0-9-]{0,19}")
_VARIABLE: Final = lazy_pattern(r"[A-Za-z_][A-Za-z0-9_]*")
_URL: Final = lazy_pattern(
    r"(?:https://|http://(?=(?:localhost|127\.0\.0\.1|\[::1\])(?:[:/]|$)))"
    r"([^\s/?#@\\:\[\]]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?(?:/[!-\[\]-~]*)?"
)


_SCHEMES: Final = f'"{CREDENTIAL}issues" or "Bearer {CREDENTIAL}issues"'
_NOT_BESIDE: Final = {
    "env": ("url", "no process is started", f"send a token in headers, as {_SCHEMES}"),
    "network": ("url", "no process is started", "leave it out; only the url is reached"),
    "files": ("url", "no process is started", "leave it out; only the url is reached"),
    "packages": ("url", "no process is started", "leave it out; only the url is reached"),
    "headers": ("command", "the server makes its own requests", "give it a token in env"),
}
_HEADER: Final = lazy_pattern(
    r"(?i:(?!(?:host|connection|keep-alive|te|trailer|transfer-encoding|upgrade|expect"
    r"|last-event-id|accept(?:-encoding)?|(?:content|mcp|proxy)-.*)$)[a-z0-9_-]{1,64})"
)
_CREDENTIAL_VALUE: Final = lazy_pattern(rf"(?:[A-Za-z][A-Za-z-]{{0,19}}[ =]){{0,2}}{CREDENTIAL}\S+")
# The bridge expands `$`, as a client does in the configuration that a value may be copied from.
_LITERAL_VALUE: Final = lazy_pattern(r"[!-#%-~](?:[ -#%-~]*[!-#%-~])?")
_HEADER_CHARS_MAX: Final = 512
_SECRET_HEADER: Final = lazy_pattern(
    r"(?i).*(?:auth(?:orization|entication)?|cookie|credentials?|jwt|key|pass(?:word|wd|phrase)?"
    r"|pwd|secret|session|signature|token)(?:[-_].*)?"
)
_SECRET_VALUE: Final = lazy_pattern(r"(?=\w*[0-9])(?=\w*[A-Za-z])\w{20}|\S{100}")


def _read_servers(base: tuple[McpServer, ...], table: Table, key: str) -> tuple[McpServer, ...]:
    """Read `[mcp.servers]`; a server replaces the one of the same name completely."""
    found = {each.name: each for each in base}
    entries = table.table(key)
    for name, entry in () if entries is None else entries.each():
        if _SERVER_NAME.fullmatch(name) is None:
            message = f"{quote_toml(name)} is not a server name"
            table.report.add(entry.key, message, "write 1 to 20 of a-z, 0-9 and -, a letter first")
        found[name] = entry.fill(McpServer(name), _READERS)
        if entry.has("command") is entry.has("url"):
            message = f"{entry.title} needs exactly one of command and url"
            entry.problem("command", message, 'as command = ["npx", "-y", "some-server"]')
        for given, (other, why, hint) in _NOT_BESIDE.items():
            if entry.has(other) and entry.has(given):
                message = f"{entry.title} has both {given} and {other}: {why}"
                entry.problem(given, message, hint)
        if found[name].url and found[name].host is None and any(credential_uses(found[name])):
            message = f"headers in {entry.title} has a credential, but the url is not https"
            entry.problem("headers", message, "no credential is sent in clear text: leave it out")
    return tuple(found.values())


def _read_url(entry: Table, name: str) -> str:
    url: str = entry.read(name, NonEmpty, "")
    found = _URL.fullmatch(url)
    if url and (found is None or int(found[2] or 443) not in range(1, 65_536)):
        # Threat: it may hold a user name and a password, so the message does not quote it.
        message = f"url in {entry.title} is not an https address without a user, a ? or a #"
        entry.problem("url", message, "write https://HOST[:PORT]/PATH; http only to localhost")
    return url


def _read_env(entry: Table, name: str) -> tuple[tuple[str, str], ...]:
    variables = entry.table(name)
    if variables is None:
        return ()
    found = tuple((each, variables.read(each, NonEmpty, "")) for each in variables.names())
    for each, value in found:
        if _VARIABLE.fullmatch(each) is None or value == CREDENTIAL:
            message = f"env in {entry.title} has an invalid name or value for {quote_toml(each)}"
            entry.problem("env", message, f'as ISSUES_TOKEN = "{CREDENTIAL}issues"')
    return found


def _read_headers(entry: Table, name: str) -> tuple[tuple[str, str], ...]:
    if entry.is_text(name):
        entry.problem(
            name, f"{name} in {entry.title} is a text, not a table", 'as { X-Region = "eu" }'
        )
    headers = None if entry.is_text(name) else entry.table(name)
    if headers is None:
        return ()
    found = tuple((each, headers.read(each, NonEmpty, "")) for each in headers.names())
    for each, value in found:
        if _HEADER.fullmatch(each) is None:
            message = f"headers in {entry.title} has {quote_toml(each)}, which may not be set"
            headers.problem(each, message, "as Authorization or X-Api-Key")
        elif value and may_be_secret(each, value):
            message = f"headers in {entry.title} gives {quote_toml(each)} a value, not a credential"
            hint = f"write {_SCHEMES}, and the value's source under [credentials.issues] in the "
            headers.problem(each, message, f"{hint}user's own configuration")
        elif value and CREDENTIAL not in value and _LITERAL_VALUE.fullmatch(value) is None:
            message = f"headers in {entry.title} gives {quote_toml(each)} a value that is not sent"
            headers.problem(each, message, "write ASCII without $, or spaces around it")
    return found


def may_be_secret(header: str, value: str) -> bool:
    """Threat: a user writes the token itself into a file that others read, and that is shown.

    So no message quotes such a value.
    """
    if CREDENTIAL in value or len(value) > _HEADER_CHARS_MAX:
        return _CREDENTIAL_VALUE.fullmatch(value) is None
    return bool(_SECRET_HEADER.fullmatch(header) or _SECRET_VALUE.search(value))


def _parse_address(given: Text) -> str:
    try:
        return str(ip_network(given.text))
    except ValueError as error:
        message = f"invalid network in addresses: {error}"
        raise PatternError(message, 'write it as ["10.0.0.0/8"]') from None


def _parse_network(given: Text) -> str:
    compile_rule(net_action(given.text), Outcome.ALLOW, "network", given.place)
    return given.text


def _parse_redacted(given: Text) -> str:
    from paddock.policy.arguments import parse_pointer  # noqa: PLC0415 - late on purpose

    parse_pointer(given.text)
    return given.text


_READERS: Final[dict[str, Reader]] = {
    "url": _read_url,
    "env": _read_env,
    "headers": _read_headers,
    "addresses": lambda table, name: table.parsed(name, _parse_address),
    "network": lambda table, name: table.parsed(name, _parse_network),
    "redact": lambda table, name: table.parsed(name, _parse_redacted),
}


def host_patterns(table: Table, name: str) -> tuple[str, ...]:
    # The part after the anchor follows the same rules as any path pattern.
    table.parsed(name, lambda given: compile_pattern(re.sub(r"^~?/*", "", given.text) or "**"))
    return host_paths(table, name)


def _read_anchor(table: Table, name: str) -> AnchorSettings:
    if table.is_text(name):
        return AnchorSettings(directory=table.read(name, NonEmpty, ""))
    entry = table.table(name)
    if entry is None:
        return AnchorSettings()
    anchor = entry.fill(AnchorSettings())
    if sum(map(bool, (anchor.directory, anchor.git, anchor.command))) != 1:
        table.problem(
            name, "anchor needs exactly one place", "give one of directory, git or command"
        )
    return anchor


def _patterns(table: Table, name: str) -> tuple[PathPattern, ...]:
    found = table.parsed(name, lambda given: compile_pattern(given.text, given.place))
    if found and all(pattern.negated for pattern in found):
        message = f"{name} in {table.title} can match nothing: it only has ! patterns"
        table.problem(name, message, "write the patterns to match before the ! patterns")
    return found


BARE_PATHS_KEYS: Final = frozenset({"protected", "warned", "safe"})
"""A JSON file with only these keys is a `[paths]` table without its name."""


class Scope(Enum):
    """Whose file it is: only the user's may have `anchor`, `[providers]`, `[credentials]`."""

    PROJECT = "project"
    USER = "user"


class PolicyDocument(Struct, frozen=True):
    document: Document
    paths: PathsTable
    profiles: tuple[Profile, ...]
    settings: Settings

    @property
    def file(self) -> str:
        return self.document.file


def read_policy(
    name: str, text: bytes, scope: Scope, base: Settings, profiles: Mapping[str, Profile]
) -> PolicyDocument:
    """Read a policy file over `base`; `profiles` are those that exist without it. ConfigError."""
    document = parse_document(name, text)
    if name.endswith(".json") and document.values and document.values.keys() <= BARE_PATHS_KEYS:
        document = replace(document, values={"paths": document.values})
    report = Report(document)
    top = Table(report, (), document.values)
    paths, lists = PathsTable(), top.table("paths")
    if lists is not None:
        paths = lists.fill(paths, {each.name: _patterns for each in fields(PathsTable)})
    found = _with_bases(report, _read_profiles(top), profiles)
    known = profiles.keys() | {profile.name for profile in found}
    settings = _read_settings(top, base, known, scope)
    top.finish()
    _check_size(report, paths, found)
    for rule in (rule for profile in found for rule in profile.rules):
        for example, wanted in rule.examples:
            _check_example(report, rule, example, wanted)
    if report.problems:
        fail(name, report.problems)
    return PolicyDocument(document, paths, found, settings)


def _read_profiles(top: Table) -> tuple[Profile, ...]:
    table, found = top.table("profiles"), list[Profile]()
    for name, entry in () if table is None else table.each():
        if not name.strip():
            top.problem("profiles", "a profile without a name")
        found.append(read_profile(entry, name))
    return tuple(found)


def _with_bases(
    report: Report, found: tuple[Profile, ...], known: Mapping[str, Profile]
) -> tuple[Profile, ...]:
    """Join each profile with those that it extends: the file's own, else the `known` ones."""
    if not any(profile.extends for profile in found):
        return found
    from graphlib import CycleError, TopologicalSorter  # noqa: PLC0415 - few profiles extend one

    own = {profile.name: profile for profile in found}
    above = {name: {*each.extends} & (own.keys() - {name}) for name, each in own.items()}
    try:
        order = tuple(TopologicalSorter(above).static_order())
    except CycleError as error:
        cycle: list[str] = error.args[1]
        chain = " extends ".join(map(quote_toml, cycle))
        report.add(("profiles", cycle[0], "extends"), chain, "leave one of them out")
        return found
    made: dict[str, Profile] = {}
    count = 0
    for name in order:
        bases: list[Profile] = []
        for base in own[name].extends:
            below = known.get(base) if base == name else made.get(base) or known.get(base)
            if below is None:
                report.add(
                    ("profiles", name, "extends"),
                    f"[profiles.{name}] extends the unknown profile {quote_toml(base)}",
                    suggest(base, (known.keys() | own.keys()) - {name}),
                )
                continue
            bases.append(below)
        _check_lifted(report, own[name], bases)
        made[name] = own[name].joined(bases) if bases else own[name]
        count += len(made[name].rules)
        if count > policy_rules_max:
            # Threat: many profiles each repeat all rules of another one.
            break
    return tuple(made.get(profile.name, profile) for profile in found)


def _check_lifted(report: Report, profile: Profile, bases: list[Profile]) -> None:
    denied = {
        entry.head.text: entry.place
        for base in bases
        for entry in base.otherwise
        if entry.outcome is Outcome.DENY
    }
    for entry in profile.otherwise:
        if entry.head.text in denied and entry.outcome is not Outcome.DENY:
            where = denied[entry.head.text]
            message = f"{quote_toml(entry.head.text)} is denied in {where} and stays denied"
            report.add_at(entry.place, PatternError(message, "leave it out, or extend another one"))


_USERS_TABLES: Final[dict[str, Callable[[Table], object]]] = {
    "providers": lambda table: tuple(e.fill(ProviderSettings(name)) for name, e in table.each()),
    "credentials": read_credentials,
}


def _read_settings(
    top: Table, base: Settings, profiles: AbstractSet[str], scope: Scope
) -> Settings:
    is_users = scope is Scope.USER
    ledger_readers: dict[str, Reader] = {"anchor": _refuse_in_project, "signer": _refuse_in_project}
    if is_users:
        ledger_readers = {"anchor": _read_anchor}
    servers = partial(_read_servers, base.mcp.servers)
    readers: dict[str, Callable[[Table], object]] = {
        "shell": lambda table: read_shell_changes(table).over(base.shell),
        "hook": lambda table: read_hook(table, base.hook),
        "agents": lambda table: read_agents(table, base.agents, profiles),
        "limits": lambda table: read_limits(table, base.limits),
        "history": lambda table: table.fill(base.history),
        "mcp": lambda table: table.fill(base.mcp, {"servers": servers}),
        "approvals": lambda table: table.fill(
            base.approvals, {} if is_users else {"notify": _refuse_in_project}
        ),
        "ledger": lambda table: table.fill(base.ledger, ledger_readers),
        "network": lambda table: table.fill(base.network),
    }
    if is_users:
        readers |= _USERS_TABLES
    tables = ((name, top.table(name), read) for name, read in readers.items())
    given = {name: read(table) for name, table, read in tables if table is not None}
    settings = replace(base, **given)
    for name in _USERS_TABLES:
        if not is_users and top.has(name):
            _refuse_in_project(top, name)
    for binding in settings.agents if is_users else ():
        if binding.is_declared:
            message = "workspace and parent belong in a project's file: its plane has the agent"
            top.report.add(("agents", binding.name), message, "leave them out here")
    return settings


def _check_size(report: Report, paths: PathsTable, profiles: tuple[Profile, ...]) -> None:
    count = sum(len(patterns or ()) for patterns in astuple(paths))
    count += sum(len(profile.rules) + len(profile.otherwise) for profile in profiles)
    if count > policy_rules_max:
        report.add((), f"{count} rules and patterns are more than {policy_rules_max}")


def _check_example(report: Report, rule: Rule, example: Text, wanted: bool) -> None:
    try:
        if rule_matches(rule, parse_concrete(example.text)) is not wanted:
            verb = "is not matched" if wanted else "is matched"
            message = f"{quote_toml(example.text)} {verb} by {quote_toml(rule.pattern.text)}"
            raise PatternError(f"the example {message}", "correct the pattern, or the example")
    except PatternError as problem:
        report.add_at(example.place, problem)
