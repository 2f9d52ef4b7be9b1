"""What both of OpenAI's APIs say that a reply cost, under other names."""

from paddock.providers.wire_json import as_count, as_map
from paddock.values.calls import Json
from paddock.values.models import Usage


def read_usage(given: Json, read: str, written: str) -> Usage | None:
    """The tokens under the API's names for what was read and written; None where it says none."""
    counts = as_map(given)
    if not counts:
        return None
    details = as_map(counts.get(f"{read}_details"))
    cached = as_count(details.get("cached_tokens"))
    cache_written = as_count(details.get("cache_write_tokens"))
    # These APIs count what the cache gave and took within what was read.
    plain = max(0, as_count(counts.get(read)) - cached - cache_written)
    return Usage(plain, as_count(counts.get(written)), cached, cache_written)
