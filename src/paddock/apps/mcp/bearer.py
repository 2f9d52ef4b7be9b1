"""Whose request it is over HTTP: the agent whose token it carries."""

import sys
from dataclasses import dataclass, field

import anyio.to_thread
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from starlette.authentication import AuthenticationError
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

from paddock.apps.mcp.served import Agents, Served
from paddock.assembly.project import Project
from paddock.errors import PaddockError, PermissionDeniedError
from paddock.plane.tokens import Bearer, find_bearer, token_digest


@dataclass(frozen=True, slots=True)
class TokenVerifier:
    """Looks a token up at each request: one that was replaced counts no more.

    What stands in the way is said on stderr, once: requests come by the thousand.
    """

    project: Project
    only: str | None
    """The one agent that is served; None for all that have a token."""
    told: set[str] = field(default_factory=set[str])
    """What was said already. Owned by the event loop's thread."""

    async def verify_token(self, token: str) -> AccessToken | None:
        """See `mcp.server.auth.provider.TokenVerifier`.

        Raises: AuthenticationError: no token can be looked up.
        """
        try:
            # Files are read, and nobody else may wait for that.
            bearer = await anyio.to_thread.run_sync(self._find, token)
        except PaddockError as error:
            self._tell(error)
            raise AuthenticationError from error
        for error in bearer.unread:
            self._tell(error)
        agent = bearer.agent
        if agent is None or self.only not in (None, agent):
            return None
        if not self.project.agents.is_known(agent):
            # Its declaration was taken away by hand, and its token was not.
            return None
        # The token's digest keeps sessions of a replaced token from being taken over.
        return AccessToken(token="", client_id=agent, scopes=[], subject=token_digest(token))

    def _find(self, token: str) -> Bearer:
        return find_bearer(self.project.layout, self.project.environment, token)

    def _tell(self, error: PaddockError) -> None:
        said = error.render()
        if said not in self.told:
            self.told.add(said)
            sys.stderr.write(f"paddock mcp: {said}\n")


def not_looked_up(connection: HTTPConnection, error: AuthenticationError) -> Response:
    """The answer where no token can be looked up: nobody is let in, and it may pass."""
    del connection, error
    return PlainTextResponse("no token can be looked up until a person has looked", 503)


@dataclass(frozen=True, slots=True)
class ByToken:
    """The agent of a request is the one whose token it carries."""

    agents: Agents

    def served(self) -> Served:
        """That agent. Raises: PermissionDeniedError where there is no token."""
        token = get_access_token()
        if token is None:
            raise PermissionDeniedError("the request carries no token")
        return self.agents.get(token.client_id)
