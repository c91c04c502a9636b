"""The tools and the prompt of fastmcp_dual.py that ask their client: by requests while the call runs, which FastMCP does for
legacy clients alone, or by ending the call with the questions, for modern ones."""

import json
from enum import Enum
from typing import Any

import mcp_types as types
from fastmcp import Context, FastMCP
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import MISSING_REQUIRED_CLIENT_CAPABILITY
from pydantic import BaseModel

Asked = str | types.InputRequiredResult


def register(mcp: FastMCP) -> None:
    """Registers all of them on `mcp`."""
    for name, tool in TOOLS.items():
        mcp.tool(name=name)(tool)
    mcp.prompt(name="test_input_required_result_prompt")(prompt)


class Account(BaseModel):
    username: str
    email: str


class Status(Enum):
    active = "active"
    inactive = "inactive"
    pending = "pending"


class Defaults(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Status = Status.active
    verified: bool = True


OPTIONS = ["option1", "option2", "option3"]


def titled(word: str) -> list[dict[str, str]]:
    nths = enumerate(["First", "Second", "Third"], 1)
    return [{"const": f"value{number}", "title": f"{nth} {word}"} for number, nth in nths]


ENUMERATIONS = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": OPTIONS},
        "titledSingle": {"type": "string", "oneOf": titled("Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": OPTIONS}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled("Choice")}},
    },
    "required": [],
}


async def pushed_sampling(prompt: str, ctx: Context) -> str:
    """Have the client's model answer"""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    # FastMCP's own context has no sampling any more; the session of the SDK beneath has.
    answer = await ctx.session.create_message(
        messages=[message], max_tokens=100, related_request_id=ctx.origin_request_id
    )
    text = answer.content.text if isinstance(answer.content, types.TextContent) else "(not a text)"
    return f"LLM response: {text}"


async def pushed_turns(ctx: Context) -> str:
    """Have the client's model answer with the help of a tool"""
    messages = [QUESTION]
    for _ in range(2):
        answer = await ctx.session.create_message(
            messages=messages, max_tokens=100, tools=[TOOL], tool_choice=AUTO, related_request_id=ctx.origin_request_id
        )
        messages += after(answer)
    return f"LLM response: {answer_text(answer)}"


async def pushed_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and an address"""
    return f"User response: {await ctx.elicit(message, Account)}"


async def pushed_defaults(ctx: Context) -> str:
    """Ask with a default for each type"""
    return f"Elicitation completed: {await ctx.elicit('Please look over these values', Defaults)}"


async def pushed_enumerations(ctx: Context) -> str:
    """Ask with each form of enumeration"""
    answer = await ctx.session.elicit(
        message="Please choose", requested_schema=ENUMERATIONS, related_request_id=ctx.request_id
    )
    return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


def able(ctx: Context) -> types.ClientCapabilities:
    """What the client says that it can do."""
    client = ctx.session.client_params
    return client.capabilities if client else types.ClientCapabilities()


async def missing_capability(ctx: Context) -> str:
    """Need a client with a model"""
    if able(ctx).sampling is None:
        needed = types.ClientCapabilities(sampling=types.SamplingCapability())
        data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=needed)
        raise MCPError(
            code=MISSING_REQUIRED_CLIENT_CAPABILITY,
            message="The client has no model",
            data=data.model_dump(mode="json", by_alias=True, exclude_none=True),
        )
    return "The client has a model"


def form(message: str, field: str, kind: str = "string") -> types.ElicitRequest:
    """One form with one field."""
    schema = {"type": "object", "properties": {field: {"type": kind}}, "required": [field]}
    return types.ElicitRequest(
        method="elicitation/create",
        params=types.ElicitRequestFormParams(message=message, requested_schema=schema),
    )


def sampling(prompt: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    return types.CreateMessageRequest(
        method="sampling/createMessage",
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=100),
    )


# A question to the client's model that it can only answer with a tool of the server's, in two turns.
QUESTION = types.SamplingMessage(role="user", content=types.TextContent(type="text", text="How warm is it in Riga?"))
TOOL = types.Tool(name="temperature", input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
AUTO = types.ToolChoice(mode="auto")


def blocks(answer: Any) -> list[Any]:
    return answer.content if isinstance(answer.content, list) else [answer.content]


def answer_text(answer: Any) -> str:
    return next((block.text for block in blocks(answer) if isinstance(block, types.TextContent)), "(not a text)")


def after(answer: Any) -> list[types.SamplingMessage]:
    """The messages after the question, where the model used the tool: the use, and what the tool gave."""
    use = next((block for block in blocks(answer) if isinstance(block, types.ToolUseContent)), None)
    if use is None:
        return []
    text = types.TextContent(type="text", text=f"21 degrees in {use.input['city']}")
    result = types.ToolResultContent(type="tool_result", tool_use_id=use.id, content=[text])
    return [
        types.SamplingMessage(role="assistant", content=[use]),
        types.SamplingMessage(role="user", content=[result]),
    ]


def turn(*more: types.SamplingMessage) -> types.CreateMessageRequest:
    return types.CreateMessageRequest(
        method="sampling/createMessage",
        params=types.CreateMessageRequestParams(
            messages=[QUESTION, *more], max_tokens=100, tools=[TOOL], tool_choice=AUTO
        ),
    )


def roots() -> types.ListRootsRequest:
    return types.ListRootsRequest(method="roots/list")


def questions(state: str | None = None, **asked: Any) -> types.InputRequiredResult:
    """Ends a call with these questions."""
    return types.InputRequiredResult(result_type="input_required", input_requests=asked, request_state=state)


def given(ctx: Context, key: str) -> Any:
    return (ctx.input_responses or {}).get(key)


def accepted(ctx: Context, key: str, field: str) -> Any:
    """The field of a form that the user accepted, or None."""
    answer = given(ctx, key)
    return (answer.content or {}).get(field) if isinstance(answer, types.ElicitResult) else None


def sampled(ctx: Context, key: str) -> str | None:
    answer = given(ctx, key)
    content = answer.content if isinstance(answer, types.CreateMessageResult) else None
    return content.text if isinstance(content, types.TextContent) else None


def listed(ctx: Context, key: str) -> int | None:
    answer = given(ctx, key)
    return len(answer.roots) if isinstance(answer, types.ListRootsResult) else None


NAME = form("What is your name?", "name")


async def streaming_elicitation(ctx: Context) -> Asked:
    """End with a question"""
    ok = accepted(ctx, "go_on", "ok")
    return questions(go_on=form("Go on?", "ok", "boolean")) if ok is None else f"Go on: {ok}"


async def one_form(ctx: Context) -> Asked:
    """Greet by a name that is asked for"""
    name = accepted(ctx, "user_name", "name")
    return questions(user_name=NAME) if name is None else f"Hello, {name}!"


async def one_sampling(ctx: Context) -> Asked:
    """Have the client's model name a capital"""
    text = sampled(ctx, "capital_question")
    return questions(capital_question=sampling("What is the capital of France?")) if text is None else f"Sampled: {text}"


async def two_turns(ctx: Context) -> Asked:
    """Have the client's model answer with the help of a tool"""
    first, second = given(ctx, "turn1"), given(ctx, "turn2")
    if second is not None:
        return f"Sampled: {answer_text(second)}"
    if first is not None:
        return questions(state="weather", turn2=turn(*after(first)))
    return questions(state="weather", turn1=turn())


async def one_list(ctx: Context) -> Asked:
    """Count the client's roots"""
    count = listed(ctx, "client_roots")
    return questions(client_roots=roots()) if count is None else f"{count} root(s)"


async def with_state(ctx: Context) -> Asked:
    """Ask, and want the state back; FastMCP seals it, and refuses a foreign one"""
    if accepted(ctx, "confirm", "ok") is None or ctx.request_state != "confirm":
        return questions(state="confirm", confirm=form("Please confirm", "ok", "boolean"))
    return "state-ok"


async def three_at_once(ctx: Context) -> Asked:
    """Ask three things at once"""
    name, text, count = accepted(ctx, "user_name", "name"), sampled(ctx, "greeting"), listed(ctx, "client_roots")
    if None in (name, text, count) or ctx.request_state != "gather":
        asked = {"user_name": NAME, "greeting": sampling("Generate a greeting"), "client_roots": roots()}
        return questions(state="gather", **asked)
    return f"{text} {name}, with {count} root(s)"


async def rounds(ctx: Context) -> Asked:
    """Ask for a name, then for a colour"""
    known = (ctx.request_state or "").removeprefix("name:") if (ctx.request_state or "").startswith("name:") else None
    name = accepted(ctx, "step1", "name") or known
    if name is None:
        return questions(state="began", step1=form("Step 1: What is your name?", "name"))
    color = accepted(ctx, "step2", "color")
    if color is None:
        return questions(state=f"name:{name}", step2=form("Step 2: What is your favorite color?", "color"))
    return f"{name} likes {color}"


async def by_capability(ctx: Context) -> Asked:
    """Ask only for what the client said it can do"""
    can = able(ctx)
    wanted = {
        "user_name": NAME if can.elicitation else None,
        "greeting": sampling("Generate a greeting") if can.sampling else None,
        "client_roots": roots() if can.roots else None,
    }
    left = {key: question for key, question in wanted.items() if question is not None and given(ctx, key) is None}
    return questions(**left) if left else "All was answered"


async def prompt(ctx: Context) -> Asked:
    """A prompt around a context that it asks for"""
    context = accepted(ctx, "user_context", "context")
    if context is None:
        return questions(user_context=form("What context should the prompt use?", "context"))
    return f"Use this context: {context}"


TOOLS = {
    "test_sampling": pushed_sampling,
    "test_sampling_with_tools": pushed_turns,
    "test_elicitation": pushed_elicitation,
    "test_elicitation_sep1034_defaults": pushed_defaults,
    "test_elicitation_sep1330_enums": pushed_enumerations,
    "test_missing_capability": missing_capability,
    "test_streaming_elicitation": streaming_elicitation,
    "test_input_required_result_elicitation": one_form,
    "test_input_required_result_sampling": one_sampling,
    "test_input_required_result_sampling_with_tools": two_turns,
    "test_input_required_result_list_roots": one_list,
    "test_input_required_result_request_state": with_state,
    "test_input_required_result_tampered_state": with_state,
    "test_input_required_result_multiple_inputs": three_at_once,
    "test_input_required_result_multi_round": rounds,
    "test_input_required_result_capabilities": by_capability,
}
