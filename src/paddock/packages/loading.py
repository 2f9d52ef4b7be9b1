"""What is read whenever a plane is opened: one that does not load locks the plane.

No command works then, and none that takes the package out again. So it is loaded before the
package is installed, as whoever opens the plane would.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Protocol

from paddock import limits
from paddock.errors import ConfigError
from paddock.packages.names import PLANE_MARKER
from paddock.packages.refusals import Failure
from paddock.plane.admin_config import parse_admin_config
from paddock.plane.contracts import is_contract
from paddock.policy.engine import PolicySource, load_policy
from paddock.values.planes import PlaneKind

POLICIES: Final = ("HOT/config/policy.toml", "HOT/config/policy.json")
"""A plane has one of them, or none."""
_CONTRACTS: Final = "HO1/contracts/"


class Loading(Protocol):
    """Loads configuration as whoever opens the plane does."""

    def load_admin(self, content: bytes) -> None:
        """The admin's configuration. Raises: ConfigError: it does not load."""
        ...

    def load_policy(self, name: str, content: bytes) -> None:
        """The plane's policy, of that file name. Raises: ConfigError: it does not load."""
        ...


class LoadsAlone:
    """Loads each by itself, whatever the user's own configuration and the known tools are."""

    def load_admin(self, content: bytes) -> None:
        """See `Loading`."""
        parse_admin_config(content, Path(PLANE_MARKER))

    def load_policy(self, name: str, content: bytes) -> None:
        """See `Loading`."""
        load_policy(PolicySource(name, content, True), None, PlaneKind.BARE)


def find_loading_problems(
    put: Mapping[str, bytes], standing: frozenset[str], loading: Loading
) -> Iterator[Failure]:
    """What would keep a plane from being opened.

    `put` is what a change writes, by path; `standing` are the policies that are there afterwards.
    """
    for path, content in put.items():
        try:
            _load(path, content, loading)
        except ConfigError as error:
            yield Failure(path, f"it does not load: {error.message}")
    if len(standing) > 1 and not standing.isdisjoint(put):
        yield Failure(POLICIES[1], "the plane would have two policies")


def _load(path: str, content: bytes, loading: Loading) -> None:
    if path == PLANE_MARKER:
        _require_size(content, limits.admin_config_bytes_max)
        loading.load_admin(content)
    elif path in POLICIES:
        _require_size(content, limits.policy_bytes_max)
        loading.load_policy(path.rpartition("/")[2], content)
    elif path.startswith(_CONTRACTS):
        name, below, _ = path.removeprefix(_CONTRACTS).partition("/")
        if not is_contract(name):
            return
        if below:
            raise ConfigError("a directory stands in the place of a prompt contract")
        _require_size(content, limits.prompt_contract_bytes_max)


def _require_size(content: bytes, bytes_max: int) -> None:
    if len(content) > bytes_max:
        raise ConfigError(f"it has {len(content)} bytes, over {bytes_max}")
