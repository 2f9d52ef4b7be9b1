"""The built-in policy: path lists, profiles, Paddock's own files.

Its place is `built-in`, line 0. A change here changes decisions, so it must change
`BUILT_IN_VERSION`, and with it every policy digest.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

from paddock.policy.globs import Glob
from paddock.policy.load import PathsTable
from paddock.policy.pathset import PathPattern, compile_pattern
from paddock.policy.rules import Profile, Rule, parse_otherwise, parse_pattern
from paddock.policy.settings import ShellChanges
from paddock.values.decisions import Outcome, PlaneKind

BUILT_IN_VERSION: Final = "7"

NOTHING_ELSE: Final[Mapping[str, Outcome]] = {}

LOCKED: Final = "locked"
STANDARD: Final = "standard"

PROTECTED: Final = (".git/", "*.pem")
GENERATED: Final = ("node_modules/", "package-lock.json", "yarn.lock")
WARNED: Final = (
    "/src/**",
    "/plugins/**/agents/*.md",
    "/plugins/*/commands/*.md",
    "/plugins/*/skills/**",
    "/.claude-plugin/**",
)
SAFE: Final = ("/docs/**", "/agent_sandbox/**", "/tests/**", "/*.md")
_SAMPLES: Final = ("!.env.example", "!.env.sample", "!.env.template", "!.env.dist")
"""Meant to be read and committed: they name variables, without values."""
SECRET: Final = (".env", ".env.*", ".envrc", "*.key", *_SAMPLES)

INSTALLED_FOLDERS: Final = (
    *(".venv", "venv", "site-packages", "dist-packages"),  # Python; certifi has a cacert.pem
    *("__pypackages__", ".tox", ".nox", ".eggs"),  # PDM; output of Python tests and builds
    *("node_modules", "bower_components", ".pnpm-store"),  # packages that ship their own .env
    *(".bundle", "Pods", "Carthage", ".dart_tool", "elm-stuff"),  # Ruby, Swift, Dart, Elm
)
"""Folders that an installer fills with public downloads."""
MIXED_FOLDERS: Final = (
    "vendor",  # Go, PHP and Ruby install there, and people keep a supplier's files in it
    "target",  # Cargo and Maven build there, and Maven copies the project's resources
)
"""Dependency folders that may also hold files of the project itself.

Threat: `src/main/resources/tls.key` is closed, and a build that ran outside the sandbox left a
copy of it in `target/classes`. So commands may write there, but read nothing secret.
"""

CLIENT_TOOLS: Final = (
    *("Agent", "Task", "TaskCreate", "TaskGet", "TaskList", "TaskOutput", "TaskStop"),
    *("TaskUpdate", "Skill", "TodoWrite", "ToolSearch", "Glob", "Grep", "LS", "ListAgents"),
    *("AskUserQuestion", "EnterPlanMode", "ExitPlanMode"),
)

READING_COMMANDS: Final = (
    *("basename", "cat", "cksum", "cmp", "comm", "cut", "date", "df", "diff", "dirname", "du"),
    *("echo", "egrep", "fd", "fgrep", "file", "find", "grep", "head", "id", "jq", "ls", "md5sum"),
    *("nl", "od", "printf", "pwd", "readlink", "realpath", "rg", "sed", "seq", "sha1sum"),
    *("sha256sum", "sort", "stat", "tail", "test", "tr", "tree", "true", "uname", "uniq", "wc"),
    *("which", "whoami", "awk", "column", "paste", "ps", "tac"),
    *("git blame", "git cat-file", "git describe", "git diff", "git grep", "git log"),
    *("git ls-files", "git ls-tree", "git merge-base", "git rev-list", "git rev-parse"),
    *("git shortlog", "git show", "git status"),
)
"""Programs that only read; no wildcard covers their options that write or run something."""

RARELY_CONFINED: Final = (
    *("docker", "docker-compose", "podman", "nerdctl", "kubectl", "helm", "minikube", "kind"),
    *("ssh", "scp", "sftp", "mosh", "gh", "glab", "hub", "op", "vault", "systemctl", "journalctl"),
    *("aws", "gcloud", "gsutil", "az", "doctl", "flyctl", "heroku", "terraform", "pulumi"),
)
"""Programs that need a daemon, a key or the network, which the sandbox does not provide."""

CLIENT_SETTINGS: Final = (
    "**/.claude/settings.json",
    "**/.claude/settings.local.json",
    "**/.codex/config.toml",
    "**/.codex/hooks.json",
    "**/.mcp.json",
)
"""Files in which a coding agent's client finds its hooks and MCP servers, including Paddock's.

Threat: an agent that writes them with one tool disables Paddock for all others, or has the client
start a program outside the fence. A client that is started in a subfolder reads them there.
"""
_CLIENT_FOLDERS: Final = ("**/.claude", "**/.codex")

_PROJECT_FILES: Final = ("paddock.toml", "paddock.json", *CLIENT_SETTINGS)
_BARE_FILES: Final = (
    *_PROJECT_FILES,
    *("/HOT/config/", "/HOT/ledger/", "/HO2/ledger/", "/HO1/ledger/", "/HOT/registries/"),
    *("/HOT/schemas/", "/HOT/installed/", "/HO1/contracts/", "/agents/*/agent.json"),
    *("/objects/", "/plane.json"),
)
OWN_FILES: Final = {PlaneKind.PROJECT: _PROJECT_FILES, PlaneKind.BARE: _BARE_FILES}
"""Files that Paddock reads as configuration or trusts, or that install its hook: agents never
change them."""

# Threat: `ln -s HO2/scratch/mine agents` lets the writer of a scratch directory declare agents,
# and `chmod 777 HOT/registries` lets another user in; neither changes one of these files.
_ABOVE_OWN_FILES: Final = ("/HOT", "/HO2", "/HO1", "/agents", "/agents/*")
_OTHER_DIRECTORIES: Final = (
    *("/HOT/kernel", "/HOT/scripts", "/HOT/tests", "/HO2/kernel", "/HO2/scratch", "/HO2/tests"),
    *("/HO1/kernel", "/HO1/tests"),
)

OWN_STATE: Final = {
    PlaneKind.PROJECT: (),
    PlaneKind.BARE: ("/objects/", "/HOT/ledger/*.d/", "/HO2/ledger/*.d/", "/HO1/ledger/*.d/"),
}
"""Paddock's stored state: absent from listings and searches, and never readable by agents.

Threat: earlier contents of a file are stored there by digest, and the ledger names the digest;
a path that was forbidden later could be read under that name.
"""


def built_in_paths() -> PathsTable:
    return PathsTable(*map(_patterns, (PROTECTED, GENERATED, WARNED, SAFE, SECRET)))


def own_lists(
    kind: PlaneKind, planes_below: tuple[str, ...]
) -> tuple[tuple[PathPattern, ...], ...]:
    """Return own files, own state, parents of own files, own directories, clients' folders."""
    is_bare = kind is PlaneKind.BARE
    above = _patterns(_ABOVE_OWN_FILES if is_bare else ())
    others = _patterns(_OTHER_DIRECTORIES if is_bare else ())
    whole = Glob("/", False, False, True, ())
    states = [pattern.glob for pattern in _patterns(OWN_STATE[PlaneKind.BARE])]
    return (
        (*_patterns(OWN_FILES[kind]), *(_moved_down(whole, plane) for plane in planes_below)),
        (
            *_patterns(OWN_STATE[kind]),
            *(_moved_down(glob, plane) for plane in planes_below for glob in states),
        ),
        above,
        above + others,
        _patterns(_CLIENT_FOLDERS),
    )


@cache
def presets() -> tuple[Profile, ...]:
    client = tuple(f"tool:client:{name}" for name in CLIENT_TOOLS)
    files = ("tool:file:*", "tool:search:*", "tool:output:*", "tool:memory:*")
    otherwise = {
        "tool:shell:*": Outcome.CONFINE,
        "tool:mcp:*": Outcome.ASK,
        "tool:client:*": Outcome.ASK,
        "tool:own:*": Outcome.ASK,
    }
    reading = ("tool:file:view", "tool:search:grep", "tool:search:find", "tool:search:ls")
    governing = ("tool:ledger:*", "tool:package:*", "tool:gate:*", "tool:shell:*")
    drafts = ("tool:output:*", "tool:file:* /agent_sandbox/**", "tool:file:* /outputs/**")
    commands = tuple(f"tool:shell:run {each} *" for each in READING_COMMANDS)
    thrown_away = ShellChanges(commit="none")
    return (
        _preset("open", ("tool:*",)),
        _preset(STANDARD, (*files, *client), otherwise),
        _preset("reviewer", (*reading, *drafts, *client), otherwise, thrown_away),
        _preset("readonly-commands", commands),
        _preset(LOCKED, (*reading, *client)),
        _preset("admin", (*files, *governing, *client)),
    )


def _preset(
    name: str,
    allow: tuple[str, ...],
    otherwise: Mapping[str, Outcome] = NOTHING_ELSE,
    shell: ShellChanges | None = None,
) -> Profile:
    source = f"profiles.{name}"
    return Profile(
        name,
        # Not `compile_rule`: command patterns are parsed only when a command is judged.
        tuple(Rule(parse_pattern(text), Outcome.ALLOW, f"{source}.allow") for text in allow),
        tuple(
            parse_otherwise(text, said, f"{source}.otherwise") for text, said in otherwise.items()
        ),
        shell,
    )


def _moved_down(glob: Glob, directory: str) -> PathPattern:
    names = tuple((name,) for name in directory.split("/"))
    text = f"/{directory}{glob.text}"
    return PathPattern(Glob(text, False, False, glob.directory_only, (*names, *glob.segments)))


@cache
def _patterns(texts: tuple[str, ...]) -> tuple[PathPattern, ...]:
    return tuple(compile_pattern(text) for text in texts)
