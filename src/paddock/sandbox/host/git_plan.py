"""What a plan says of a git directory outside of the workspace: whether, and how. Pure.

Its place among the others: `git_outside` finds it with its proof, here it is held against
what is closed, and what git has to be told is put into the command's environment.
"""

from typing import Final

from paddock.sandbox.host.host_facts import GitOutside, HostFacts
from paddock.sandbox.host.places import is_below, is_led_by
from paddock.values.calls import Json

_KEEPS_WORKTREES: Final = ("gc.worktreePruneExpire", "never")
"""The folders of other worktrees are not there for a command: `git gc` would forget them."""
_PART_OF_TREE: Final = (
    *(("core.sparseCheckout", "true"), ("core.sparseCheckoutCone", "false")),
    *(("index.sparse", "false"), ("core.splitIndex", "false")),
)
"""All else is not there, and does not look deleted: see `git.folders`."""


def find_distrust(outside: GitOutside, facts: HostFacts) -> str:
    """Why commands may not have it; empty where they may.

    Threat: a `.git` file, or a link on its way, that opens the plane, another agent's
    workspace, or what another command made to look like a repository.
    """
    common = outside.common
    places = [(place.path, place.what) for place in facts.closed]
    places += [(path, "a place that commands can change") for path in facts.changeable]
    for path, what in places:
        if is_below(common, path) or is_below(path, common):
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
    """As the plan shows it."""
    if outside is None:
        return None
    return {"path": outside.common, "worktree": outside.own, "folder": outside.folder}


def settings_for(outside: GitOutside | None) -> tuple[tuple[str, str], ...]:
    """What of git's configuration holds over the repository's own where it stands outside."""
    if outside is None:
        return ()
    return (_KEEPS_WORKTREES, *(_PART_OF_TREE if outside.folder else ()))


def variables_for(outside: GitOutside | None) -> tuple[tuple[str, str], ...]:
    """What git has to be told to find it."""
    if outside is None or not outside.folder:
        return ()
    # The folders above the workspace are another file system's there.
    return (("GIT_DISCOVERY_ACROSS_FILESYSTEM", "1"),)
