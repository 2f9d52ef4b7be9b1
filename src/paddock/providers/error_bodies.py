"""What is read of an error's body. Loaded with an SDK: httpx takes its time."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import httpx2

from paddock import limits


async def cut_error(response: httpx2.Response) -> None:
    """A response hook of httpx: an error's body ends at `limits.model_error_bytes_max`.

    Threat: the SDKs read the whole body of an error before they raise it, and a server, or
    whoever stands in its place, would fill the memory; packed, by very few bytes.
    """
    if response.is_success:
        return  # Its reader counts.
    whole = httpx2.Response(
        response.status_code,
        headers=response.headers,
        stream=response.stream,
        request=response.request,
    )
    response.headers.pop("content-encoding", None)
    response.stream = _Beginning(whole)


class _Beginning(httpx2.AsyncByteStream):
    def __init__(self, response: httpx2.Response) -> None:
        self._response = response

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        left = limits.model_error_bytes_max
        async with aclosing(self._response.aiter_bytes()) as chunks:
            async for chunk in chunks:
                yield chunk[:left]
                left -= len(chunk)
                if left <= 0:
                    return

    async def aclose(self) -> None:
        await self._response.aclose()
