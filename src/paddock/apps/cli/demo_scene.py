"""What one act of the tour showed."""

from dataclasses import dataclass

from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class Scene:
    """A title, what was done, what came of it in a word, and in detail."""

    title: str
    did: str
    outcome: str
    detail: str

    def as_json(self) -> dict[str, Json]:
        """For `--json`."""
        return {
            "title": self.title,
            "did": self.did,
            "outcome": self.outcome,
            "detail": self.detail,
        }
