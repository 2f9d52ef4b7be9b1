"""Write docs/reference/ from the code: tools, command line, policy, error codes, Python.

    make reference        (python scripts/make_reference.py)

Nothing on these pages is typed by hand; a test compares them with what this prints.
"""

import argparse
import io
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from inspect import cleandoc, getdoc
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import fields

os.environ["COLUMNS"] = "88"  # argparse wraps by the terminal's width
os.environ["NO_COLOR"] = "1"

from python_reference import python_page

from paddock import __version__, errors, limits
from paddock.apps.cli import main as command_line
from paddock.apps.console import Console
from paddock.apps.hook.lean import request
from paddock.apps.hook.lean.request import read_patch
from paddock.plane.create import POLICY_TEMPLATE
from paddock.policy import settings
from paddock.policy.decide import decide
from paddock.policy.engine import PolicySource, load_policy
from paddock.policy.network import PORTS_MAX
from paddock.policy.presets import presets
from paddock.policy.profiles import rule_matches
from paddock.policy.rules import NAMES_BY_OPERATION, compile_rule, parse_action, target_kind
from paddock.tools.spec import Effects, Tool
from paddock.tools.toolsets import HEADS, all_tools
from paddock.values.decisions import OPERATIONS, Agent, Outcome

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
MADE = "Made from the code by `make reference`; a test keeps it true.\n"


def pages() -> dict[str, str]:
    """Every page by its file's name."""
    return {
        "tools.md": "\n".join(_tools()),
        "cli.md": "\n".join(_commands()),
        "policy.md": "\n".join(_policy()),
        "errors.md": "\n".join(_errors()),
        "python.md": "\n".join(python_page(MADE)),
        "paddock.1": "\n".join(_man()) + "\n",
    }


# --- tools --------------------------------------------------------------------


def _tools() -> Iterator[str]:
    yield f"# Tools\n\n{MADE}"
    yield "What a model reads of each tool, and the arguments that it may give. An argument that"
    yield "is not listed is refused; workspace, agent, profile and approval are never arguments.\n"
    toolsets: dict[str, list[Tool[Any]]] = {}
    for tool in all_tools():
        toolsets.setdefault(tool.spec.toolset, []).append(tool)
    yield "| toolset | tools |\n| --- | --- |"
    for name, tools in toolsets.items():
        links = " ".join(f"[`{tool.spec.name}`](#{tool.spec.name})" for tool in tools)
        yield f"| `{name}` | {links} |"
    yield ""
    for tools in toolsets.values():
        for tool in tools:
            yield from _tool(tool)


def _tool(tool: Tool[Any]) -> Iterator[str]:
    spec = tool.spec
    yield f"## {spec.name}\n\n{_prose(spec.description)}\n"
    yield f"Toolset `{spec.toolset}`; {_effects(spec.effects)}.\n"
    schema: Mapping[str, Any] = tool.binder.schema
    required = schema.get("required", [])
    yield "| argument | type | |\n| --- | --- | --- |"
    for name, about in schema["properties"].items():
        needed = "required. " if name in required else ""
        yield f"| `{name}` | {_kind(about)} | {needed}{_cell(about.get('description', ''))} |"
    yield ""


def _kind(about: Mapping[str, Any]) -> str:
    """What a value may be, from its JSON Schema."""
    if "enum" in about:
        return " or ".join(f"`{json.dumps(value)}`" for value in about["enum"])
    if "anyOf" in about:
        return " or ".join(_kind(part) for part in about["anyOf"])
    kind = about.get("type", "any")
    kind = " or ".join(kind) if isinstance(kind, list) else kind
    if kind == "array":
        kind = f"array of {_kind(about.get('items', {}))}"
    low, high = about.get("minimum"), about.get("maximum")
    if low is not None or high is not None:
        kind += f" {'' if low is None else low}..{'' if high is None else high}"
    return kind


def _effects(effects: Effects) -> str:
    if effects.reads_only:
        return "only reads"
    return "may destroy what is there" if effects.is_destructive else "writes"


# --- command line ---------------------------------------------------------------


def _commands() -> Iterator[str]:
    yield f"# Command line\n\n{MADE}"
    yield _shown(command_line.help_text())
    for name in command_line.COMMANDS:
        yield f"## paddock {name}\n"
        yield _shown(_help_of(name))
        for part in _parts_of(name):
            yield f"### paddock {name} {part}\n"
            yield _shown(_help_of(name, part))


def _parts_of(name: str) -> list[str]:
    """Return the subcommands for people: a part without --json is started by programs."""
    return [part.name for part in command_line.load_command(name).parts if part.as_json]


def _help_of(*words: str) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        try:
            command_line.main([*words, "--help"], Console.of_process())
        except SystemExit as end:
            if end.code:
                raise
    return printed.getvalue()


# --- man page -----------------------------------------------------------------------


def _man() -> Iterator[str]:
    yield f'.TH PADDOCK 1 "" "paddock {__version__}" "User Commands"'
    yield ".SH NAME\npaddock \\- a fenced workspace for LLM agents"
    yield ".SH SYNOPSIS\n.B paddock\n[\\-\\-plane DIR] [\\-\\-json] COMMAND [ARGUMENT ...]"
    yield ".SH DESCRIPTION"
    yield "Each command tells more of itself with \\-\\-help; what all of them take is below."
    yield ".nf\n" + _roff(command_line.help_text().partition("commands:")[2].strip("\n")) + "\n.fi"
    for name in command_line.COMMANDS:
        yield f".SH {name.upper()}\n.nf\n{_roff(_help_of(name).strip())}\n.fi"
        for part in _parts_of(name):
            yield f".SS {name} {part}\n.nf\n{_roff(_help_of(name, part).strip())}\n.fi"
    yield ".SH SEE ALSO\n.BR paddock-verify\nverifies a copy of a ledger."


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        "\\&" + line if line[:1] in {".", "'"} else line for line in escaped.split("\n")
    )


# --- actions ------------------------------------------------------------------------

MEANINGS = {
    "tool:file:create": "write a whole file, new or existing",
    "tool:file:str_replace": "change part of a file",
    "tool:file:view": "read a file, or list a directory",
    "tool:file:delete": "delete a file, a symlink or an empty directory",
    "tool:file:link": "create a symlink; a command's symlink is also judged as `create`",
    "tool:file:mode": "change only the permission bits or the times of a file",
    "tool:search:grep": "search for text in the files below a path",
    "tool:search:find": "search for names below a path",
    "tool:search:ls": "list a directory",
    "tool:output:write": "write a result for people into `outputs/`, never over an existing one",
    "tool:memory:view": "read the agent's memory; the target begins with /memories",
    "tool:memory:create": "add a memory, or rename one",
    "tool:memory:str_replace": "change part of a memory",
    "tool:memory:delete": "delete a memory, or its old name",
    "tool:shell:run": "run a shell line; each of its commands is judged",
    "tool:shell:process": "read the output of a background command, sync its changes, stop it",
    "tool:shell:input": "send input to a background command",
    "tool:ledger:query": "read a ledger of the plane, named by the target",
    "tool:package:list": "list the installed packages",
    "tool:package:run": "call a package's tool; the target is PACKAGE/TOOL",
    "tool:gate:check": "check a gate of the plane, named by the target",
    "tool:mcp:call": (
        "call a tool of another MCP server; the target is SERVER/TOOL, of a client's own server"
        " mcp__SERVER__TOOL"
    ),
    "tool:mcp:read": "read a resource of an MCP server; the target is SERVER/URI",
    "tool:mcp:prompt": "get a prompt of an MCP server; the target is SERVER/PROMPT",
    "tool:net:connect": "a command's connection; the target is HOST:PORT",
    "tool:net:request": "a command's HTTPS request; the target is METHOD HOST[:PORT]/PATH",
    "tool:client:NAME": "call another tool of a client, by its name",
    "tool:own:NAME": "call a tool of the embedding program, by its name",
}
"""The meaning of each action; an action without a row stops the script."""

PATTERNS = (
    ("tool:file:create", "tool:file:create docs/a.md", "tool:file:delete docs/a.md"),
    ("tool:file:* docs/**", "tool:file:view docs/a/b.md", "tool:file:view old/docs/a.md"),
    ("tool:file:view docs", "tool:file:view old/docs/a.md", "tool:file:view docs.md"),
    ("tool:file:view *.pem", "tool:file:view certs/a.pem", "tool:file:view a.pem.txt"),
    ("tool:file:view /*.md", "tool:file:view README.md", "tool:file:view docs/a.md"),
    ("tool:shell:run git diff", "tool:shell:run git diff", "tool:shell:run git diff --stat"),
    ("tool:shell:run git diff *", "tool:shell:run git diff", "tool:shell:run git difftool"),
    ("tool:shell:run git diff *", "tool:shell:run git diff --stat", "tool:shell:run git diff; ls"),
    (
        "tool:shell:run git diff *",
        "tool:shell:run git diff a b",
        "tool:shell:run git diff --output=a",
    ),
    (
        "tool:mcp:call mcp__issues__*",
        "tool:mcp:call mcp__issues__get",
        "tool:mcp:call mcp__mail__get",
    ),
    ("tool:client:WebFetch", "tool:client:WebFetch", "tool:client:WebSearch"),
    (
        "tool:net:connect example.org",
        "tool:net:connect example.org:80",
        "tool:net:connect example.org:22",
    ),
    (
        "tool:net:connect *.example.org:443",
        "tool:net:connect a.b.example.org:443",
        "tool:net:connect example.org:443",
    ),
    ("tool:net:connect *:443", "tool:net:connect example.org:443", "tool:net:connect 10.0.0.1:443"),
    (
        "tool:net:connect 10.0.0.0/8:5432,8000-8010",
        "tool:net:connect 10.1.2.3:8001",
        "tool:net:connect 11.1.2.3:8001",
    ),
    (
        "tool:net:request GET example.org/v1/**",
        "tool:net:request GET example.org/v1/a?all=1",
        "tool:net:request GET example.org/v1/%2e%2e/a",
    ),
)
"""A pattern of an allow rule, an action that it matches, and one that it does not match."""

ACTIONS_INTRODUCTION = """\
Policy judges actions: `tool:<category>:<operation> <target>`. A call may be several actions, and
the strictest answer counts: a move is a `delete` of the old path and a `create` of the new one,
and a path that leads through a symlink is judged under both of its names.
"""
ACTION_NOTES = """
Only commands create links (`link`) and change modes (`mode`); no tool does. The changes of a
sandboxed command are judged when it ends, path by path: written files as `create`, new or not,
and the rest as `delete`, `link` or `mode`. A redirection such as `> a.txt` is also judged as a
`create` before the line runs. A redirection that is alone on its line is only that write; of the
rules for commands, only a rule for every command covers it. The same holds for a line of only
assignments or tests, and a line with only a comment is refused. If the call has a `cwd`, a
redirection is judged both from there and from the root. If it leaves the workspace only when read
from the root, it is refused only if the line may change its directory.

A search is judged by the place where it begins; what it finds below is not judged as a search
again. `grep` shows no line of a file that `tool:file:view` does not allow, and `find` and `ls`
show every name that is not `secret`. Denying `tool:search:* docs/` does not keep a search of the
root out of `docs/`. Denying `tool:file:view docs/` closes the contents; `secret` under `[paths]`
also hides the names.

A file that git tracks is never hidden from a command: git would treat it as deleted, and the next
commit would delete it. If a rule closes the file, a command sees the content in git's index, as
git would check it out, and cannot change it. Uncommitted changes of the working copy stay closed,
and the result names each file that differs. Every command can read the index's content from git's
objects: `paddock policy lint` and `paddock doctor` name the tracked files that are secret.
"""


def _actions() -> Iterator[str]:
    yield "## Actions\n"
    yield ACTIONS_INTRODUCTION
    known = {f"tool:{category}:{each}" for category in OPERATIONS for each in OPERATIONS[category]}
    known |= {f"tool:{category}:NAME" for category in NAMES_BY_OPERATION}
    if set(MEANINGS) != known:
        raise LookupError(f"these actions have no row, or rows no action: {known ^ set(MEANINGS)}")
    yield "| action | target | what it is | tools | tools of a client |"
    yield "| --- | --- | --- | --- | --- |"
    for head, meaning in MEANINGS.items():
        ours, theirs = (" ".join(f"`{name}`" for name in found) for found in _tools_for(head))
        target = target_kind(head.split(":")[1]).value
        yield f"| `{head}` | {target} | {meaning} | {ours} | {theirs} |"
    yield ACTION_NOTES


def _tools_for(head: str) -> tuple[list[str], list[str]]:
    """The tools, Paddock's and a client's, whose calls are judged as the action `head`."""
    _, category, operation = head.split(":")
    ours = [tool for tool, heads in HEADS.items() if [category, operation] in heads]
    theirs = [tool for tool, (each, _) in request.FILE_TOOLS.items() if head == f"tool:file:{each}"]
    patch = "*** Add File: a\n*** Update File: b\n*** Delete File: c\n*** Move to: d\n"
    if category == "file" and operation in {each for each, _ in read_patch(patch)}:
        theirs.append(request.PATCH_TOOL)
    if category == "shell":
        theirs.append(request.SHELL_TOOL)
    if head == "tool:mcp:call":
        theirs.append(f"{request.MCP_PREFIX}*")
    return ours, theirs


def _patterns() -> Iterator[str]:
    yield "## Patterns\n"
    yield PATTERN_RULES.format(ports_max=PORTS_MAX)
    yield "| `allow` | matches | does not match |\n| --- | --- | --- |"
    for pattern, match, other in PATTERNS:
        rule = compile_rule(pattern, Outcome.ALLOW, "docs")
        found = [rule_matches(rule, parse_action(each)) for each in (match, other)]
        if found != [True, False]:
            raise ValueError(f"{pattern!r} is shown wrongly: {match!r}, {other!r} gave {found}")
        yield f"| `{pattern}` | `{match}` | `{other}` |"
    yield ""
    yield from _command_lines()
    yield from _network()
    yield from _arguments()


PATTERN_RULES = """\
A rule names an action. Without a target it means every target, and `*` stands for a whole
category or operation. How a target is compared depends on what it is:

- a path is compared as in `.gitignore`: a pattern without a slash matches at any depth, a pattern
  with a slash in front or in the middle matches from the root. `*` and `?` stay within one name,
  `**` spans directories, and a directory covers everything below it;
- a command is compared word by word. A last `*` stands for any number of words, also none, so
  `git diff *` matches a bare `git diff`; inside a word it stands for any part. An `allow` matches
  an option that writes or runs something only if the rule names the option;
- a host is compared by its lower-case ASCII name. `*.example.org` is every name below it, at any
  depth, but not itself; `*` is every name, but no literal address. An address may be a network,
  `10.0.0.0/8`; an IPv6 address is in brackets, `[2001:db8::/32]`. Ports follow: `:443`, `:80,443`
  or `:8000-8010`, at most {ports_max}, and in a `deny` also `:*`. Without ports, an allowed or
  asked connection means 443 and 80, a request means 443, and a `deny` means every port;
- a request is compared by its method (or `*`), host and path. In the path `*` is any part of a
  component, and `**` any number of components. The query is not inspected. An `allow` has to
  match every reading of the path: as sent, decoded, and with its dots resolved;
- any other name is compared whole, where `*` stands for any part.

Only a rule that names the network opens it: `tool:*` allows no connection, but denies every
connection. `otherwise` for the network covers names at the ports 443 and 80. If a rule for
requests allows or asks about a host and port, only requests pass there, and each is judged. For
any other host requests are not inspected, so a `deny` of some requests denies the whole
connection.

A rule for a name that no call can have does not load: `tool:client:Bash`, which is judged as
`tool:shell:run`, or a ledger that does not exist.

In a list under `[paths]`, a pattern after `!` excludes what an earlier pattern of the same list
matched, except below a directory that matched. Rules cannot use `!`. Your list replaces the whole
built-in list: `paddock policy lint` names what `protected`, `generated` and `secret` lose, unless
your list names it after a `!`.

An `allow` matches exactly what is written, and a line only if allow rules cover each of its
commands. `ask` and `deny` ignore letter case, except in a command's options (`-d` is not `-D`),
and match a line as soon as one of its commands may be meant. They know no aliases: if you deny
`npm run *`, deny `npm run-script *` too. Where letter case is ignored, `?` and brackets stand for
one character of the lower-case name, in which `ß` counts as two.
"""
"""How patterns are read."""
COMMAND_LINE_RULES = """\
Some commands need no rule if the rest of the line is allowed, because they change nothing: a `cd`
to a literal directory of the workspace, which applies to the commands after it; a literal
assignment of a variable that does not change what runs; `timeout N` and `nice` before a command;
and, at the end of a pipe, `head`, `tail`, `wc`, `sort`, `uniq`, `cut`, `tr`, `grep` and `cat`, if
they read only the pipe and write no file.

`$(cat <<'EOF' … EOF)` with a quoted word is constant text: use it for messages of several lines.
Any other substitution is known only when the line runs, so only an `allow` for every command
covers it.

A line that sources a file, or changes `PATH` or `PYTHONPATH`, may run another program under a name,
as a script may. No narrow `allow` matches it, and where a rule denies or asks about some command it
is at least `confine`.

For `ask` and `deny`, `rm -rf`, `rm -fr`, `rm -r -f` and `rm --recursive --force` are the same,
wherever the options are. For `allow` they are different commands.

A line of more than {chars_max:,} characters is denied, and so is a line that does not parse and
has more than {parts_max:,} parts. A line with more than {code_max:,} characters outside quotes
and here-documents is not parsed: only an `allow` for every command covers it, and every `ask` and
`deny` for commands may apply to it.
"""
"""How a command line is compared with rules."""
COMMANDS = """
[profiles.standard]
allow = [
    "tool:shell:run git status *", "tool:shell:run git commit *", "tool:shell:run npm test *",
]
ask   = ["tool:shell:run cp -rf *"]
deny  = ["tool:shell:run rm -rf *"]
"""
"""The policy of the table of command lines."""
COMMAND_LINES: Final = (
    ("cd src && git status", "allow"),
    ("cd .. && git status", "deny"),
    ("cd $DIR && git status", "deny"),
    ("git -C src status", "allow"),
    ("NODE_ENV=test timeout 60 npm test", "allow"),
    ("npm test 2>&1 | grep -v ok | tail -15", "allow"),
    ("npm test | sort -o out.txt", "deny"),
    ("tail -15 a.txt", "deny"),
    ("git commit -m \"$(cat <<'EOF'\\nFix it\\nEOF\\n)\"", "allow"),
    ('git commit -m "$(cat <<EOF\\nFix $IT\\nEOF\\n)"', "deny"),
    ('git commit -m "$(cat message.txt)"', "deny"),
    ("cp -r -f a b", "ask"),
    ("rm --recursive --force a", "deny"),
)
"""A line, `\\n` for a line end in it, and the answer."""


def _command_lines() -> Iterator[str]:
    yield "### Command lines\n"
    yield COMMAND_LINE_RULES.format(
        chars_max=limits.command_chars_max,
        parts_max=limits.command_parts_max,
        code_max=limits.command_code_chars_max,
    )
    policy = load_policy(PolicySource("docs", COMMANDS.encode()))
    yield f"```toml{COMMANDS}```\n"
    yield "| line | answer |\n| --- | --- |"
    for line, answer in COMMAND_LINES:
        action = parse_action(f"tool:shell:run {line}".replace("\\n", "\n"))
        found = decide(policy, (Agent("main", "standard"),), [action]).outcome.word
        if found != answer:
            raise ValueError(f"{line!r} is shown wrongly: {found}")
        yield f"| `{line.replace('|', chr(92) + '|')}` | {answer} |"
    yield ""


NETWORK = """
[profiles.standard]
extends = "standard"
allow   = ["tool:net:connect example.org", "tool:net:request GET api.example.org/repos/**"]
ask     = ["tool:net:connect git.example.org:22"]

[[profiles.standard.rules]]
action    = "tool:net:connect db.example.org:5432"
outcome   = "allow"
addresses = ["10.0.0.0/8"]
commands  = ["psql *"]
"""
"""The example of rules for the network."""


ARGUMENTS = """
[profiles.standard]
extends = "standard"

[[profiles.standard.rules]]
action    = "tool:mcp:call issues/search"
outcome   = "allow"
when      = { "/path" = { path = "docs/**" }, limit = { max = 100 }, "/state" = { in = ["open"] } }
only      = true
match     = ['tool:mcp:call issues/search {"path": "docs/a.md", "limit": 5, "state": "open"}']
not_match = ['tool:mcp:call issues/search {"path": "docs/../a", "limit": 5, "state": "open"}']

[mcp.servers.issues]
command = ["npx", "-y", "some-issues-server"]     # or url = "https://…/mcp"
env     = { ISSUES_TOKEN = "credential:issues" }  # the value stays with the network wall
network = ["api.example.org:443"]                 # what it may reach; nothing without it
packages = true                                   # and your package clients' hosts, for npx, uvx
files   = "none"                                  # none, read or write: the workspace
tools   = { allow = ["search*"], deny = [] }      # what is offered at all
record  = "whole"                                 # or digest: arguments in the ledger
redact  = ["/token"]                              # what the ledger keeps nothing of

[mcp.servers.tickets]
url       = "https://tickets.example.org/mcp"  # its host is all that is reached
headers   = { Authorization = "Bearer credential:tickets", X-Region = "eu" }  # no secret literally
addresses = ["10.0.0.0/8"]                     # where hosts may be, if not public
"""
"""The example of rules for arguments, and of a server."""
ARGUMENT_RULES = """\
A key of `when` is a JSON pointer, or the plain name of an argument; all conditions have to hold.
`path`: a relative path that every reader understands in the same way, matched like a file's path;
`glob`: the whole text, with `*` and `?`; `min` and `max`: a number; `in`: one of these values.
Nothing is coerced. If an argument is missing, null or of another type, an `allow` does not match,
and an `ask` or a `deny` does. For an array, an `allow` needs every element to match, an `ask` or
a `deny` needs one. `only = true`, for an `allow`: the call has no other argument.
"""
NETWORK_RULES = """\
With `[shell] network = "policy"`, the default, a command reaches the hosts that rules allow, or
that a person allows when asked. If no rule opens anything, it has only a private loopback. A
child agent reaches only what each of its ancestors may reach.

A name may lead to public addresses, and to those that its rule names in `addresses`. A `deny` of
an address also applies to names that lead there. A rule with `commands` counts for a line that
consists only of simple commands that they match exactly, as in an `allow`. This narrows the
intent, and does not separate programs: what such a command starts may connect, too.

`otherwise = { "tool:net:*" = "ask" }` asks a person about every other name.
"""


def _arguments() -> Iterator[str]:
    load_policy(PolicySource("docs", ARGUMENTS.encode()))
    yield "### Rules for arguments\n"
    yield f"```toml{ARGUMENTS}```\n"
    yield ARGUMENT_RULES


def _network() -> Iterator[str]:
    load_policy(PolicySource("docs", NETWORK.encode()))
    yield "### Rules for the network\n"
    yield f"```toml{NETWORK}```\n"
    yield NETWORK_RULES


# --- policy -----------------------------------------------------------------------


_SHELL_NOTES: Final = f"""\
A call of `run_shell` may set a variable if a name in `env` covers it: `["CI", "PYTEST_*"]`. A
name that would cover `PATH`, `LD_*`, `BASH_ENV`, `GIT_*`, `NODE_OPTIONS`, `PYTHON*` or another
variable that changes which programs run does not load.

With `caches = true` the commands of one workspace share a private `~/.cache`, stored in the plane
and written directly. It holds the download caches of Go, Cargo, npm, pip, uv, Maven, Gradle and
pre-commit. Go, Gradle and Maven also read, and never change, what the user has downloaded with
them (`~/go/pkg/mod/cache/download`, `~/.gradle/caches/modules-2`, `~/.m2/repository`). Later
commands may run what one command cached; they are confined in the same way, and the host reads
none of it. `paddock sandbox caches` shows the sizes, and `paddock sandbox caches clear` empties
the caches, as does any check that finds them larger than {limits.shell_cache_bytes_max:,} bytes.
A dry run only reads them; under Landlock alone there are none.

`memory_mb = 0` means three quarters of the machine's memory, and a larger number means the same;
`cpu_s = 0` means no limit.

With `commit = "none"` no change of a command lands, inside or outside the workspace, and the
result counts what was discarded. This needs the backend `stage`.
"""


_EXTENDS: Final = """\
## Your own profiles

A profile replaces the profile of the same name, unless it extends it. `extends = "standard"`, or
a list of names, combines it with those profiles, built-in or in the same file. Lists are joined.
In `otherwise` and `shell`, the profile's own keys count, then those of the last base that has the
key (in `otherwise`, the strictest). A profile cannot lift what a base denies or asks about. If a
profile extends its own name, that means the one that it would replace: yours from the user's
configuration, else the built-in one. A circle does not load. If a profile with a built-in name
does not extend it, `paddock policy lint` says what is lost.

```toml
[profiles.standard]
extends = ["standard", "readonly-commands"]
deny    = ["tool:shell:run git push *"]
```

## Agents

`[agents."NAME"]` gives a profile to an agent, or to a subagent type of a client. With a
`workspace` (relative to the project's root, or an absolute directory) or a `parent` it declares
an agent of the project, optionally with `permissions`:

```toml
[agents.reader]
profile     = "reviewer"
parent      = "main"        # works where its parent does, and never exceeds it
permissions = { forbidden = ["/keys/"] }
```

`paddock trust` shows which agents it will create or change, and then does so. A workspace outside
the project is confirmed by name, which `--yes` does not answer. If the file no longer declares an
agent, `trust` names it, and it stays until you remove it. Its tools stay as they are.
"""


_CREDENTIALS = """\
### [credentials]

`[credentials.NAME]`, only in the user's own configuration: values that commands never see.

| key | meaning |
| --- | --- |
| `hosts` | the hosts that receive it: `["api.example.org:443"]`, names without patterns |
| `variable` | the environment variable that holds a placeholder in the sandbox |
| `from` | `{ env = "…" }`, or `file = "~/…"`, `command = ["…"]`, `keyring = "NAME/USER"` |

In headers of requests to its hosts the value replaces the placeholder, basic authentication
included. A value has 8 to 8,192 visible characters. Such a host is reachable only through request
rules.
"""


def _policy() -> Iterator[str]:
    yield f"# Policy\n\n{MADE}"
    yield "`paddock init` writes this file. Its comments state the defaults:\n"
    yield _shown(POLICY_TEMPLATE.decode(), "toml")
    yield from _actions()
    yield from _patterns()
    yield "## Built-in profiles\n"
    yield "The strictest matching rule wins. If no rule matches, the action is denied.\n"
    for profile in presets():
        yield f"### {profile.name}\n"
        yield "| outcome | action |\n| --- | --- |"
        for rule in profile.rules:
            yield f"| {rule.outcome.name.lower()} | `{rule.shown.text}` |"
        for entry in profile.otherwise:
            yield f"| {entry.outcome.name.lower()}, if no rule matches | `{entry.head.text}` |"
        for field in fields(profile.shell) if profile.shell is not None else ():
            given = getattr(profile.shell, field.name)
            if given is not None:
                yield f"| for its commands | `{field.name} = {json.dumps(given)}` |"
        yield ""
    yield _EXTENDS
    yield "## Tables and their defaults\n"
    for name in ("shell", "network", "hook", "history", "mcp", "ledger"):
        yield from _table(name, getattr(settings.Settings(), name))
        if name == "shell":
            yield "Each directory of `read` and `write` is a separate mount in the sandbox. Only"
            yield "the kernel limits their number.\n"
            yield _SHELL_NOTES
        if name == "network":
            yield _CREDENTIALS
    yield "### [limits]\n"
    yield "Each can be lowered; Paddock's other limits are fixed. Only `shell_timeout_s` can be"
    yield f"raised, to at most {limits.shell_timeout_raised_s:,}, and only for `run_shell`:"
    yield f"`run_shell_dev` takes at most {limits.shell_dev_timeout_s} s.\n"
    yield "| key | maximum |\n| --- | --- |"
    lowered = settings.LoweredLimits()
    for field in fields(lowered):
        yield f"| `{field.name}` | {getattr(lowered, field.name)} |"
    yield ""


def _table(name: str, value: Any) -> Iterator[str]:
    yield f"### [{name}]\n\n{_prose(cleandoc(getdoc(type(value)) or ''))}\n"
    yield "| key | default |\n| --- | --- |"
    parts = []
    for field in fields(value):
        default = getattr(value, field.name)
        if isinstance(default, Struct):
            parts.append((field.name, default))
            continue
        yield f"| `{field.name}` | {_default(default)} |"
    yield ""
    for part, default in parts:
        yield from _table(f"{name}.{part}", default)


def _default(value: object) -> str:
    if value is None:
        return "each client's own"
    return f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


# --- errors -----------------------------------------------------------------------


def _errors() -> Iterator[str]:
    yield f"# Error codes\n\n{MADE}"
    yield "Codes are stable, wording is not. An error reads `error[code]: what happened`, then"
    yield "`where:` and `hint:`. Errors that a model can act on are the result of its call.\n"
    yield "| code | when | who acts |\n| --- | --- | --- |"
    rows = {}
    for kind in _kinds(errors.PaddockError):
        about = _prose(cleandoc(kind.__doc__ or "")).split("\n")[0]
        row = f"| `{kind.code}` | {_cell(about)} | {_actor(kind)} |"
        if "code" in vars(kind):
            rows[kind.code] = row  # of a base and its child the child: it says more
        else:
            rows.setdefault(kind.code, row)
    yield from (row for _, row in sorted(rows.items()))
    yield ""


def _kinds(kind: type[errors.PaddockError]) -> Iterator[type[errors.PaddockError]]:
    for child in kind.__subclasses__():
        if not child.__subclasses__() or "code" in vars(child):
            yield child
        yield from _kinds(child)


def _actor(kind: type[errors.PaddockError]) -> str:
    """Return who can act on an error. A model cannot act on a defect."""
    actors = (
        (errors.InternalToolError, "the maintainers: report it"),
        (errors.ToolError, "the model"),
        (errors.UsageError, "the caller (exit 2)"),
        (errors.ConfigError, "the operator (exit 3)"),
        (errors.IntegrityError, "the auditor (exit 4)"),
        (errors.HostError, "the operator of the host (exit 5)"),
    )
    return next(
        (who for base, who in actors if issubclass(kind, base)),
        "the maintainers: report it (exit 70)",
    )


# --- text -------------------------------------------------------------------------


def _prose(text: str) -> str:
    """A docstring for a page: what a bracket or a star would be in Markdown is escaped."""
    return re.sub(r"([<|])", r"\\\1", text)


def _cell(text: str) -> str:
    return _prose(" ".join(text.split()))


def _shown(text: str, language: str = "text") -> str:
    return f"```{language}\n{text.rstrip()}\n```\n"


def main() -> int:
    """Write the pages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--into", type=Path, default=FOLDER, help="where the pages go")
    folder = parser.parse_args().into
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
