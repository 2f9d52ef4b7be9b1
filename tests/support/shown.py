"""What an agent is shown, for tests that hand ports to tools without a runtime."""

from msgspec import Struct

from paddock.values.decisions import Action


class Shows(Struct, frozen=True, dict=True):
    """Everything but the `hidden` paths; what begins with `closed` may not be viewed."""

    hidden: frozenset[str] = frozenset()
    closed: tuple[str, ...] = ()

    def is_shown(self, relative: str) -> bool:
        return relative not in self.hidden

    def may_view(self, relative: str) -> bool:
        return not relative.startswith(self.closed)

    def allows(self, action: Action) -> bool:
        return not action.target.startswith(self.closed)
