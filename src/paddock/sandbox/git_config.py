"""What a command has of git on the host: of the user's configuration, and of the repository. Pure.

A filter runs in the sandbox where its programs may be read; else it fails: git commits a file
as it is where a filter is missing, and a secret in plain text is then in the history for good.
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
from paddock.values.calls import Json
from paddock.workspace.paths import TEMPORARY_GLOBS

SAFE: Final = (
    # Threat: HEAD, objects and refs among ordinary files make a repository of a folder, whose
    # config names programs that a mere `git status` runs. One that is named is taken.
    ("safe.bareRepository", "explicit"),
    # Whose a repository is was judged when it became the workspace: started by root, a command
    # is another user than its owner, and git would know no repository.
    ("safe.directory", "*"),
)
WELL_KNOWN: Final = ("lfs", "git-crypt")
"""Filters that committing without does damage, whoever names them and wherever."""

_IGNORE: Final = ".config/git/ignore"
_DRAFTS: Final = "".join(f"{each}\n" for each in TEMPORARY_GLOBS)
"""What stands in the workspace while somebody's changes land: `git add -A` is to pass it by."""
_ATTRIBUTES: Final = ".config/git/attributes"
_NO_EDITOR: Final = (
    "sh -c 'echo \"paddock: no editor runs in a sandbox: give the text with an option"
    " (git: -m, or --no-edit), or set GIT_EDITOR=true to keep it as it is\" >&2; exit 1' editor"
)
"""A shell reads it, whoever starts it (git-var(1), GIT_EDITOR)."""
VARIABLES: Final = (
    # The weakest word of all: GIT_EDITOR, `-c core.editor` or VISUAL in a line stand over it.
    ("EDITOR", _NO_EDITOR),
    ("GIT_MERGE_AUTOEDIT", "no"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("PAGER", "cat"),
)
_OVERRIDES: Final = {
    # The key stays outside.
    "commit.gpgsign": "false",
    "tag.gpgsign": "false",
    "tag.forcesignannotated": "false",
    "push.gpgsign": "false",
    # Nobody sits there.
    "core.editor": _NO_EDITOR,
    "sequence.editor": _NO_EDITOR,
    "core.pager": "cat",
    # A watcher would have to outlive the command.
    "core.fsmonitor": "false",
}
"""What a repository's own configuration may say and cannot mean in a sandbox."""

_KEEP_POINTER: Final = (
    'l=$(dd bs=1 count=42 2>/dev/null | tr -d "\\000");'
    ' if test "$l" = "version https://git-lfs.github.com/spec/v1";'
    ' then printf %s "$l"; exec cat; fi; '
)
"""A file that is a pointer already stays one, as with git-lfs (spec.md, "The Pointer")."""

_KEEPS_WORKTREES: Final = ("gc.worktreePruneExpire", "never")
"""The folders of other worktrees are not there for a command: `git gc` would forget them."""
_PART_OF_TREE: Final = (
    *(("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false")),
    *(("index.sparse", "false"), ("core.splitIndex", "false")),
)
"""All else is not there, and does not look deleted: see `git.index`."""


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
            why = "its program is not readable in the sandbox: files that it is for are not added"
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
    """Make it required: in a sandbox more fails than outside."""
    lines = dict(each.lines)
    said = {} if each.is_own else {_key(each.name, kind): line for kind, line in lines.items()}
    if "process" not in lines:
        # Where a filter is required, one for both directions is.
        missing = {"clean", "smudge"} - lines.keys()
        said |= {_key(each.name, kind): "cat" for kind in sorted(missing)}
    return said | {_key(each.name, "required"): "true"}


def _failing(each: GitFilter) -> Mapping[str, str]:
    """Make a filter of the host's fail that cannot run: nothing is added unchanged."""
    # A repository's own line for a process counts before the other two.
    kinds = ("clean", "smudge", "process") if each.is_own else ("clean", "smudge")
    return _all(each.name, {kind: _refuse(each.name) for kind in kinds})


def _missing(name: str) -> Mapping[str, str]:
    """Stand in for a filter that nobody has: checked out as on the host, and not added."""
    before = _KEEP_POINTER if name == "lfs" else ""
    return _all(name, {"clean": before + _refuse(name), "smudge": "cat"})


def _all(name: str, lines: Mapping[str, str]) -> Mapping[str, str]:
    return {_key(name, kind): line for kind, line in (*lines.items(), ("required", "true"))}


def _key(name: str, kind: str) -> str:
    return f"filter.{name}.{kind}"


def _refuse(name: str) -> str:
    return (
        f'echo "paddock: git filter {name} has no program in this sandbox, and a file is not'
        " committed without it; a person can install it, or let commands read it"
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
    # Threat: a value that ends its line adds a line of its own.
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def find_distrust(outside: GitOutside, facts: HostFacts) -> str:
    """Return why commands may not have it; empty where they may.

    Threat: a `.git` file, or a link on its way, that opens the plane, another agent's workspace, or
    what another command made to look like a repository.
    """
    common = outside.common
    places = [(place.path, place.what) for place in facts.closed]
    places += [(path, "a place that commands can change") for path in facts.changeable]
    for path, what in places:
        if overlaps(common, path):
            return f"it lies in, or holds, {what}"
    if is_led_by(outside.links, (facts.workspace, *facts.changeable)):
        return "a link that commands can change leads to it"
    if not outside.folder:
        return ""
    if is_below(facts.home, common.removesuffix("/.git")):
        # Threat: what keeps the dotfiles of a home, keys among them, in its objects.
        return "it is the repository of the home directory"
    if outside.is_sparse:
        return "the repository has a sparse checkout of its own, and the workspace is a part of it"
    return ""


def git_json(outside: GitOutside | None) -> Json:
    if outside is None:
        return None
    return {"path": outside.common, "worktree": outside.own, "folder": outside.folder}


def settings_for(outside: GitOutside | None) -> tuple[tuple[str, str], ...]:
    if outside is None:
        return ()
    return (_KEEPS_WORKTREES, *(_PART_OF_TREE if outside.folder else ()))


def variables_for(outside: GitOutside | None) -> tuple[tuple[str, str], ...]:
    if outside is None or not outside.folder:
        return ()
    # The folders above the workspace are another file system's there.
    return (("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),)
