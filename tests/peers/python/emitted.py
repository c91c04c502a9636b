"""Holds everything that weir said in a run of the tests against the types of the official SDK.

    emitted.py FOLDER [--whole]

FOLDER has files of JSON lines, each one message: who sent it (weir as a "server" or as a "client"), in which revision, which
method it answers if it is a response, and the message. With --whole hardly any message at all is a failure too.

What the SDK has no types for is held against the JSON-RPC envelope alone, and counted apart: what `without_types` names.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import mcp_types as types
from mcp_types import jsonrpc, methods
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter, ValidationError

# A run of all tests keeps many times as many.
FEWEST = 500

# Tasks of 2025-11-25: there are types, but no place in the SDK's tables.
TASKS = "2025-11-25"
TASK_REQUESTS = {
    "tasks/get": types.GetTaskRequest,
    "tasks/result": types.GetTaskPayloadRequest,
    "tasks/cancel": types.CancelTaskRequest,
    "tasks/list": types.ListTasksRequest,
}
TASK_NOTIFICATIONS = {"notifications/tasks/status": types.TaskStatusNotification}
TASK_RESULTS = {
    "tasks/get": types.GetTaskResult,
    "tasks/result": types.GetTaskPayloadResult,
    "tasks/cancel": types.CancelTaskResult,
    "tasks/list": types.ListTasksResult,
}

# The extension for tasks: ../node/emitted.mjs holds its messages.
TASK_EXTENSION = ("tasks/", "notifications/tasks")
# Methods of any revision: one of these in a revision that lacks it is an error.
SPECIFIED = frozenset(methods.MONOLITH_REQUESTS) | frozenset(methods.MONOLITH_NOTIFICATIONS)


class NoTypes(Exception):
    """The SDK has no types for this."""


def without_types(method: str, passed_on: bool) -> bool:
    """Whether the SDK has no types for this method: the extension's, and what weir passes on as it came, as a request of a
    client and the server's answer to it, where no revision specifies the method."""
    return method.startswith(TASK_EXTENSION) or (passed_on and method not in SPECIFIED)


def envelope(message: dict) -> str:
    """Which kind of message it is; the envelope holds."""
    if "method" in message:
        kind = "request" if "id" in message else "notification"
        model = jsonrpc.JSONRPCRequest if kind == "request" else jsonrpc.JSONRPCNotification
        model.model_validate(message)
        return kind
    if "error" in message:
        # The revisions allow an error without an id; this model wants it to be null then.
        jsonrpc.JSONRPCError.model_validate({"id": None, **message})
        return "error"
    jsonrpc.JSONRPCResponse.model_validate(message)
    return "result"


def said(kind: str, sender: str, revision: str, message: dict) -> None:
    """A request or notification."""
    method, params = message["method"], message.get("params")
    own: dict[str, type[BaseModel]] = TASK_REQUESTS if kind == "request" else TASK_NOTIFICATIONS
    if revision == TASKS and method in own:
        own[method].model_validate({"method": method, "params": params}, by_name=False)
        return
    parse = getattr(methods, f"parse_{sender}_{kind}")
    try:
        parse(method, revision, params)
    except KeyError:
        if without_types(method, passed_on=kind == "request" and sender == "client"):
            raise NoTypes(method if method.startswith(TASK_EXTENSION) else "a request no revision specifies") from None
        raise ValueError(f"{revision} has no {kind} {method} of a {sender}") from None


def answered(sender: str, revision: str, method: str, result: dict) -> None:
    """A result."""
    if "task" in result and revision == TASKS and method not in TASK_RESULTS:
        types.CreateTaskResult.model_validate(result, by_name=False)
        return
    if result.get("resultType") == "task":
        raise NoTypes("a task of the extension")
    if revision == TASKS and method in TASK_RESULTS:
        TypeAdapter(TASK_RESULTS[method]).validate_python(result, by_name=False)
        return
    parse = methods.parse_server_result if sender == "server" else methods.parse_client_result
    try:
        parse(method, revision, result)
    except KeyError:
        # Without a method: the test heard no request with this id.
        if method == "" or without_types(method, passed_on=sender == "server"):
            tasks = method.startswith(TASK_EXTENSION)
            raise NoTypes(f"a result of {method}" if tasks else "a result of a method that no revision specifies") from None
        raise ValueError(f"{revision} has no result of {method} from a {sender}") from None


def check(line: dict) -> None:
    sender, revision, message = line["sender"], line["revision"], line["message"]
    if revision not in KNOWN_PROTOCOL_VERSIONS:
        raise ValueError(f"no revision: {revision}")
    kind = envelope(message)
    if kind in ("request", "notification"):
        said(kind, sender, revision, message)
    elif kind == "result":
        answered(sender, revision, line["answered"], message["result"])


def main() -> int:
    folder, whole = Path(sys.argv[1]), "--whole" in sys.argv[2:]
    lines = {line for file in sorted(folder.glob("*.jsonl")) for line in file.read_text("utf-8").split("\n") if line}
    held: Counter[str] = Counter()
    untyped: Counter[str] = Counter()
    wrong = 0
    for text in sorted(lines):
        line = json.loads(text)
        try:
            check(line)
            held[f"{line['revision']} as a {line['sender']}"] += 1
        except NoTypes as what:
            untyped[str(what)] += 1
        except (ValidationError, ValueError) as error:
            wrong += 1
            print(f"weir said what the SDK's types refuse: {error}\n  {text[:2000]}")
    for what, count in sorted(held.items()):
        print(f"emitted: {count} shapes of {what} hold")
    for what, count in sorted(untyped.items()):
        print(f"emitted: {count} shapes have no types in the SDK: {what}")
    print(f"emitted: {held.total()} passed, {wrong} failed, {untyped.total()} skipped")
    if whole and held.total() < FEWEST:
        print(f"that is too few: a run of all tests keeps {FEWEST} at least")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
