"""A session for the program that imports Paddock."""

import os
from collections.abc import Callable

from paddock.agent.events import SilentListener, TurnListener
from paddock.agent.sessions import Session
from paddock.assembly.opening import open_given
from paddock.assembly.runtimes import approver_of
from paddock.assembly.sessions import SessionWish, open_session
from paddock.plane.environment import process_environment, process_variables
from paddock.providers.ports import Provider
from paddock.runtime.approvals import ApprovalRequest, Approver


def open_session_at(
    path: str | os.PathLike[str] | None = None,
    *,
    agent: str | None = None,
    model: str | None = None,
    approver: Approver | Callable[[ApprovalRequest], bool] | None = None,
    listener: TurnListener | None = None,
    provider: Provider | None = None,
) -> Session:
    """Open a session on the project at `path`: `handle_turn` answers, `delegate` hands on.

        with paddock.open_session("path/to/project", model="anthropic:MODEL") as session:
            print(session.handle_turn("what is in README.md?").response)
            order = session.delegate("reviewer", "look for mistakes", budget=50_000)

    `path`, `agent`, `model` and `approver` are as in `open` and `paddock run`. `provider` takes the
    place of a model, and is closed with the session; `listener` hears what happens.

    Raises: UsageError, ConfigError, HostError, as `open` does.
    """
    environment = process_environment()
    wish = SessionWish(
        agent=agent,
        model=model,
        approver=approver_of(approver),
        listener=listener or SilentListener(),
        variables=process_variables(),
        provider=provider,
    )
    return open_session(open_given(path, environment), wish)


# Python's own errors name a function so: by what was called, `paddock.open_session`.
open_session_at.__qualname__ = "open_session"
