"""What the Python client drivers share: the command line, the scenarios, and one JSON object a line of what was seen.

    client_vN.py URL SCENARIO [TOOL] [ARGUMENTS as JSON] [--level L | none] [--timeout MS] [--trigger TOOL] [--auth sdk] [--asks]

With `--stdio` URL is a command line, split at spaces, and the server its process. With `--revision R` the client proposes this older
revision.

With `--asks` the client can be asked: it prints an `asked` line for each question, and answers it.

With `--auth sdk` the SDK's own OAuth client logs in; it knows nothing but URL.

    client_vN.py -

takes command lines from standard input, each a JSON array of words on a line of its own, and runs them one after the other with
clients of their own; a `done` line follows each.

Exits 0 when the scenario went as its name says, 1 with an `error` line when not, 2 on a wrong command line.
"""

import argparse
import json
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import anyio

SCENARIOS = [
    "list",
    "call",
    "call-progress",
    "watch",
    "library",
    "task",
    "unknown-tool",
    "structured",
    "logs",
    "cancel",
    "calls",
    "refresh",
]


class Refused(Exception):
    """A JSON-RPC error, whatever the SDK calls it."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class CheckFailed(Exception):
    """The SDK's own check of structured content said no."""


class StreamWatch:
    """Knows when the standing GET stream of a legacy session was answered. Only from then on can the server tell this
    client that a list changed, and no SDK says when that is."""

    def __init__(self) -> None:
        self.opened = anyio.Event()

    async def answered(self, response: Any) -> None:
        """A response hook for the HTTP client."""
        if response.request.method == "GET":
            self.opened.set()


class Peer(Protocol):
    """One connected client of some SDK."""

    about: dict[str, Any]
    account: Any
    library: Any
    """What lists, gets, reads and completes: the methods of both SDKs have the same names."""
    prompt_reference: Callable[[str], Any]

    def pages(self) -> AsyncIterator[list[str]]: ...

    async def call(
        self, tool: str, args: dict[str, Any], progress: Callable[..., Awaitable[None]] | None = None
    ) -> dict[str, Any]: ...

    async def task(self, tool: str, args: dict[str, Any]) -> dict[str, Any]:
        """Calls a tool as a task, prints its states, and gives its result."""

    def watching(self, changed: anyio.Event) -> AbstractAsyncContextManager[None]: ...

    async def log_at(self, level: str | None, then: Callable[[dict[str, Any]], None]) -> None: ...


def show(event: str, **seen: Any) -> None:
    known = {key: value for key, value in seen.items() if value is not None}
    print(json.dumps({"event": event, **known}), flush=True)


def command_line(words: list[str], **own: dict[str, Any]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("scenario", choices=SCENARIOS)
    parser.add_argument("tool", nargs="?")
    parser.add_argument("args", nargs="?", type=json.loads, default={})
    parser.add_argument("--level", default="info")
    parser.add_argument("--timeout", type=int, default=30_000, help="longest wait of the scenario, in milliseconds")
    parser.add_argument("--trigger")
    parser.add_argument("--asks", action="store_true")
    parser.add_argument("--stdio", action="store_true")
    parser.add_argument("--revision")
    parser.add_argument("--auth", choices=["none", "sdk"], default="none")
    for name, settings in own.items():
        parser.add_argument(f"--{name}", **settings)
    return parser.parse_args(words)


def run(connect: Callable[[argparse.Namespace], AbstractAsyncContextManager[Peer]], **own: dict[str, Any]) -> None:
    """Runs the scenario that the command line names, or each that standard input names, on a peer that `connect` opens."""
    words = sys.argv[1:]
    if words != ["-"]:
        run_one(connect, command_line(words, **own))
        return
    for line in sys.stdin:
        run_one(connect, command_line(json.loads(line), **own))
        show("done")


def run_one(connect: Callable[[argparse.Namespace], AbstractAsyncContextManager[Peer]], given: argparse.Namespace) -> None:
    """Runs one scenario, and ends the program where it fails."""

    is_done = False

    async def whole() -> None:
        nonlocal is_done
        with anyio.fail_after(given.timeout / 1000):
            async with connect(given) as peer:
                show("connected", **peer.about)
                await scenario(peer, given)
                if given.auth != "none":
                    show("account", logins=peer.account.logins, tokens=peer.account.saved)
                is_done = True

    try:
        anyio.run(whole)
    except BaseException as raised:  # noqa: BLE001 - whatever went wrong is the line the test reads
        error = innermost(raised)
        if is_done and given.stdio and isinstance(error, anyio.BrokenResourceError):
            # The stdio client of the SDK 1.x fails so where the server says something while the client closes.
            return
        message = str(error) or type(error).__name__
        show("error", code=getattr(error, "code", None), message=message)
        sys.exit(1)


def innermost(error: BaseException) -> BaseException:
    """The first error inside nested groups."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def scenario(peer: Peer, given: argparse.Namespace) -> None:
    match given.scenario:
        case "list":
            show("tools", names=await names(peer))
        case "call":
            show("result", result=await peer.call(given.tool, given.args))
        case "call-progress":
            show("result", result=await peer.call(given.tool, given.args, on_progress))
        case "logs":
            level = None if given.level == "none" else given.level
            await peer.log_at(level, lambda note: show("log", **note))
            show("result", result=await peer.call(given.tool, given.args))
        case "watch":
            await watch(peer, given.trigger)
        case "library":
            await library(peer, given.tool, given.args)
        case "task":
            show("result", result=await peer.task(given.tool, given.args))
        case "unknown-tool":
            await unknown_tool(peer, given.tool or "no_such_tool")
        case "structured":
            await structured(peer, given.tool, given.args)
        case "cancel":
            await cancel(peer, given)
        case "calls":
            await calls(peer, given)
        case "refresh":
            await refresh(peer, given)


async def calls(peer: Peer, given: argparse.Namespace) -> None:
    """Calls again and again until SIGTERM."""
    count = 0
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with anyio.create_task_group() as group:
            ended = anyio.Event()

            async def end() -> None:
                async for _ in signals:
                    ended.set()
                    return

            group.start_soon(end)
            while not ended.is_set():
                result = await peer.call(given.tool, given.args)
                if result.get("isError"):
                    raise AssertionError(f"call {count} failed: {result}")
                if count == 0:
                    show("calling")
                count += 1
    show("calls", count=count)


async def refresh(peer: Peer, given: argparse.Namespace) -> None:
    """Calls until the client has got itself a second token."""
    while True:
        show("result", result=await peer.call(given.tool, given.args))
        if peer.account.saved > 1:
            return


async def on_progress(progress: float, total: float | None, message: str | None) -> None:
    show("progress", progress=progress, total=total, message=message)


def plain(model: Any) -> Any:
    """What a value of the SDK's is on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def library(peer: Peer, prompt: str, args: dict[str, Any]) -> None:
    """Lists prompts, resources and templates, gets the prompt that stands in the tool's place, reads, and has an argument completed.
    The arguments say with what: `arguments` of the prompt, URIs to `read`, and the `argument` to complete."""
    own = peer.library
    show("prompts", names=[one.name for one in (await own.list_prompts()).prompts])
    show("prompt", messages=plain(await own.get_prompt(prompt, args["arguments"]))["messages"])
    show("resources", uris=[one["uri"] for one in plain(await own.list_resources())["resources"]])
    listed = plain(await own.list_resource_templates())
    show("templates", uris=[one["uriTemplate"] for one in listed["resourceTemplates"]])
    for uri in args["read"]:
        show("read", contents=plain(await own.read_resource(uri))["contents"])
    completed = plain(await own.complete(peer.prompt_reference(prompt), args["argument"]))
    show("completed", values=completed["completion"]["values"])


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    """The answer of a client with `--asks`, after a line for the question."""
    match method:
        case "elicitation/create":
            show("asked", method=method, message=params["message"])
            fields = params.get("requestedSchema", {}).get("properties", {})
            return {"action": "accept", "content": {name: filled(field) for name, field in fields.items()}}
        case "sampling/createMessage":
            return sampled(params)
        case _:
            show("asked", method=method)
            return {"roots": [{"uri": "file:///srv/driver", "name": "driver"}]}


def sampled(params: dict[str, Any]) -> dict[str, Any]:
    """A text, or the use of the first tool where there is one that was not used yet."""
    contents = [message["content"] for message in params["messages"]]
    blocks = [block for content in contents for block in (content if isinstance(content, list) else [content])]
    tools = [tool["name"] for tool in params.get("tools") or []]
    show("asked", method="sampling/createMessage", message=blocks[0].get("text"), tools=tools)
    used = next((block for block in blocks if block["type"] == "tool_result"), None)
    reply: dict[str, Any] = {"role": "assistant", "model": "driver"}
    if tools and used is None:
        use = {"type": "tool_use", "id": "use-1", "name": tools[0], "input": {"city": "Riga"}}
        return {**reply, "stopReason": "toolUse", "content": [use]}
    text = f"a sampled text of {used['content'][0]['text']}" if used else "a sampled text"
    return {**reply, "content": {"type": "text", "text": text}}


def filled(field: dict[str, Any]) -> Any:
    """A value that a field of a form takes."""
    if "default" in field:
        return field["default"]
    if "enum" in field:
        return field["enum"][0]
    if "oneOf" in field:
        return field["oneOf"][0]["const"]
    match field.get("type"):
        case "array":
            return [filled(field["items"]) for _ in range(field.get("minItems", 0))]
        case "boolean":
            return True
        case "integer" | "number":
            return 7
    texts = {"email": "ada@example.com", "uri": "https://example.com/", "date": "2026-01-31"}
    return texts.get(field.get("format", ""), "Ada".ljust(field.get("minLength", 0), "a"))


async def names(peer: Peer) -> list[str]:
    """Walks all pages; prints one line for each."""
    found: list[str] = []
    async for page in peer.pages():
        show("page", count=len(page))
        found.extend(page)
    return found


async def watch(peer: Peer, trigger: str | None) -> None:
    """Waits for list_changed. `--trigger TOOL` is called once the client listens."""
    show("tools", names=await names(peer))
    changed = anyio.Event()
    async with peer.watching(changed):
        show("watching")
        if trigger is not None:
            await peer.call(trigger, {})
        await changed.wait()
    show("list_changed", kind="tools")
    show("tools", names=await names(peer))


async def unknown_tool(peer: Peer, tool: str) -> None:
    """A server refuses either by a JSON-RPC error or by an `isError` result; anything else is a failure."""
    try:
        result = await peer.call(tool, {})
    except Refused as refused:
        show("refused", isError=False, code=refused.code, message=str(refused))
        return
    if not result.get("isError"):
        raise AssertionError(f"the tool {tool} answered")
    show("refused", isError=True, message=result["content"][0]["text"])


async def structured(peer: Peer, tool: str, args: dict[str, Any]) -> None:
    """The SDK checks structured content against the output schema it saw in the list."""
    await names(peer)
    try:
        result = await peer.call(tool, args)
    except CheckFailed as failed:
        show("rejected", message=str(failed))
        return
    show("accepted", structuredContent=result.get("structuredContent"))


async def cancel(peer: Peer, given: argparse.Namespace) -> None:
    """Gives a call up at its first note and then shows that the connection still serves."""
    with anyio.CancelScope() as scope:

        def note(kind: str) -> None:
            show(kind)
            scope.cancel()

        async def progressed(*_: Any) -> None:
            note("progress")

        await peer.log_at(given.level, lambda _: note("log"))
        await peer.call(given.tool, given.args, progressed)
    if not scope.cancelled_caught:
        raise AssertionError("the call ended before it was cancelled")
    show("cancelled")
    show("tools", names=await names(peer))
