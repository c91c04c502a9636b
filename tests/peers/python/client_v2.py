"""The client of the Python SDK 2.x, in either era. See driver.py for the command line; here also
`--era modern|legacy|auto`: a pinned modern version, the legacy handshake, or whatever the probe finds."""

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import session as handshake
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult

from driver import CheckFailed, Refused, StreamWatch, answer, plain, run
from oauth import Account

MODERN = "2026-07-28"
LATEST = handshake.LATEST_HANDSHAKE_VERSION
LOG_LEVEL = "io.modelcontextprotocol/logLevel"


class Peer:
    def __init__(self) -> None:
        self.client: Client
        self.stdio = False
        self.stream = StreamWatch()
        self.account = Account(httpx2.AsyncClient)
        self.about: dict[str, Any] = {}
        self.changed: anyio.Event | None = None
        self.logged: Callable[[dict[str, Any]], None] = lambda _: None
        self.meta: dict[str, Any] | None = None

    @property
    def modern(self) -> bool:
        return self.client.protocol_version == MODERN

    async def heard(self, message: Any) -> None:
        if isinstance(message, types.ToolListChangedNotification) and self.changed:
            self.changed.set()

    async def log(self, note: types.LoggingMessageNotificationParams) -> None:
        self.logged(note.model_dump(mode="json", include={"level", "logger", "data"}))

    async def pages(self) -> AsyncIterator[list[str]]:
        cursor: str | None = None
        while True:
            # What is seen must come from the server, not from the client's cache.
            page = await self.client.list_tools(cursor=cursor, cache_mode="bypass")
            yield [tool.name for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None:
                return

    async def call(self, tool: str, args: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        try:
            result = await self.client.call_tool(tool, args, progress_callback=progress, meta=self.meta)
        except MCPError as error:
            raise Refused(error.error.code, error.error.message) from error
        except RuntimeError as error:
            if "structured content" in str(error).lower():
                raise CheckFailed(str(error)) from error
            raise
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def task(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        raise NotImplementedError("this SDK has no tasks")

    def prompt_reference(self, name: str) -> types.PromptReference:
        return types.PromptReference(type="ref/prompt", name=name)

    @property
    def library(self) -> Client:
        return self.client

    @asynccontextmanager
    async def watching(self, changed: anyio.Event) -> AsyncIterator[None]:
        if not self.modern:
            self.changed = changed
            if not self.stdio:
                await self.stream.opened.wait()
            yield
            return
        async with self.client.listen(tools_list_changed=True) as stream, anyio.create_task_group() as tasks:

            async def first() -> None:
                async for _ in stream:
                    changed.set()

            tasks.start_soon(first)
            yield
            tasks.cancel_scope.cancel()

    async def log_at(self, level: types.LoggingLevel | None, then: Callable[[dict[str, Any]], None]) -> None:
        self.logged = then
        if level is None:
            return
        if self.modern:
            self.meta = {LOG_LEVEL: level}
        elif self.client.server_capabilities.logging is not None:
            await self.client.set_logging_level(level)


async def elicit(_: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
    return types.ElicitResult(**answer("elicitation/create", plain(params)))


async def sample(
    _: Any, params: types.CreateMessageRequestParams
) -> types.CreateMessageResult | types.CreateMessageResultWithTools:
    reply = answer("sampling/createMessage", plain(params))
    kind = types.CreateMessageResultWithTools if params.tools else types.CreateMessageResult
    return kind.model_validate(reply)


async def roots(_: Any) -> types.ListRootsResult:
    return types.ListRootsResult(**answer("roots/list", {}))


ASKED: dict[str, Any] = {
    "elicitation_callback": elicit,
    "sampling_callback": sample,
    "sampling_capabilities": types.SamplingCapability(tools=types.SamplingToolsCapability()),
    "list_roots_callback": roots,
}


def stdio(given: argparse.Namespace) -> Any:
    command, *args = given.url.split(" ")
    return stdio_client(StdioServerParameters(command=command, args=args))


async def over_http(given: argparse.Namespace, peer: Peer, opened: AsyncExitStack) -> Any:
    hooks = {"response": [peer.stream.answered]}
    auth = peer.account.provider(given.url, AuthorizationCodeResult.model_validate) if given.auth == "sdk" else None
    http = httpx2.AsyncClient(event_hooks=hooks, timeout=given.timeout / 1000, auth=auth)
    return streamable_http_client(given.url, http_client=await opened.enter_async_context(http))


@asynccontextmanager
async def connect(given: argparse.Namespace) -> AsyncIterator[Peer]:
    peer = Peer()
    mode = MODERN if given.era == "modern" else given.era
    peer.stdio = given.stdio
    handshake.LATEST_HANDSHAKE_VERSION = given.revision or LATEST
    async with AsyncExitStack() as opened:
        transport = stdio(given) if given.stdio else await over_http(given, peer, opened)
        client = await opened.enter_async_context(
            Client(
                transport,
                mode=mode,
                logging_callback=peer.log,
                message_handler=peer.heard,
                **(ASKED if given.asks else {}),
            )
        )
        peer.client = client
        server = client.server_info
        peer.about = {
            "era": "modern" if peer.modern else "legacy",
            "protocolVersion": client.protocol_version,
            "server": server and server.model_dump(mode="json", exclude_none=True),
            "instructions": client.instructions,
        }
        yield peer


if __name__ == "__main__":
    run(connect, era={"choices": ["modern", "legacy", "auto"], "default": "auto"})
