"""A server of the Python SDK 2.x whose tools ask their client: by `input_required` where it is modern, by requests of its own
where it is not. The tool authors write the same for both."""

from typing import Annotated

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.resolve import Elicit, ListRoots, Resolve, Sample
from mcp_types import CreateMessageResult, ListRootsResult, SamplingMessage, TextContent
from pydantic import BaseModel

from serve import flags, over_http

mcp = MCPServer("asker")


class Name(BaseModel):
    """Who somebody is."""

    name: str


def who() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


def text() -> Sample:
    question = SamplingMessage(role="user", content=TextContent(type="text", text="Say something"))
    return Sample([question], max_tokens=10)


def folders() -> ListRoots:
    return ListRoots()


@mcp.tool()
def greet(name: Annotated[Name, Resolve(who)]) -> str:
    """Ask for a name and greet"""
    return f"Hello {name.name}"


@mcp.tool()
def say(said: Annotated[CreateMessageResult, Resolve(text)]) -> str:
    """Have the client's model say something"""
    return f"It said: {said.content.text if isinstance(said.content, TextContent) else said.content}"


@mcp.tool()
def places(roots: Annotated[ListRootsResult, Resolve(folders)]) -> str:
    """Tell the client's roots"""
    return " ".join(str(root.uri) for root in roots.roots)


if __name__ == "__main__":
    given = flags()
    if given.transport == "stdio":
        mcp.run()
    else:
        anyio.run(over_http, mcp.streamable_http_app(), given.port)
