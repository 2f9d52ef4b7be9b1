"""Where a path leads, as the kernel would walk it, and whether that is in the project.

Both the name as asked and the place where links lead are judged. Where `..` stands behind a link
there are two places: the kernel goes up from where the link leads, a client and `cd` from where
it stands. A look, not a hold: a file swapped after the answer is the client's to open.
"""

import posix

from paddock.apps.hook.lean.asked import ShapeError

_LINK = 0o120000
_KIND = 0o170000
HOPS_MAX = 40
PATH_CHARS_MAX = 4096
STOOD_MAX = 16
"""Directories that a list of `cd` may lead to, as links and `..` are read."""


class Scene:
    """The ground of one project's calls; `root` is real, `given_root` as the client names it."""

    def __init__(
        self, root: str, given_root: str, home: str, state: "tuple[str, ...]", today: str
    ) -> None:
        self.root = root
        self.given_root = given_root
        self.home = home
        self.state = state
        self.today = today
        """YYYY-MM-DD where the user is."""


class LeanPlace:
    """`names` in the project, as asked and as links lead, none where it leads out; `real` path."""

    def __init__(self, real: str, names: "tuple[str, ...]") -> None:
        self.real = real
        self.names = names


def find_place(text: str, base: str, scene: Scene) -> LeanPlace:
    """Return the place as the kernel walks. Raises: ShapeError: empty, NUL, too long, `~name`."""
    return _place(absolute(text, base, scene.home), scene)


def find_places(text: str, base: str, scene: Scene) -> "tuple[LeanPlace, ...]":
    """Return every place that `text` may come to: the kernel's, and where `..` is folded by text.

    Threat: `link/../../../x`, which stays inside for one reader and leaves for the other.
    """
    path = absolute(text, base, scene.home)
    place = _place(path, scene)
    if "/.." not in path:
        return (place,)
    by_text = _place(folded(path), scene)
    return (place,) if by_text.real == place.real else (place, by_text)


def find_stands(base: str, directories: "tuple[str, ...]", home: str) -> "tuple[str, ...]":
    """Return where a shell may stand after `cd` to these directories, in order. Raises: ShapeError.

    `cd` folds `..` by text, and with `-P`, or where that leads nowhere, goes as the kernel.
    """
    stands = (base,)
    for directory in directories:
        paths = [absolute(directory, stand, home) for stand in stands]
        both = (each for path in paths for each in (folded(path), real_path(path)))
        stands = tuple(dict.fromkeys(both))
        if len(stands) > STOOD_MAX:
            raise ShapeError(f"the line may lead to more than {STOOD_MAX} directories")
    return stands


def _place(path: str, scene: Scene) -> LeanPlace:
    real = real_path(path, scene.root)
    inside = relative(real, scene.root)
    if not inside:
        inside = _relative_by_identity(real, scene.root)
        if not inside:
            return LeanPlace(real, ())
    by_name = folded(path)
    asked = relative(by_name, scene.root) or relative(by_name, scene.given_root)
    if asked and asked != inside:
        return LeanPlace(real, (asked, inside))
    return LeanPlace(real, (inside,))


def absolute(text: str, base: str, home: str) -> str:
    if not text or "\0" in text or len(text) > PATH_CHARS_MAX:
        raise ShapeError("a path is empty, too long or holds a NUL")
    if text[0] == "/":
        return text
    if text[0] == "~":
        if text == "~" or text.startswith("~/"):
            return home + text[1:]
        raise ShapeError("a path begins with ~name, somebody's home")
    return f"{base}/{text}"


def folded(path: str) -> str:
    if "//" not in path and "/." not in path and path[-1] != "/":
        return path
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if parts:
                parts.pop()
        elif part and part != ".":
            parts.append(part)
    return "/" + "/".join(parts)


def relative(path: str, root: str) -> str:
    """Return the path below `root`, `.` for the root itself, nothing where it is not inside."""
    if path == root:
        return "."
    # Threat: a sibling whose name begins alike (/root-evil beside /root).
    base = root if root == "/" else root + "/"
    return path[len(base) :] if path.startswith(base) else ""


def real_path(path: str, known: str = "/") -> str:
    """Follow links, behind something missing the text; `known` is real. Raises: ShapeError."""
    real, rest = "", path
    if known != "/" and path.startswith(known + "/"):
        real, rest = known, path[len(known) :]
    pending = rest.split("/")
    pending.reverse()
    hops = 0
    while pending:
        part = pending.pop()
        if not part or part == ".":
            continue
        if part == "..":
            real = real.rpartition("/")[0]
            continue
        here = f"{real}/{part}"
        try:
            is_link = posix.lstat(here).st_mode & _KIND == _LINK
            target = posix.readlink(here) if is_link else ""
        except (OSError, ValueError):
            # Missing, or nothing that we could look at: then the client cannot either.
            real = here
            continue
        if not is_link:
            real = here
            continue
        hops += 1
        if hops > HOPS_MAX:
            raise ShapeError(f"a path passes more than {HOPS_MAX} links")
        if target.startswith("/"):
            real = ""
        parts = target.split("/")
        parts.reverse()
        pending += parts
    return real or "/"


def _relative_by_identity(real: str, root: str) -> str:
    """As `relative`, by identity: a bind mount or letter case must not hide the root."""
    wanted = _identity(root)
    if wanted is None:
        return ""
    rest: list[str] = []
    here = real
    while here:
        if _identity(here) == wanted:
            rest.reverse()
            return "/".join(rest) or "."
        here, _, name = here.rpartition("/")
        rest.append(name)
    return ""


def _identity(path: str) -> "tuple[int, int] | None":
    try:
        status = posix.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino
