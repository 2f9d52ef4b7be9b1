"""A request of the inbox whose file does not load: it counts for nothing, and is said to."""

from dataclasses import dataclass
from pathlib import Path

from paddock.errors import ConfigError
from paddock.text.show import quote
from paddock.values.calls import Json


@dataclass(frozen=True, slots=True)
class BrokenRequest:
    """What is known of it: its name, and why it does not load.

    Nobody can tell whether it held a no, so its call is refused until a person moves it away.
    """

    id: str
    file: Path
    why: str
    where: str
    """The place in the file, or the file."""

    def as_error(self) -> ConfigError:
        """For a person: what happened, where, and what to do."""
        return ConfigError(
            f"the request {quote(self.id)} does not load: {self.why}",
            where=self.where,
            hint=f"move it away with paddock approvals refuse {self.id}; then its call is "
            "asked about again",
        )

    def summary(self) -> dict[str, Json]:
        """What a list shows of it, besides those that load."""
        return {"id": self.id, "state": "broken", "file": str(self.file), "error": self.why}
