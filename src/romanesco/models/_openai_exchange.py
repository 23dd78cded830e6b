"""One call to an OpenAI-compatible server: the request goes out, the reply is read as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from romanesco.errors import ConnectionCut
from romanesco.models._openai_errors import Caller, Refusal, error_in_stream
from romanesco.models._openai_events import EventStream, ProtocolError, parse_json
from romanesco.models._openai_http import MAX_REFUSAL, MAX_REPLY, PhaseClock, Pool, payload
from romanesco.models._openai_secrets import reply_without, unmistakable, without
from romanesco.models._openai_stream import ReplyAssembler
from romanesco.models._types import Json, ModelReply, Timing

if TYPE_CHECKING:
    import aiohttp


class Exchange:
    """One call: its clock, what has arrived, and how it is read. Lives as long as the call."""

    def __init__(
        self,
        caller: Caller,
        clock: PhaseClock,
        output_tool: str | None,
        cap: int,
        on_token: Callable[[str], None] | None,
        on_taken: Callable[[], None],
    ) -> None:
        self.clock = clock
        self.start = b""
        self.listening = False
        self.answered = False
        self._caller = caller
        self._secrets = unmistakable(caller.secrets)
        self._assembler = ReplyAssembler(output_tool=output_tool, cap=cap)
        self._on_token = on_token
        self._on_taken = on_taken
        self._done = False
        self._parse = 0.0
        self._total: float | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing of the model's answer is missing, whatever becomes of the connection."""
        return self._done or self._assembler.finished

    def reply(self) -> ModelReply:
        """The reply, once it is whole, without a key that the server echoed."""
        clock = self.clock
        total = clock.elapsed() if self._total is None else self._total
        first = total if clock.first_token is None else clock.first_token
        timing = Timing(queue=clock.queue, first_token=first, total=total, parse=self._parse)
        return reply_without(self._assembler.reply(timing), self._secrets)

    async def run(self, pool: Pool, url: str, body: bytes, stream: bool) -> Refusal | None:
        """Send the request and read the answer. A refusal is returned; otherwise ``reply`` has the rest.

        Raises:
            ModelError: The server said so inside its reply, or broke the reply off.
            ProtocolError: What came is not the protocol.
        """
        session, semaphore = await pool.session()
        waiting = self.clock.elapsed()
        async with semaphore:
            self.clock.queue += self.clock.elapsed() - waiting
            self.clock.connecting()
            async with session.post(
                url, data=payload(body), allow_redirects=False, trace_request_ctx=self.clock
            ) as response:
                self.answered = True
                pool.notice(response.headers)
                try:
                    if response.status != 200:
                        return await self._refusal(response)
                    self._on_taken()
                    if stream and not _is_one_piece(response.content_type):
                        await self._read_stream(response.content)
                        if self._assembler.full:
                            response.close()  # the rest is not read: it may never end
                    else:
                        await self._read_whole(response.content)
                except BaseException:
                    response.close()  # at once: the server shall see that nobody listens any more
                    raise
        return None

    async def _refusal(self, response: aiohttp.ClientResponse) -> Refusal:
        import aiohttp

        headers = {name.lower(): value for name, value in response.headers.items()}
        body = b""
        self.clock.token()
        try:
            while len(body) < MAX_REFUSAL and (chunk := await response.content.readany()):
                body += chunk
        except aiohttp.ClientError:
            pass  # the status alone says enough
        return Refusal(response.status, headers, body[:MAX_REFUSAL])

    async def _read_stream(self, content: aiohttp.StreamReader) -> None:
        events = EventStream()
        size = 0
        while chunk := await content.readany():
            size += len(chunk)
            if size > MAX_REPLY:
                raise ProtocolError(f"the reply is larger than {MAX_REPLY} bytes")
            if self._ended():
                continue
            self.start = self.start or chunk[:400]
            begun = time.perf_counter()
            arrived = any([self._event(data) for data in events.feed(chunk)])
            self._parse += time.perf_counter() - begun
            if self._assembler.full:
                self._done = True
                self._total = self.clock.elapsed()
                break
            if self._ended():
                self._total = self.clock.elapsed()
                self.clock.draining()
            elif arrived:
                self.clock.token()
        rest = events.rest()
        if rest and not self.whole:
            try:
                self._event(rest)
            except ProtocolError:
                pass  # half an event: the stream was cut, which is told below
        self._check_end(size)

    def _ended(self) -> bool:
        return self._done

    def _check_end(self, size: int) -> None:
        if not self.whole:
            if (
                size
                and not self._assembler.seen_choice
                and not self.start.lstrip().startswith((b"data:", b":", b"event:"))
            ):
                raise ProtocolError("no event in the stream")
            raise ConnectionCut(
                f"The stream of {self._caller.name} ended without a finish reason",
                advice="The request may have been paid for; it may be tried again.",
            )
        if not self._assembler.seen_choice:
            raise ProtocolError("no choices in the stream")

    def _event(self, data: bytes) -> bool:
        """Take the data of one event. True if it brought something that was generated."""
        if self._done:
            return False
        if data.strip() == b"[DONE]":
            self._done = True
            return False
        visible = self._feed(parse_json(data, "an event"))
        if visible and self._on_token is not None:
            self.listening = True
            self._on_token(without(visible, self._secrets))
            self.listening = False
        return visible is not None

    def _feed(self, data: Json) -> str | None:
        if isinstance(data, dict) and (data.get("error") or data.get("object") == "error"):
            raise error_in_stream(data, self._caller, begun=self._assembler.begun)
        return self._assembler.feed(data)

    async def _read_whole(self, content: aiohttp.StreamReader) -> None:
        chunks: list[bytes] = []
        size = 0
        while chunk := await content.readany():
            self.clock.token()
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_REPLY:
                raise ProtocolError(f"the reply is larger than {MAX_REPLY} bytes")
        body = b"".join(chunks)
        self.start = body[:400]
        begun = time.perf_counter()
        self._feed(parse_json(body, "the body"))
        self._parse = time.perf_counter() - begun
        if not self._assembler.seen_choice:
            raise ProtocolError("no choices")
        self._done = True
        self._total = self.clock.elapsed()


def _is_one_piece(content_type: str) -> bool:
    return content_type in ("application/json", "text/html", "application/problem+json")
