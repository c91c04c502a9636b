"""A server on stdio whose calls become tasks of 2025-11-25 with progress, until a file is there.

The Python SDK 1.x has no progress of tasks, so this has none of it: `task_progress_server.py END STEPS`. It writes
the number of steps to the second file.
"""

import json
import pathlib
import sys
import threading
import time

end, steps = (pathlib.Path(name) for name in sys.argv[1:])
lock = threading.Lock()
states: dict[str, str] = {}


def send(**message: object) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def related(name: str) -> dict[str, object]:
    return {"io.modelcontextprotocol/related-task": {"taskId": name}}


def work(name: str, token: object) -> None:
    step = 0
    while not end.exists():
        time.sleep(0.05)
        step += 1
        params = {"progressToken": token, "progress": step, "_meta": related(name)}
        send(method="notifications/progress", params=params)
        steps.write_text(str(step))
    states[name] = "completed"


def task(name: str) -> dict[str, object]:
    begun = "2026-01-01T00:00:00Z"
    times = {"createdAt": begun, "lastUpdatedAt": begun, "ttl": 600_000, "pollInterval": 1000}
    return {"taskId": name, "status": states[name], **times}


def deliver(request: object, name: str) -> None:
    while states[name] == "working":
        time.sleep(0.05)
    content = [{"type": "text", "text": "done"}]
    send(id=request, result={"content": content, "_meta": related(name)})


def answer(method: str, params: dict) -> dict[str, object]:
    """The members of the response."""
    name = params.get("taskId", "")
    if method.startswith("tasks/") and name not in states:
        return {"error": {"code": -32602, "message": "no such task"}}
    return {"result": task(name) if method == "tasks/get" else result(method, params)}


def result(method: str, params: dict) -> dict[str, object]:
    if method == "initialize":
        tasks = {"requests": {"tools": {"call": {}}}}
        about = {"name": "task-progress", "version": "1"}
        return {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "tasks": tasks}, "serverInfo": about}
    if method == "tools/list":
        schema = {"type": "object"}
        return {"tools": [{"name": "job", "inputSchema": schema, "execution": {"taskSupport": "required"}}]}
    if method == "tools/call":
        name = f"task-{len(states)}"
        states[name] = "working"
        token = params.get("_meta", {}).get("progressToken")
        threading.Thread(target=work, args=(name, token), daemon=True).start()
        return {"task": task(name)}
    return {}


for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message or method is None:
        continue
    if method == "tasks/result" and params["taskId"] in states:
        threading.Thread(target=deliver, args=(message["id"], params["taskId"]), daemon=True).start()
    else:
        send(id=message["id"], **answer(method, params))
