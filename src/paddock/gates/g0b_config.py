"""Configuration, which operators edit: it loads, and governance holds its present digest."""

import json
import tomllib
from typing import Final

from paddock import limits
from paddock.errors import ConfigError
from paddock.gates.ground import Ground
from paddock.packages.manifest import PLANE_MARKER
from paddock.packages.transaction import POLICIES, LoadsAlone
from paddock.plane.files import read_file
from paddock.plane.strict_json import parse_object
from paddock.values.digests import digest_of

_ALONE: Final = LoadsAlone()


def config_problem(path: str, ground: Ground) -> str:
    """What is wrong with one file of configuration; empty where nothing is.

    Raises: ConfigError: it is no file that can be read; HostError.
    """
    content = read_file(ground.layout.root / path, limits.admin_config_bytes_max)
    if content is None:
        return "it is missing"
    try:
        _load(path, content)
    except ConfigError as error:
        return f"it does not load: {error.message}"
    except (ValueError, RecursionError) as error:
        return f"it does not load: {error}"
    digest = digest_of(content)
    if ground.recorded_config.get(path) != digest:
        return f"governance does not hold its digest {digest}"
    return ""


def _load(path: str, content: bytes) -> None:
    if path == PLANE_MARKER:
        _ALONE.load_admin(content)
    elif path in POLICIES:
        _ALONE.load_policy(path, content)
    elif path.endswith(".json"):
        if content.lstrip().startswith(b"{"):
            parse_object(content, path)  # refuses a key that stands there twice
        else:
            json.loads(content)
    elif path.endswith(".toml"):
        tomllib.loads(content.decode())
