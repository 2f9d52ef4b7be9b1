"""How many tokens a request may hold, without asking anybody.

For reservations: it should rather be too high. Tokenizers differ; none of those in
use makes more than one token of two bytes of ordinary text, and most make one of four.
"""

from typing import Final

from paddock import limits
from paddock.providers.transcript import request_text
from paddock.values.models import ModelRequest

MESSAGE_TOKENS: Final = 8
"""What a wire adds around each message."""


def estimate_input_tokens(request: ModelRequest) -> int:
    """An upper estimate of the request's tokens, its tools and schemas included."""
    size = len(request_text(request).encode("utf-8", "surrogatepass"))
    framing = MESSAGE_TOKENS * (len(request.messages) + 1)
    return size // limits.model_bytes_per_token + framing
