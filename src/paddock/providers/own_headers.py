"""What goes to an address that a configuration names: our own headers, and no other.

Threat: the SDKs put into each request what they find in the environment of the process:
the headers of `ANTHROPIC_CUSTOM_HEADERS` and `OPENAI_CUSTOM_HEADERS`, an organization, a
project. People keep tokens of gateways there. They are meant for the usual address, or for
the one that the same environment names, and a plane's configuration can name another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import httpx2

_PLAIN: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "anthropic-version",
        "connection",
        "content-length",
        "content-type",
        "host",
        "transfer-encoding",
        "user-agent",
    }
)
_OF_THE_SDK: Final = "x-stainless-"


@dataclass(frozen=True, slots=True)
class OwnHeaders:
    """A request hook of httpx; `credential` are the headers that carry the key."""

    credential: Mapping[str, str]

    async def __call__(self, request: "httpx2.Request") -> None:
        for name in list(request.headers):
            if name not in _PLAIN and not name.startswith(_OF_THE_SDK):
                del request.headers[name]
        request.headers.update(self.credential)
