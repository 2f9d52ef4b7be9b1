"""`paddock mcp add` and `paddock mcp review`: review MCP servers before agents may use them."""

import json
from collections.abc import Iterator, Sequence

from paddock.apps.command import Options, Reply, use_project
from paddock.apps.console import EXIT_NO, Console
from paddock.apps.mcp.install import toml_lines
from paddock.assembly.inbox_answers import review_table, save_rule
from paddock.assembly.project import Project
from paddock.assembly.trust import ServerReview, review_servers
from paddock.errors import UsageError
from paddock.gateway.definitions import Definition, Redefinition, show_values
from paddock.text.changes import is_whole_diff, unified_diff
from paddock.text.show import quote, show_name
from paddock.values.calls import Json

_LINES_MAX = 2_000


def add_server(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    own, table = project.files.project, _table(options)
    if own is not None and f"[mcp.servers.{options.server}]".encode() in own.content:
        raise UsageError(
            f"the project's policy already has an MCP server {quote(options.server)}",
            where=str(own.path),
            hint=f"change its table, then: paddock trust, and paddock mcp review {options.server}",
        )
    review = review_table(project, table)
    say = console.warn if options.json else console.say
    say(f"to be appended to {show_name(str(review.file))}:\n{review.always.addition}")
    if not options.yes and not console.agrees("write this, and start it in its sandbox? [y/N] "):
        return Reply({"status": "error", "reviewed": []}, "not written", EXIT_NO)
    save_rule(project, review, "--yes" if options.yes else "person")
    return _review(use_project(options, console), [options.server], options, console)


def review(options: Options, console: Console) -> Reply:
    project = use_project(options, console)
    names = options.server or [each.name for each in project.policy.settings.mcp.servers]
    if not names:
        raise UsageError(
            "the policy has no MCP servers", hint="paddock mcp add NAME -- COMMAND adds one"
        )
    return _review(project, names, options, console)


def _review(project: Project, names: Sequence[str], options: Options, console: Console) -> Reply:
    say = console.warn if options.json else console.say
    found = review_servers(project, options.agent, names)
    for row in (row for each in found for row in _rows(each)):
        say(row)
    new = [each for each in found if each.is_new]
    value: Json = {
        "reviewed": [
            {
                "server": each.name,
                "version": each.now.version,
                "new": each.is_new,
                "definitions": {one.key: one.digest for one in each.now.definitions},
            }
            for each in found
        ]
    }
    if not new:
        return Reply({"status": "ok", **value}, "nothing has changed since the last review")
    if not options.yes and not console.agrees("offer exactly this to agents? [y/N] "):
        return Reply({"status": "error", **value}, "not accepted", EXIT_NO)
    for each in new:
        each.accept(by="--yes" if options.yes else "person")
    return Reply({"status": "ok", **value}, "accepted")


def _rows(review: ServerReview) -> Iterator[str]:
    before = "never reviewed" if review.before is None else f"reviewed {review.before.reviewed_at}"
    yield f"{review.name}: {show_name(review.now.version)} ({before})"
    if review.before is not None and review.before.version != review.now.version:
        yield f"  was {show_name(review.before.version)}"
    for each in review.differences:
        yield from show_difference(each)


def show_difference(difference: Redefinition) -> Iterator[str]:
    """Yield the lines to review: a diff, or the whole definition if the diff would be cut."""
    key = show_name(difference.key)
    if difference.now is None:
        yield f"  removed: {key}"
    elif difference.before is None:
        yield f"  new: {key}"
        yield from (f"    {line}" for line in _text(difference.now).splitlines())
    else:
        yield f"  changed: {key}"
        before, now = _text(difference.before), _text(difference.now)
        diff = unified_diff(before.encode(), now.encode(), key, _LINES_MAX)
        # Threat: the user would accept lines that a shortened diff does not show.
        shown = diff if is_whole_diff(diff) else now
        yield from (f"    {line}" for line in shown.splitlines())


def _text(definition: Definition) -> str:
    """Show the whole definition. Threat: an instruction that only the model would see."""
    rest = {name: each for name, each in definition.said.items() if name != "description"}
    shown = json.dumps(show_values(rest), indent=2, ensure_ascii=False, sort_keys=True)
    return f"{definition.description}\n{shown}\n"


def _table(options: Options) -> str:
    given: dict[str, Json] = {"url": options.url, "command": options.command}
    given |= {"env": _pairs(options.env, "--env", "TOKEN=credential:issues")}
    example = '"Authorization=Bearer credential:issues"'
    given |= {"headers": _pairs(options.header, "--header", example)}
    given |= {"network": options.network, "addresses": options.addresses, "files": options.files}
    given["packages"] = options.packages
    rows = toml_lines({name: value for name, value in given.items() if value})
    return f"[mcp.servers.{options.server}]\n{rows}"


def _pairs(given: Sequence[str], option: str, example: str) -> dict[str, Json]:
    parts = [each.partition("=") for each in given if "=" in each]
    found: dict[str, Json] = {name: value for name, _, value in parts}
    if len(found) < len(given):
        # Threat: quoting a value without a name would print a secret.
        names = ", ".join(map(quote, found)) or "none"
        raise UsageError(
            f"a value has no name, or a name is given twice; names found: {names}",
            where=option,
            hint=f"as in {option} {example}",
        )
    return found
