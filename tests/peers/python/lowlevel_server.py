"""A server on the low-level `Server` of the Python SDK 1.x: schemas by hand, an exception is the tool's error."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import anyio
import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.applications import Starlette
from starlette.routing import Route

from serve import flags, over_http

PAGE = 2
server: Server[Any, Any] = Server("low-level")

TOOLS = [
    types.Tool(
        name="reverse",
        description="Reverse a text",
        inputSchema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    ),
    types.Tool(
        name="fail",
        description="Raises",
        inputSchema={"type": "object", "properties": {"message": {"type": "string"}}},
    ),
    types.Tool(
        name="count_words",
        description="Count words; structured",
        inputSchema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        outputSchema={
            "type": "object",
            "properties": {"words": {"type": "integer"}, "characters": {"type": "integer"}},
            "required": ["words", "characters"],
        },
    ),
    types.Tool(
        name="miscount",
        description="Breaks its own output schema",
        inputSchema={"type": "object"},
        outputSchema={"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]},
    ),
]


@server.list_tools()
async def list_tools(request: types.ListToolsRequest) -> types.ListToolsResult:
    """Two tools a page, so that a client which reads page one only is found out."""
    cursor = request.params.cursor if request.params else None
    start = int(cursor) if cursor else 0
    end = start + PAGE
    following = str(end) if end < len(TOOLS) else None
    return types.ListToolsResult(tools=TOOLS[start:end], nextCursor=following)


@server.call_tool()
async def call_tool(
    name: str, arguments: dict[str, Any]
) -> list[types.TextContent] | dict[str, Any] | types.CallToolResult:
    if name == "reverse":
        return [types.TextContent(type="text", text=arguments["text"][::-1])]
    if name == "fail":
        raise RuntimeError(arguments.get("message", "the tool failed"))
    if name == "count_words":
        text = arguments["text"]
        return {"words": len(text.split()), "characters": len(text)}
    if name == "miscount":
        # A whole result passes the SDK's own check unseen, as it does in servers that build their results by hand.
        return types.CallToolResult(
            content=[types.TextContent(type="text", text="many")], structuredContent={"words": "many"}
        )
    raise ValueError(f"Unknown tool: {name}")


async def over_stdio() -> None:
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def http_app() -> Starlette:
    manager = StreamableHTTPSessionManager(app=server)

    class Endpoint:
        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            await manager.handle_request(scope, receive, send)

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with manager.run():
            yield

    return Starlette(routes=[Route("/mcp", endpoint=Endpoint())], lifespan=lifespan)


if __name__ == "__main__":
    given = flags()
    if given.transport == "stdio":
        anyio.run(over_stdio)
    else:
        anyio.run(over_http, http_app(), given.port)
