"""Select the host's git configuration and repository that a command gets. Pure.

A filter runs in the sandbox if its programs are readable; otherwise it fails. Git would commit a
file unfiltered where a filter is missing, and a plaintext secret would stay in the history.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from paddock.sandbox.host.host_facts import (
    GitFacts,
    GitFilter,
    GitOutside,
    HostFacts,
    LeftOut,
    is_below,
    is_covered,
    is_led_by,
    overlaps,
)
from paddock.sandbox.values import GitConfig
from paddock.workspace.paths import TEMPORARY_GLOBS

SAFE: Final = (
    # Threat: HEAD, objects and refs among ordinary files turn a folder into a bare repository,
    # whose config names programs that even `git status` runs. Git uses one only if named.
    ("safe.bareRepository", "explicit"),
    # The repository's owner was checked when it became the workspace. When started by root, a
    # command is a different user than the owner, and git would refuse the repository.
    ("safe.directory", "*"),
)
WELL_KNOWN: Final = ("lfs", "git-crypt")
"""Filters without which a commit does damage, wherever they are named."""

_IGNORE: Final = ".config/git/ignore"
_DRAFTS: Final = "".join(f"{each}\n" for each in TEMPORARY_GLOBS)
"""Temporary files in the workspace while changes land: `git add -A` has to skip them."""
_ATTRIBUTES: Final = ".config/git/attributes"
_NO_EDITOR: Final = (
    "sh -c 'echo \"paddock: no editor runs in a sandbox: pass the text with an option"
    " (git: -m, or --no-edit), or set GIT_EDITOR=true to keep it as it is\" >&2; exit 1' editor"
)
"""Always interpreted by a shell (git-var(1), GIT_EDITOR)."""
VARIABLES: Final = (
    # The lowest precedence: GIT_EDITOR, `-c core.editor` or VISUAL in a line override it.
    ("EDITOR", _NO_EDITOR),
    ("GIT_MERGE_AUTOEDIT", "no"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PAGER", "cat"),
)
_OVERRIDES: Final = {
    # The signing key stays outside.
    "commit.gpgsign": "false",
    "tag.gpgsign": "false",
    "tag.forcesignannotated": "false",
    "push.gpgsign": "false",
    # No user is there to edit or page.
    "core.editor": _NO_EDITOR,
    "sequence.editor": _NO_EDITOR,
    "core.pager": "cat",
    # A watcher would have to outlive the command.
    "core.fsmonitor": "false",
}
"""Settings of a repository's own configuration that cannot work in a sandbox."""

_KEEP_POINTER: Final = (
    'l=$(dd bs=1 count=42 2>/dev/null | tr -d "\\000");'
    ' if test "$l" = "version https://git-lfs.github.com/spec/v1";'
    ' then printf %s "$l"; exec cat; fi; '
)
"""Pass a file through that is already a pointer, as git-lfs does (spec.md, "The Pointer")."""

_KEEPS_WORKTREES: Final = ("gc.worktreePruneExpire", "never")
"""A command does not see the folders of other worktrees: `git gc` would prune them."""
_PART_OF_TREE: Final = (
    *(("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false")),
    *(("index.sparse", "false"), ("core.splitIndex", "false")),
)
"""All other files are absent, but do not look deleted: see `git.index`."""


def take_git(
    facts: GitFacts, reach: Iterable[str], outside: GitOutside | None = None
) -> tuple[GitConfig, tuple[LeftOut, ...]]:
    places = tuple(reach)
    values = list(facts.values)
    forced = dict(settings_for(outside))
    forced |= {key: _OVERRIDES[key] for key in facts.own_keys if key in _OVERRIDES}
    left_out = list(facts.left_out)
    for each in facts.filters:
        are_there = (any(is_covered(path, places) for path in paths) for paths in each.programs)
        works = bool(each.lines) and all(are_there)
        lines = _working(each) if works else _failing(each)
        if each.is_own:
            forced |= lines
        else:
            values += lines.items()
        if not works:
            why = "its program is not readable in the sandbox: files that it filters are not added"
            left_out.append(LeftOut(f"git filter {each.name}", why))
    known = {each.name for each in facts.filters if each.lines}
    for name in dict.fromkeys((*WELL_KNOWN, *facts.filter_names)):
        values += [] if name in known else _missing(name).items()
    config = GitConfig(
        values=tuple(values),
        ignored=_DRAFTS + facts.ignored,
        attributes=facts.attributes,
        variables=(
            *(*VARIABLES, *facts.variables, *variables_for(outside)),
            *_as_variables(forced),
        ),
        is_signing=facts.is_signing,
    )
    return config, tuple(left_out)


def private_files(config: GitConfig) -> tuple[tuple[str, bytes], ...]:
    rows = [*SAFE, *config.values]
    files: list[tuple[str, str]] = []
    for key, name, text in (
        ("core.excludesFile", _IGNORE, config.ignored),
        ("core.attributesFile", _ATTRIBUTES, config.attributes),
    ):
        if text:
            rows.append((key, f"~/{name}"))
            files.append((name, text))
    files.append((".gitconfig", "".join(_entry(key, value) for key, value in rows)))
    return tuple((name, text.encode("utf-8", "surrogateescape")) for name, text in files)


def _working(each: GitFilter) -> Mapping[str, str]:
    """Make the filter required: more can fail in a sandbox than outside."""
    lines = dict(each.lines)
    rows = {} if each.is_own else {_key(each.name, kind): line for kind, line in lines.items()}
    if "process" not in lines:
        # A required filter needs both directions.
        missing = {"clean", "smudge"} - lines.keys()
        rows |= {_key(each.name, kind): "cat" for kind in sorted(missing)}
    return rows | {_key(each.name, "required"): "true"}


def _failing(each: GitFilter) -> Mapping[str, str]:
    """Make a host's filter that cannot run fail: no file is added unfiltered."""
    # In a repository's own configuration, `process` takes precedence over the other two.
    kinds = ("clean", "smudge", "process") if each.is_own else ("clean", "smudge")
    return _all(each.name, {kind: _refuse(each.name) for kind in kinds})


def _missing(name: str) -> Mapping[str, str]:
    """Replace a filter that is not configured: check out as on the host, but refuse to add."""
    before = _KEEP_POINTER if name == "lfs" else ""
    return _all(name, {"clean": before + _refuse(name), "smudge": "cat"})


def _all(name: str, lines: Mapping[str, str]) -> Mapping[str, str]:
    return {_key(name, kind): line for kind, line in (*lines.items(), ("required", "true"))}


def _key(name: str, kind: str) -> str:
    return f"filter.{name}.{kind}"


def _refuse(name: str) -> str:
    return (
        f'echo "paddock: git filter {name} has no program in this sandbox, and a file is not'
        " committed without it; the user can install it, or make it readable for commands"
        ' ([shell] read in paddock.toml)" >&2; exit 1'
    )


def _as_variables(forced: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    if not forced:
        return ()
    rows = [("GIT_CONFIG_COUNT", str(len(forced)))]
    for number, (key, value) in enumerate(forced.items()):
        rows += [(f"GIT_CONFIG_KEY_{number}", key), (f"GIT_CONFIG_VALUE_{number}", value)]
    return tuple(rows)


def _entry(key: str, value: str) -> str:
    section, _, name = key.rpartition(".")
    section, _, below = section.partition(".")
    heading = f'{section} "{_escaped(below)}"' if below else section
    return f'[{heading}]\n\t{name} = "{_escaped(value)}"\n'


def _escaped(text: str) -> str:
    # Threat: a value with a line break adds another setting.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def find_distrust(outside: GitOutside, facts: HostFacts) -> str:
    """Return why commands may not use the repository; empty where they may.

    Threat: a `.git` file, or a symlink on its path, opens the plane, another agent's workspace, or
    a directory that another command made look like a repository.
    """
    common = outside.common
    places = [(place.path, place.what) for place in facts.closed]
    places += [(path, "a place that commands can change") for path in facts.changeable]
    for path, what in places:
        if overlaps(common, path):
            return f"it overlaps {what}"
    if is_led_by(outside.links, (facts.workspace, *facts.changeable)):
        return "a link that commands can change leads to it"
    if not outside.folder:
        return ""
    if is_below(facts.home, common.removesuffix("/.git")):
        # Threat: a dotfiles repository has the home's files, keys among them, in its objects.
        return "it is the repository of the home directory"
    if outside.is_sparse:
        return "the repository has a sparse checkout, and the workspace is a part of it"
    return ""


def settings_for(outside: GitOutside | None) -> tuple[tuple[str, str], ...]:
    if outside is None:
        return ()
    return (_KEEPS_WORKTREES, *(_PART_OF_TREE if outside.folder else ()))


def variables_for(outside: GitOutside | None) -> tuple[tuple[str, str], ...]:
    if outside is None or not outside.folder:
        return ()
    # In the sandbox the folders above the workspace are on another file system.
    return (("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),)
