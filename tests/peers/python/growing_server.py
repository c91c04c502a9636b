"""A server that announces a new tool in the session of the call that added it, as FastMCP 2 does. All sessions have the tool."""

import anyio
from mcp.server.fastmcp import Context, FastMCP
from mcp.server.lowlevel import NotificationOptions

from serve import flags, over_http

mcp = FastMCP("growing", log_level="WARNING")

# FastMCP of SDK 1.x declares no changes of its lists; FastMCP 2 does.
options = mcp._mcp_server.create_initialization_options
mcp._mcp_server.create_initialization_options = lambda: options(NotificationOptions(tools_changed=True))  # type: ignore[method-assign]


@mcp.tool()
async def grow(name: str, ctx: Context) -> str:
    """Add a tool"""
    mcp.add_tool(lambda: name, name=name, description="A new tool")
    await ctx.session.send_tool_list_changed()
    return f"{name} is there"


if __name__ == "__main__":
    given = flags()
    anyio.run(over_http, mcp.streamable_http_app(), given.port)
