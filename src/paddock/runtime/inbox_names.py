"""The names of the inbox's files: the id of a request, and the beginning of its digest. Pure."""

import re
from typing import Final

from paddock.runtime.approvals import ApprovalRequest
from paddock.runtime.parked import Parked

_NAME: Final = re.compile(r"(APR-[0-9a-f]{16})\.([0-9a-f]{32})\.json")
_ID: Final = re.compile(r"APR-[0-9a-f]{4,16}")


def name_of(parked: Parked) -> str:
    return f"{parked.id}{ending_for(parked.request)}"


def ending_for(request: ApprovalRequest) -> str:
    """How the names end of files that may be for exactly this: the whole digest is in the file."""
    return f".{request.digest.removeprefix('sha256:')[:32]}.json"


def is_name(name: str) -> bool:
    """Whether a file of this name holds a request."""
    return _NAME.fullmatch(name) is not None


def is_id(text: str) -> bool:
    """Whether this is an id, or as much of one as a person may write."""
    return _ID.fullmatch(text) is not None


def id_in(name: str) -> str:
    return name.partition(".")[0]
