"""What a package and its files may be called. Pure.

One file has one name: what two file systems, two programs or two readers could take for
different files, or for one, is refused before anything is compared with it.
"""

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from paddock import limits
from paddock.policy.globs import fold
from paddock.text.show import quote, show_name
from paddock.workspace.temporary import is_temporary_name

FILE_MODE: Final = 0o644
PROGRAM_MODE: Final = 0o755
"""A file of a package has one of these two."""
MANIFEST: Final = "manifest.json"
"""The member of an archive, and the file of an installed package, that declares the rest."""
RECEIPT: Final = "receipt.json"
"""What an install leaves beside the manifest, last of all."""
INSTALLED: Final = "HOT/installed"
APPROVALS: Final = "HOT/registries/approvals"
KEYS: Final = "HOT/registries/keys"

PLANE_MARKER: Final = "HOT/config/admin_config.json"
"""The file by which a directory is a bare plane."""

TIERS_OF: Final = {
    "hot": ("HOT", "HO2", "HO1"),
    "ho2": ("HO2", "HO1"),
    "ho1": ("HO1",),
}
"""Where the files of a package of this tier may stand: in it, and below it."""

OWN_PLACES: Final = (
    INSTALLED,
    "HOT/ledger",
    APPROVALS,
    KEYS,
    "HO2/ledger",
    "HO2/scratch",
    "HO1/ledger",
)
"""The plane's own: no package brings anything here."""

_PACKAGE_ID: Final = re.compile(r"PKG-[A-Z0-9-]+", re.ASCII)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)


def is_package_id(text: str) -> bool:
    """Whether a package can be called so: `PKG-` and upper case letters, digits, hyphens."""
    return len(text) <= limits.package_id_chars_max and _PACKAGE_ID.fullmatch(text) is not None


def is_digest(text: str) -> bool:
    """Whether it is `sha256:` and 64 lower-case hexadecimal digits, and nothing more."""
    return _DIGEST.fullmatch(text) is not None


def manifest_path(package_id: str) -> str:
    """Where the manifest of an installed package stands, relative to the plane."""
    return f"{INSTALLED}/{package_id}/{MANIFEST}"


def receipt_path(package_id: str) -> str:
    """Where its receipt stands."""
    return f"{INSTALLED}/{package_id}/{RECEIPT}"


def approval_file(wo_id: str) -> str:
    """Where an approval of a package stands, relative to the plane."""
    return f"{APPROVALS}/{wo_id}.json"


def key_file(key_id: str) -> str:
    """Where an operator's public key stands."""
    return f"{KEYS}/{key_id}.json"


def path_problem(path: str) -> str:
    """Why a file of a package cannot be called so; empty where it can.

    Threat: a name that leads out (`..`, `/etc/x`), that hides what it is (control,
    direction and zero-width characters), or that another system reads otherwise (a
    backslash, an `é` of two characters).
    """
    if not path:
        return "the name is empty"
    if show_name(path) != path:
        return "the name holds control, direction or zero-width characters"
    # Threat: a manifest packs 40,000 directories to nothing, and whoever looks at each one on
    # the way pays for them.
    if not _fits(path.encode()):
        return "the name has no room in an archive: 100 bytes at most, or 155, a slash and 100"
    if path.startswith("/"):
        return "the name is absolute"
    if "\\" in path:
        return "the name holds a backslash"
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts):
        return "the name has a component that is empty, `.` or `..`"
    if fold_unicode(path) != path:
        return "the name is not in Unicode's composed form (NFC)"
    if any(is_temporary_name(part) for part in parts):
        return "the name is kept for Paddock's temporary files"
    if fold(path) == MANIFEST:
        return "the name is the manifest's own"
    return ""


def _fits(name: bytes) -> bool:
    """Whether a ustar header has room for it: its name, or its prefix and its name."""
    cut = name.find(b"/", max(len(name) - 101, 0))
    return len(name) <= 100 or (0 < cut <= 155 and cut + 1 < len(name))


def fold_unicode(text: str) -> str:
    """`text` in Unicode's composed form."""
    import unicodedata  # noqa: PLC0415 - names are nearly always ASCII

    return text if text.isascii() else unicodedata.normalize("NFC", text)


def place_problem(path: str, plane_id: str) -> str:
    """Why a package of this tier may not bring a file to that place; empty where it may.

    Threat: a package that brings a key or an approval would vouch for itself, one that
    brings a receipt would have been installed without ever being looked at, and one of a
    lower tier would govern the tier above.
    """
    folded = fold(path)
    for place in OWN_PLACES:
        if _is_at_or_below(folded, fold(place)):
            return f"{place} is the plane's own"
    tiers = TIERS_OF[plane_id]
    if not any(path.startswith(f"{tier}/") for tier in tiers):
        return f"a package of {plane_id} brings files to {', '.join(tiers)} only"
    return ""


def _is_at_or_below(path: str, place: str) -> bool:
    return path == place or path.startswith(f"{place}/")


def find_collision(paths: Iterable[str]) -> tuple[str, str] | None:
    """Two names that some file system takes for one, or of which one is the other's directory.

    Compared without regard to case and Unicode form, every directory on the way included:
    `Kernel/a` and `kernel/b` would lie in one directory or in two.
    """
    # Sorted by their components, a file stands right before what would lie in it, and what
    # shares a directory stands together: it is enough to compare neighbours.
    rows = sorted((fold(path).replace("/", "\0"), at, path) for at, path in enumerate(paths))
    for one, two in pairwise(rows):
        (_, known), (_, path) = sorted((one[1:], two[1:]))
        found = _collision_of(known, path)
        if found is not None:
            return found
    return None


def _collision_of(known: str, path: str) -> tuple[str, str] | None:
    one, two = known.split("/"), path.split("/")
    depth = 0
    for mine, other in zip(one, two, strict=False):
        if mine != other and fold(mine) != fold(other):
            return None
        depth += 1
        if depth < min(len(one), len(two)) and mine != other:
            return "/".join(one[:depth]), path
    if len(one) == len(two):
        return known, path
    shorter, longer = sorted((one, two), key=len)
    return "/".join(shorter), "/".join(longer[:depth]) + "/"


def shown_collision(found: tuple[str, str]) -> str:
    """What is wrong with two such names."""
    return f"{quote(found[0])} and {quote(found[1])} are one name on some file systems"
