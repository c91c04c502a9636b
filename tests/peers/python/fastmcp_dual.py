"""A conformance server on FastMCP 4: both eras on one URL, with what the official suite calls by name, as far as FastMCP has it.

    fastmcp_dual.py --transport http [--port N]

What asks the client back is in fastmcp_asking.py.
"""

import base64
import json
from typing import Annotated

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message
from fastmcp.server.event_store import EventStore
from fastmcp.tools.function_tool import FunctionTool
from fastmcp.utilities.types import Audio, Image
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    EmbeddedResource,
    ImageContent,
    PromptReference,
    ResourceTemplateReference,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

import fastmcp_asking
from serve import flags, over_http

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
WAV = "UklGRjQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YRAAAAAAAAAAAAAAAAAAAAAAAAAA"

PATH = "/mcp"

# Between two notifications of a call, in seconds: long enough that they leave in separate writes.
BETWEEN = 0.05

# What a client that lost its stream waits before it comes back, in milliseconds.
RETRY_MS = 100

mcp = FastMCP(
    "fastmcp-dual", instructions="Every name of the conformance suite is here.", dereference_schemas=False
)
fastmcp_asking.register(mcp)


def resource(uri: str, mime_type: str, text: str) -> EmbeddedResource:
    contents = TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return EmbeddedResource(type="resource", resource=contents)


@mcp.tool(name="test_simple_text")
async def simple_text() -> str:
    """Answer with a text"""
    return "This is a simple text response for testing."


@mcp.tool(name="test_image_content")
async def picture() -> Image:
    """Answer with a picture"""
    return Image(data=base64.b64decode(PNG), format="png")


@mcp.tool(name="test_audio_content")
async def sound() -> Audio:
    """Answer with a sound"""
    return Audio(data=base64.b64decode(WAV), format="wav")


@mcp.tool(name="test_embedded_resource")
async def embedded() -> list:
    """Answer with a resource"""
    return [resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]


@mcp.tool(name="test_multiple_content_types")
async def mixed() -> list:
    """Answer with a text, a picture and a resource"""
    return [
        TextContent(type="text", text="Multiple content types test:"),
        ImageContent(type="image", data=PNG, mime_type="image/png"),
        resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}'),
    ]


@mcp.tool(name="test_error_handling")
async def failing() -> str:
    """Fail, inside the result"""
    raise ToolError("This tool intentionally returns an error for testing")


@mcp.tool(name="test_tool_with_logging")
async def logging(ctx: Context) -> str:
    """Log three lines"""
    for line in ["Tool execution started", "Tool processing data", "Tool execution completed"]:
        await ctx.info(line)
        await anyio.sleep(BETWEEN)
    return "Three lines were logged"


@mcp.tool(name="test_logging_tool")
async def logging_once(ctx: Context) -> str:
    """Log one line"""
    await ctx.info("a line")
    return "One line was logged"


@mcp.tool(name="test_tool_with_progress")
async def progress(ctx: Context) -> str:
    """Report progress three times"""
    for step in [0, 50, 100]:
        await ctx.report_progress(step, 100)
        await anyio.sleep(BETWEEN)
    return "Progress was reported"


@mcp.tool(name="test_reconnection")
async def reconnection(ctx: Context) -> str:
    """Close the call's stream in the middle; the answer waits for the client to come back"""
    await ctx.report_progress(0, 100)
    await ctx.close_sse_stream()
    await anyio.sleep(2 * BETWEEN)
    return "The answer after the stream was closed"


@mcp.tool(name="test_header_parameter")
async def header_parameter(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
    """Take an argument that is also a header"""
    return f"Region: {region}"


async def contact(
    name: str | None = None,
    address: dict | None = None,
    contactMethod: str | None = None,  # noqa: N803 - the suite names the argument
    phone: str | None = None,
    email: str | None = None,
) -> str:
    given = {"name": name, "address": address, "method": contactMethod, "phone": phone, "email": email}
    return json.dumps(given)


CONTACT = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}
mcp.add_tool(
    FunctionTool(
        fn=contact,
        name="json_schema_2020_12_tool",
        description="Takes what 2020-12 can describe",
        parameters=CONTACT,
    )
)


@mcp.resource("test://static-text", name="static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes"""
    return "This is the content of the static text resource."


@mcp.resource("test://static-binary", name="static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes"""
    return base64.b64decode(PNG)


@mcp.resource("test://watched-resource", name="watched", mime_type="text/plain")
async def watched() -> str:
    """A text; FastMCP has no subscriptions to resources"""
    return "Watched"


@mcp.resource("test://template/{id}/data", name="data", mime_type="application/json")
async def data(id: str) -> str:  # noqa: A002 - the suite names the variable
    """What is known of an id"""
    return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})


@mcp.prompt(name="test_simple_prompt")
async def simple_prompt() -> str:
    """One message"""
    return "This is a simple prompt for testing."


@mcp.prompt(name="test_prompt_with_arguments")
async def prompt_with_arguments(arg1: str, arg2: str) -> str:
    """One message made of two arguments"""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@mcp.prompt(name="test_prompt_with_embedded_resource")
async def prompt_with_resource(resourceUri: str) -> list:  # noqa: N803 - the suite names the argument
    """A resource and a question"""
    return [Message(resource(resourceUri, "text/plain", "An embedded resource")), Message("What does it say?")]


@mcp.prompt(name="test_prompt_with_image")
async def prompt_with_image() -> list:
    """A picture and a question"""
    return [Message(ImageContent(type="image", data=PNG, mime_type="image/png")), Message("What does it show?")]


@mcp.completion
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | None:
    words = ["paris", "park", "party", "rome"] if isinstance(ref, PromptReference) else ["1", "2", "3"]
    fitting = [word for word in words if word.startswith(argument.value)]
    return Completion(values=fitting, total=len(fitting), has_more=False)


if __name__ == "__main__":
    app = mcp.http_app(
        path=PATH,
        transport="streamable-http",
        host_origin_protection=True,
        event_store=EventStore(),
        retry_interval=RETRY_MS,
    )
    anyio.run(over_http, app, flags().port, PATH)
