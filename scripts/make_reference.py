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
    for name, listed in command_line.COMMANDS.items():
        yield f"## paddock {name}\n"
        yield _shown(_help_of(name))
        for part in listed.parts:
            yield f"### paddock {name} {part}\n"
            yield _shown(_help_of(name, part))


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
    for name, listed in command_line.COMMANDS.items():
        yield f".SH {name.upper()}\n.nf\n{_roff(_help_of(name).strip())}\n.fi"
        for part in listed.parts:
            yield f".SS {name} {part}\n.nf\n{_roff(_help_of(name, part).strip())}\n.fi"
    yield ".SH SEE ALSO\n.BR paddock-verify\nverifies a copy of a ledger."


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return "\n".join(
        "\\&" + line if line[:1] in {".", "'"} else line for line in escaped.split("\n")
    )


# --- actions ------------------------------------------------------------------------

MEANINGS = {
    "tool:file:create": "write a whole file, new or in the place of an old one",
    "tool:file:str_replace": "change a part of a file",
    "tool:file:view": "read a file, or list a directory",
    "tool:file:delete": "remove a file, a link or an empty directory",
    "tool:file:link": "make a symbolic link; a command's is judged as `create`, too",
    "tool:file:mode": "change the permission bits or the times of a file, and nothing else of it",
    "tool:search:grep": "search for text in the files below",
    "tool:search:find": "search for names below",
    "tool:search:ls": "list a directory",
    "tool:output:write": "write a result for people into `outputs/`, never over an old one",
    "tool:memory:view": "read what the agent remembers; the target begins with /memories",
    "tool:memory:create": "remember something new, or under another name",
    "tool:memory:str_replace": "change a part of what is remembered",
    "tool:memory:delete": "forget something, or its old name",
    "tool:shell:run": "run a line of shell; each of its commands is judged",
    "tool:shell:process": "see, take in and end a command that runs in the background",
    "tool:shell:input": "type into a command that runs in the background",
    "tool:ledger:query": "read a ledger of the plane, named by the target",
    "tool:package:list": "list the installed packages",
    "tool:package:run": "call a tool that a package brings; the target is PACKAGE/TOOL",
    "tool:gate:check": "check a gate of the plane, named by the target",
    "tool:mcp:call": (
        "call a tool of another MCP server; the target is SERVER/TOOL, of a client's own server"
        " mcp__SERVER__TOOL"
    ),
    "tool:mcp:read": "read a resource of an MCP server; the target is SERVER/URI",
    "tool:mcp:prompt": "get a prompt of an MCP server; the target is SERVER/PROMPT",
    "tool:net:connect": "a command's connection; the target is HOST:PORT",
    "tool:net:request": "a command's HTTPS request; the target is METHOD HOST[:PORT]/PATH",
    "tool:client:NAME": "call a client's own tool that is none of the above, by its name",
    "tool:own:NAME": "call a tool of the program that embeds Paddock, by the name it gives",
}
"""What each action is, in the words of this page: an action without a row stops it."""

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
"""A pattern of an `allow`, an action that it matches and one that it does not."""


def _actions() -> Iterator[str]:
    yield "## Actions\n"
    yield "What policy judges: `tool:<category>:<operation> <target>`. A call may be more than one,"
    yield "and the strictest answer holds: a move is `delete` of the old path and `create` of the"
    yield "new one, and a path that leads through a link is judged by both of its names.\n"
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
    yield "\nNo tool makes a `link` or changes a `mode`: commands do. What a sandboxed command"
    yield "changed is judged when it ends, path by path: what it wrote as `create`, whether the"
    yield "file was new or not, and the rest as `delete`, `link` or `mode`. A redirection such as"
    yield "`> a.txt` is judged as a `create` before the line runs, too. Alone on its line it is"
    yield "that write, and a rule for any command covers it besides, no narrower one; so"
    yield "is a line of assignments or tests alone, and one of a comment alone is refused. Where"
    yield "the call has a `cwd`, a redirection is judged as read from there, and as read from the"
    yield "root besides; one that leaves the workspace from the root alone is refused for that only"
    yield "where the line may change its directory.\n"
    yield "A search is judged by the place that it begins at, and what it finds below is not judged"
    yield "as a search again: `grep` shows no line of a file that `tool:file:view` does not allow,"
    yield "`find` and `ls` show every name that is not `secret`. To deny `tool:search:* docs/` does"
    yield "not keep a search of the root out of `docs/`. To deny `tool:file:view docs/` keeps its"
    yield "contents out, `secret` under `[paths]` the names too.\n"
    yield "A file that git tracks is never hidden from a command: git would take it for deleted,"
    yield "and the next commit would delete it. Where a rule closes it, a command sees what git's"
    yield "index has, as git would check it out, and cannot change it; what only the working copy"
    yield "has stays closed, and the result names each file that differs. The index's content is"
    yield "in git's objects, which every command can read: `paddock policy lint` and `paddock"
    yield "doctor` name the tracked files that are secret.\n"


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
    yield "A rule names an action; without a target it means every target, and `*` stands for a"
    yield "whole category or operation. What the target is says how it compares:\n"
    yield "- a path as in `.gitignore`: without a slash at any depth, with one in front or in the"
    yield "  middle from the root; `*` and `?` stay within a name, `**` spans directories, and a"
    yield "  directory covers what is below it;"
    yield "- a command by words: a last `*` stands for any words, none included, so that"
    yield "  `git diff *` matches a bare `git diff`; within a word it stands for any part. An"
    yield "  option that writes or runs something is matched by an `allow` only if it is named;"
    yield "- a host by its name in ASCII, lower case: `*.example.org` is every name below it, at"
    yield "  any depth, and not itself; `*` is every name and no literal address; an address may"
    yield "  be a network, `10.0.0.0/8`, and one of IPv6 stands in brackets, `[2001:db8::/32]`."
    yield f"  Behind it ports: `:443`, `:80,443` or `:8000-8010`, {PORTS_MAX} at most, and in a"
    yield "  `deny` also `:*`. Without them a connection that is allowed or asked about is one to"
    yield "  443 or 80, a request one to 443, and a `deny` is for every port;"
    yield "- a request by its method, or `*`, its host and its path, where `*` is any part of a"
    yield "  component and `**` any number of them. The query is not looked at. An `allow` has to"
    yield "  match every reading of the path: as sent, decoded, without its dots;"
    yield "- any other name whole, where `*` stands for any part.\n"
    yield "The network opens only by a rule that names it: `tool:*` allows no connection, and"
    yield "denies every one. `otherwise` of it stands for names at the ports 443 and 80. A host"
    yield "and port that a rule for requests allows or asks about carries requests alone, each"
    yield "judged by itself. Of any other host nobody sees the requests, so a `deny` of one of"
    yield "them denies the connection.\n"
    yield "A rule for a name that no call has does not load, as for `tool:client:Bash`, which is"
    yield "judged as `tool:shell:run`, or for a ledger that there is not.\n"
    yield "In a list under `[paths]` a pattern after `!` takes back what an earlier one of the same"
    yield "list said, though nothing below a directory that matched. A rule takes no `!`. A list"
    yield "that is given replaces the built-in one whole: `paddock policy lint` names what"
    yield "`protected`, `generated` and `secret` lose, unless the list has it after a `!`.\n"
    yield "An `allow` matches exactly what is written, and a line only if it covers each of its"
    yield "commands. `ask` and `deny` match whatever the letter case, options of a command apart"
    yield "(`-d` is not `-D`), and a line as soon as one of its commands may be meant. They know no"
    yield "second names: whoever denies `npm run *` denies `npm run-script *` too. Where letter"
    yield "case does not count, `?` and brackets stand for one character of the name in lower case,"
    yield "in which `ß` is two.\n"
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
    yield "What changes nothing by itself needs no rule of its own, and is passed by where the rest"
    yield "of the line is allowed: a `cd` to a literal directory of the workspace, which moves what"
    yield "follows; a literal assignment of a variable that no program runs by; `timeout N` and"
    yield "`nice` before a command; and at the end of a pipe `head`, `tail`, `wc`, `sort`, `uniq`,"
    yield "`cut`, `tr`, `grep` and `cat`, where they read the pipe and write no file.\n"
    yield "`$(cat <<'EOF' … EOF)` with a quoted word is a constant text, so a message of several"
    yield "lines is written like this. Any other substitution is known only when the line runs:"
    yield "only an `allow` for every command covers it.\n"
    yield "To `ask` and `deny`, `rm -rf`, `rm -fr`, `rm -r -f` and `rm --recursive --force` are the"
    yield "same, wherever the options stand and whatever stands between them. To `allow`, each is"
    yield "another command.\n"
    most, parts = f"{limits.command_chars_max:,}", f"{limits.command_parts_max:,}"
    code = f"{limits.command_code_chars_max:,}"
    yield f"A line of more than {most} characters is denied, and so is one that does not parse and"
    yield f"has more than {parts} parts. One with more than {code} characters outside of quotes and"
    yield "here-documents is not parsed: only an `allow` for every command covers it, and every"
    yield "`ask` and `deny` for commands may be meant.\n"
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
files   = "none"                                  # none, read or write: the workspace
tools   = { allow = ["search*"], deny = [] }      # what is offered at all
record  = "whole"                                 # or digest: arguments in the ledger
redact  = ["/token"]                              # what the ledger keeps nothing of

[mcp.servers.tickets]
url       = "https://tickets.example.org/mcp"                # its host is all that is reached
headers   = { Authorization = "Bearer credential:tickets" }  # or "credential:tickets" alone
addresses = ["10.0.0.0/8"]                                   # where hosts may be, if not public
"""
"""The example of rules for arguments, and of a server."""


def _arguments() -> Iterator[str]:
    load_policy(PolicySource("docs", ARGUMENTS.encode()))
    yield "### Rules for arguments\n"
    yield f"```toml{ARGUMENTS}```\n"
    yield "A key of `when` is a JSON pointer, or the bare name of an argument; all of them have to"
    yield "hold. `path`: a relative path that every reader takes for the same, matched like the"
    yield "path of a file; `glob`: the whole text, with `*` and `?`; `min` and `max`: a number;"
    yield "`in`: one of these values. Nothing is coerced. What is missing, null or of another type"
    yield "keeps an `allow` from matching, and no `ask` and no `deny`. Of an array an `allow` needs"
    yield "every element, an `ask` or a `deny` one. `only = true`, of an `allow`: nothing else is"
    yield "given.\n"


def _network() -> Iterator[str]:
    load_policy(PolicySource("docs", NETWORK.encode()))
    yield "### Rules for the network\n"
    yield f"```toml{NETWORK}```\n"
    yield 'With `[shell] network = "policy"`, the default, a command reaches what rules allow, or a'
    yield "person when asked. Where no rule opens anything, that is a loopback of its own. A child"
    yield "agent reaches only what each of its ancestors may, too.\n"
    yield "A name leads to public addresses, and to those that `addresses` of its rule name. A"
    yield "`deny` of an address holds for what names lead to. A rule with `commands` counts for a"
    yield "line that consists only of simple commands that these match exactly, as an `allow` does."
    yield "That narrows what is meant, and is no wall between programs: what such a command starts"
    yield "may connect, too.\n"
    yield '`otherwise = { "tool:net:*" = "ask" }` has a person asked about every other name.\n'


# --- policy -----------------------------------------------------------------------


_SHELL_NOTES: Final = (
    'A call of `run_shell` sets a variable if a name of `env` covers it: `["CI", "PYTEST_*"]`.',
    "A name that would cover `PATH`, `LD_*`, `BASH_ENV`, `GIT_*`, `NODE_OPTIONS`, `PYTHON*` or",
    "another one that changes what a command's names run does not load.\n",
    "With `caches = true` the commands of one workspace share a private `~/.cache`, kept in the",
    "plane and written directly. The download caches of Go, Cargo, npm, pip, uv, Maven, Gradle and",
    "pre-commit stand in it. Go, Gradle and Maven besides read, and never change, what the user",
    "has downloaded with them (`~/go/pkg/mod/cache/download`, `~/.gradle/caches/modules-2`,",
    "`~/.m2/repository`). What one command puts there, the next may run: it is confined alike,",
    "and the host reads none of it. `paddock sandbox caches` shows their size, and",
    "`paddock sandbox caches clear` begins anew, as does a look that finds them larger than",
    f"{limits.shell_cache_bytes_max:,} bytes. A dry run only reads them; under Landlock alone",
    "there are none.\n",
    "`memory_mb = 0` is three quarters of what the machine has, and no number means more;",
    "`cpu_s = 0` is no limit.\n",
    'With `commit = "none"` nothing that a command changes lands, in the workspace or outside of',
    "it, and the result counts what was thrown away. It takes the backend `stage`.\n",
)


_EXTENDS: Final = (
    "## Profiles of your own\n",
    'A profile replaces one of its name whole, unless it extends it. `extends = "standard"`, or a',
    "list of names, joins it with what these say, built-in or in the same file: lists are joined,",
    "and of `otherwise` and `shell` a key that it gives itself counts, else that of the last base",
    "that has it (of `otherwise`, the strictest). What a base denies or asks about no profile that",
    "extends it lifts. Its own name means the one that it would replace: yours from the user's",
    "configuration, else the built-in one. A circle does not load. `paddock policy lint` says what",
    "a built-in profile lost where one of its name does not extend it.\n",
    "```toml",
    "[profiles.standard]",
    'extends = ["standard", "readonly-commands"]',
    'deny    = ["tool:shell:run git push *"]',
    "```\n",
    "## Agents\n",
    '`[agents."NAME"]` gives a profile to an agent, or to a kind of agent of a client.',
    "With a `workspace` (from the project's root, or a directory of the host) or a `parent` it",
    "declares an agent of the project, with `permissions` if you like:\n",
    "```toml",
    "[agents.reader]",
    'profile     = "reviewer"',
    'parent      = "main"        # works where its parent does, and never exceeds it',
    'permissions = { forbidden = ["/keys/"] }',
    "```\n",
    "`paddock trust` shows which agents it will make or change, and then they are so. A workspace",
    "outside of the project is asked about by name, and `--yes` does not answer that. One that the",
    "file no longer declares is named, and stays until you remove it. Tools stay as they are.\n",
)


_CREDENTIALS = (
    "### [credentials]\n",
    "`[credentials.NAME]`, in the user's own configuration alone: what commands never have.\n",
    "| key | what |",
    "| --- | --- |",
    '| `hosts` | which hosts get it: `["api.example.org:443"]`, each a name, no pattern |',
    "| `variable` | what holds a placeholder in the sandbox |",
    '| `from` | `{ env = "…" }`, or `file = "~/…"`, `command = ["…"]`, `keyring = "NAME/USER"` |\n',
    "In headers of requests to its hosts the value takes the placeholder's place, basic",
    "authentication included. A value has 8 to 8,192 visible characters. Such a host is reached by",
    "rules for its requests alone.\n",
)


def _policy() -> Iterator[str]:
    yield f"# Policy\n\n{MADE}"
    yield "The file that `paddock init` writes. Everything in it says what holds without it:\n"
    yield _shown(POLICY_TEMPLATE.decode(), "toml")
    yield from _actions()
    yield from _patterns()
    yield "## Built-in profiles\n"
    yield "The strictest rule that matches wins; where none matches, it is denied.\n"
    for profile in presets():
        yield f"### {profile.name}\n"
        yield "| outcome | what |\n| --- | --- |"
        for rule in profile.rules:
            yield f"| {rule.outcome.name.lower()} | `{rule.shown.text}` |"
        for entry in profile.otherwise:
            yield f"| {entry.outcome.name.lower()}, where no rule matches | `{entry.head.text}` |"
        for field in fields(profile.shell) if profile.shell is not None else ():
            given = getattr(profile.shell, field.name)
            if given is not None:
                yield f"| of its commands | `{field.name} = {json.dumps(given)}` |"
        yield ""
    yield from _EXTENDS
    yield "## Tables and their defaults\n"
    for name in ("shell", "network", "hook", "history", "mcp", "ledger"):
        yield from _table(name, getattr(settings.Settings(), name))
        if name == "shell":
            yield "Each directory of `read` and `write` is a mount of its own in the sandbox."
            yield "Paddock counts none of them: what the kernel bears is the limit.\n"
            yield from _SHELL_NOTES
        if name == "network":
            yield from _CREDENTIALS
    yield "### [limits]\n"
    yield "Each can be lowered; the other bounds of Paddock are fixed. None is raised but"
    yield f"`shell_timeout_s`, to {limits.shell_timeout_raised_s:,} at most, for `run_shell` alone:"
    yield f"`run_shell_dev` takes {limits.shell_dev_timeout_s} s at most.\n"
    yield "| key | most |\n| --- | --- |"
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
    yield "`where:` and `hint:`. What a model can act on comes back as the result of its call.\n"
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
    """Who can do something about it. What a model reads of a defect is no work of its own."""
    actors = (
        (errors.InternalToolError, "us: report it"),
        (errors.ToolError, "the model"),
        (errors.UsageError, "whoever types (exit 2)"),
        (errors.ConfigError, "the operator (exit 3)"),
        (errors.IntegrityError, "the auditor (exit 4)"),
        (errors.HostError, "the operator of the host (exit 5)"),
    )
    return next((who for base, who in actors if issubclass(kind, base)), "us: report it (exit 70)")


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
