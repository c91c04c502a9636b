"""The client of the Python SDK 1.x. See driver.py for the command line; here also `--sse`: HTTP+SSE, the transport of
2024-11-05."""

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx
import mcp.types as types
from mcp import ClientSession, McpError, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from driver import CheckFailed, Refused, StreamWatch, answer, plain, run, show
from oauth import Account

LATEST = types.LATEST_PROTOCOL_VERSION


class Peer:
    def __init__(self) -> None:
        self.session: ClientSession
        self.stdio = False
        self.stream = StreamWatch()
        self.account = Account(httpx.AsyncClient)
        self.about: dict[str, Any] = {}
        self.changed: anyio.Event | None = None
        self.logged: Callable[[dict[str, Any]], None] = lambda _: None

    async def heard(self, message: Any) -> None:
        note = message.root if isinstance(message, types.ServerNotification) else None
        if isinstance(note, types.ToolListChangedNotification) and self.changed:
            self.changed.set()

    async def log(self, note: types.LoggingMessageNotificationParams) -> None:
        self.logged(note.model_dump(mode="json", include={"level", "logger", "data"}))

    async def pages(self) -> AsyncIterator[list[str]]:
        cursor: str | None = None
        while True:
            page = await self.session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
            yield [tool.name for tool in page.tools]
            cursor = page.nextCursor
            if cursor is None:
                return

    async def call(self, tool: str, args: dict[str, Any], progress: Any = None) -> dict[str, Any]:
        try:
            result = await self.session.call_tool(tool, args, progress_callback=progress)
        except McpError as error:
            raise Refused(error.error.code, error.error.message) from error
        except RuntimeError as error:
            if "structured content" in str(error).lower():
                raise CheckFailed(str(error)) from error
            raise
        return result.model_dump(mode="json", by_alias=True, exclude_none=True)

    async def task(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        tasks = self.session.experimental
        begun = await tasks.call_tool_as_task(tool, args)
        show("task", status=begun.task.status)
        # Asking for the result is waiting for it, and what the task asks is asked meanwhile.
        result = await tasks.get_task_result(begun.task.taskId, types.CallToolResult)
        show("task", status=(await tasks.get_task(begun.task.taskId)).status)
        return plain(result)

    def prompt_reference(self, name: str) -> types.PromptReference:
        return types.PromptReference(type="ref/prompt", name=name)

    @property
    def library(self) -> ClientSession:
        return self.session

    @asynccontextmanager
    async def watching(self, changed: anyio.Event) -> AsyncIterator[None]:
        self.changed = changed
        if not self.stdio:
            await self.stream.opened.wait()
        yield

    async def log_at(self, level: types.LoggingLevel | None, then: Callable[[dict[str, Any]], None]) -> None:
        self.logged = then
        capabilities = self.session.get_server_capabilities()
        if level and capabilities and capabilities.logging is not None:
            await self.session.set_logging_level(level)


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


@asynccontextmanager
async def transport(given: argparse.Namespace, peer: Peer) -> AsyncIterator[tuple[Any, Any, Callable[[], str | None]]]:
    """What to read and to write, and the session's id where there is one."""
    if given.sse:
        async with sse_client(given.url) as (reading, writing):
            yield reading, writing, lambda: None
        return
    if given.stdio:
        command, *args = given.url.split(" ")
        async with stdio_client(StdioServerParameters(command=command, args=args)) as (reading, writing):
            yield reading, writing, lambda: None
        return
    hooks = {"response": [peer.stream.answered]}
    auth = None
    if given.auth == "sdk":
        auth = peer.account.provider(given.url, lambda back: (back["code"], back.get("state")))
    async with (
        httpx.AsyncClient(event_hooks=hooks, timeout=given.timeout / 1000, auth=auth) as http,
        streamable_http_client(given.url, http_client=http) as opened,
    ):
        yield opened


@asynccontextmanager
async def connect(given: argparse.Namespace) -> AsyncIterator[Peer]:
    peer = Peer()
    peer.stdio = given.stdio
    types.LATEST_PROTOCOL_VERSION = given.revision or LATEST
    asked = ASKED if given.asks else {}
    async with (
        transport(given, peer) as (reading, writing, session_id),
        ClientSession(reading, writing, logging_callback=peer.log, message_handler=peer.heard, **asked) as session,
    ):
        peer.session = session
        opened = await session.initialize()
        peer.about = {
            "era": "legacy",
            "protocolVersion": opened.protocolVersion,
            "server": opened.serverInfo.model_dump(mode="json", exclude_none=True),
            "instructions": opened.instructions,
            "session": session_id() is not None,
        }
        yield peer


if __name__ == "__main__":
    run(connect, sse={"action": "store_true"})
