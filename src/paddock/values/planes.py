"""What kinds of plane there are."""

from enum import StrEnum


class PlaneKind(StrEnum):
    """What is worked on, and what the paths of an agent are relative to.

    `PROJECT`: a project, whose plane lies elsewhere, or any other workspace that is no plane,
    also `agents/NAME/workspace/` of a bare one. `BARE`: the root of a bare plane itself.
    """

    PROJECT = "project"
    BARE = "bare"
