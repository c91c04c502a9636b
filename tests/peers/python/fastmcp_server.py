"""A server as most people write one: FastMCP of the Python SDK 1.x, functions with type hints."""

import anyio
from mcp.server.fastmcp import Context, FastMCP
from pydantic import BaseModel, Field

from serve import flags, over_http

mcp = FastMCP(
    "weather-and-files", instructions="Adds, reads the weather, processes files.", log_level="WARNING"
)


class Weather(BaseModel):
    """Weather of one city."""

    city: str
    temperature: float = Field(description="Degrees Celsius")
    conditions: list[str] = Field(default_factory=list)


@mcp.tool()
def add(a: int, b: int) -> int:
    """Add two numbers"""
    return a + b


@mcp.tool()
def get_weather(city: str, unit: str = "celsius") -> Weather:
    """Get the weather of a city"""
    temperature = 21.5 if unit == "celsius" else 70.7
    return Weather(city=city, temperature=temperature, conditions=["sunny", "light wind"])


@mcp.tool()
async def process_files(files: list[str], ctx: Context) -> str:
    """Process files one after the other, telling how far it is"""
    for done, name in enumerate(files, start=1):
        await ctx.info(f"Processing {name}")
        await ctx.report_progress(done, len(files), f"{name} is done")
    return f"Processed {len(files)} files"


@mcp.tool()
async def wait_for_ever(ctx: Context) -> str:
    """Work until somebody cancels"""
    await ctx.info("started")
    await anyio.sleep_forever()
    return "unreachable"


@mcp.tool()
def divide(a: float, b: float) -> float:
    """Divide a by b; raises when b is zero"""
    return a / b


@mcp.resource("file://{name}")
def read_file(name: str) -> str:
    """The content of a file"""
    return f"content of {name}"


@mcp.prompt()
def review(code: str) -> str:
    """Ask for a review"""
    return f"Please review this code:\n\n{code}"


if __name__ == "__main__":
    given = flags()
    if given.transport == "stdio":
        mcp.run()
    elif given.transport == "sse":
        anyio.run(over_http, mcp.sse_app(), given.port, "/sse")
    else:
        anyio.run(over_http, mcp.streamable_http_app(), given.port)
