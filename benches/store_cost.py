#!/usr/bin/env python3
"""The cost of sessions, streams, tasks and parked calls in weir and in Redis: bytes and commands.

    python3 benches/store_cost.py target/release/weir --sessions 5000

Starts a Redis without persistence, two replicas of weir, and a small MCP server behind them, all on free ports of loopback. Needs
`redis-server` and `redis-cli`, and nothing beyond the standard library. Prints one JSON object.
"""

import argparse
import http.client
import http.server
import json
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time

KEY = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
REVISION = "2025-11-25"
CLIENT = {"name": "store-cost", "version": "1"}
ACCEPT = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
MODERN = "2026-07-28"
SCHEMA = {"type": "object"}
TASKS = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
NOW = "2026-01-01T00:00:00Z"
# The kinds of calls whose state outlives a request.
STREAMS, CALLS = 500, 200


def modern_results():
    """The results of an MCP server of 2026-07-28 whose calls end before they become tasks, so that weir keeps their results as tasks."""
    known = {"resultType": "complete", "ttlMs": 3600000, "cacheScope": "public"}
    able = {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}}
    return {
        "server/discover": {**known, "supportedVersions": [MODERN], "capabilities": able},
        "tools/list": {**known, "tools": [{"name": "echo", "inputSchema": SCHEMA}]},
        "tools/call": {"resultType": "complete", "content": [{"type": "text", "text": "done"}]},
    }


class Server(http.server.BaseHTTPRequestHandler):
    """MCP servers. At `/` one of 2025-11-25, whose tools answer at once, slowly with a notification, after a question, or as a task; at `/modern` one of 2026-07-28."""

    protocol_version = "HTTP/1.1"
    # Head and body are two writes: without it an answer takes 40 ms, and becomes a stream at weir.
    disable_nagle_algorithm = True

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        results = {
            "initialize": {"protocolVersion": REVISION, "capabilities": {"tools": {}, "tasks": TASKS}, "serverInfo": CLIENT},
            "tools/list": {"tools": [{"name": name, "inputSchema": SCHEMA, "execution": {"taskSupport": "optional"}} for name in ("echo", "slow", "ask")]},
            "tools/call": {"content": [{"type": "text", "text": "done"}]},
        }
        if "id" not in asked or "method" not in asked:
            self.send_response(202)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        is_modern = self.path == "/modern"
        if is_modern:
            results = modern_results()
        answer = {"jsonrpc": "2.0", "id": asked["id"], "result": results.get(asked["method"], {})}
        if asked["method"] == "tools/call" and not is_modern:
            params = asked["params"]
            if "task" in params:
                times = {"createdAt": NOW, "lastUpdatedAt": NOW, "ttl": 3600000, "pollInterval": 3600000}
                answer["result"] = {"task": {"taskId": secrets.token_hex(16), "status": "working", **times}}
            elif params["name"] == "slow":
                told = {"level": "info", "data": "on the way"}
                return self.stream([{"method": "notifications/message", "params": told}, answer])
            elif params["name"] == "ask":
                question = {"message": "Your name?", "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
                self.stream([{"id": secrets.token_hex(8), "method": "elicitation/create", "params": question}])
                return time.sleep(600)
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, messages):
        """Answers with a stream of these messages, with a pause before each."""
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for message in messages:
            time.sleep(0.1)
            self.wfile.write(b"data: " + json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n\n")
            self.wfile.flush()

    def do_GET(self):
        self.send_response(405)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Upstream(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        """A replica that is killed resets its connections."""


class Redis:
    def __init__(self, folder):
        self.port = free_port()
        command = ["redis-server", "--port", str(self.port), "--save", "", "--appendonly", "no", "--dir", folder]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        wait_for(lambda: self.run("PING") == "PONG", "redis-server")

    def run(self, *words):
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    def used(self):
        return int(info(self.run("INFO", "memory"))["used_memory"])

    def processor_time(self):
        """In microseconds; the time that other programs take on a busy machine is not in it."""
        return int(pathlib.Path(f"/proc/{self.process.pid}/schedstat").read_text().split()[0]) / 1000

    def commands(self):
        """The calls of each command, by its name."""
        stats = info(self.run("INFO", "commandstats"))
        return {name.removeprefix("cmdstat_"): int(value.split("=")[1].split(",")[0]) for name, value in stats.items()}


class Replica:
    def __init__(self, binary, folder, redis, upstream, name):
        self.ports = [free_port() for _ in range(3)]
        clients, operators, others = (f"127.0.0.1:{port}" for port in self.ports)
        config = {
            "listen": clients,
            "admin": {"listen": operators},
            "keys": [{"id": 1, "secret": KEY}],
            "store": f"redis://127.0.0.1:{redis.port}",
            "cluster": {"listen": others},
            "limits": {"parked_per_principal": CALLS + 1},
            "upstreams": {"one": {"url": f"http://127.0.0.1:{upstream}/"}, "two": {"url": f"http://127.0.0.1:{upstream}/modern"}},
        }
        file = pathlib.Path(folder) / f"{name}.json"
        file.write_text(json.dumps(config))
        self.process = subprocess.Popen([binary, "serve", "--config", str(file)], stderr=subprocess.DEVNULL, env={"RUST_LOG": "error"})
        wait_for(lambda: get(self.ports[1], "/readyz") == 200, f"weir: see `weir check {file}`")

    def resident(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) * 1024


class Client:
    """A connection to one replica."""

    def __init__(self, replica):
        self.connection = http.client.HTTPConnection("127.0.0.1", replica.ports[0], timeout=30)

    def ask(self, message, session=None, method="POST"):
        headers = dict(ACCEPT)
        if session:
            headers |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": REVISION}
        for _ in range(60):
            answer, body = self.send(method, json.dumps(message) if message else None, headers)
            if answer.status != 503:
                break
            # A replica ended a moment ago, or the machine is too busy for heartbeats.
            time.sleep(0.5)
        if answer.status >= 300:
            sys.exit(f"{method}: {answer.status} {body[:300]}")
        return answer.headers.get("Mcp-Session-Id")

    def send(self, method, body, headers):
        try:
            self.connection.request(method, "/mcp", body, headers)
            answer = self.connection.getresponse()
        except (http.client.RemoteDisconnected, BrokenPipeError):
            # It was idle for too long.
            self.connection.close()
            self.connection.request(method, "/mcp", body, headers)
            answer = self.connection.getresponse()
        return answer, answer.read()

    def open(self):
        params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": CLIENT}
        session = self.ask({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        self.ask({"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
        return session

    def call(self, session, tool="one__echo", **more):
        params = {"name": tool, "arguments": {}, **more}
        self.ask({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}, session)

    def park(self):
        """Makes a call that waits for input at its server."""
        meta = {"protocolVersion": MODERN, "clientCapabilities": {"elicitation": {"form": {}}}, "clientInfo": CLIENT}
        own = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()}
        params = {"name": "one__ask", "arguments": {}, "_meta": own}
        headers = ACCEPT | {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "one__ask"}
        message = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}
        answer, body = self.send("POST", json.dumps(message), headers)
        if answer.status != 200 or b"input_required" not in body:
            sys.exit(f"no question: {answer.status} {body[:300]}")


def info(text):
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def get(port, path):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status
    except OSError:
        return None


def wait_for(is_met, name):
    until = time.monotonic() + 60
    while not is_met():
        if time.monotonic() > until:
            sys.exit(f"waited in vain for {name}")
        time.sleep(0.05)


def repeat(work, count):
    for number in range(count):
        work(number)
    # Some states and events are written a moment later.
    time.sleep(2)


def commands_of(redis, work, count, idle):
    """Commands of one repetition, beside those that two idle replicas send in the same time."""
    before, begun = redis.commands(), time.monotonic()
    repeat(work, count)
    taken, after = time.monotonic() - begun, redis.commands()
    names = ("evalsha", "publish", "hgetall")
    extra = {name: after.get(name, 0) - before.get(name, 0) - idle.get(name, 0) * taken for name in names}
    return {name: round(value / count, 2) for name, value in extra.items() if value / count > 0.01}


def idle_rates(redis, seconds):
    before = redis.commands()
    time.sleep(seconds)
    after = redis.commands()
    own = {"info", "ping", "command|docs", "command"}
    return {name: (after[name] - before.get(name, 0)) / seconds for name in after if name not in own and after[name] != before.get(name, 0)}


class Figures(dict):
    """Figures that are shown as they come: a slow machine takes minutes."""

    def __setitem__(self, name, figure):
        print(f"{name}: {figure}", file=sys.stderr)
        super().__setitem__(name, figure)


def bytes_of(redis, replica, work, count):
    """Bytes of Redis and of weir for one repetition, beside those of the first one."""
    work(0)
    before = redis.used(), replica.resident()
    repeat(work, count)
    after = redis.used(), replica.resident()
    return [round((after[at] - before[at]) / count) for at in range(2)]


def measure_calls(found, redis, replica, client, session):
    kinds = {
        "a stream with a notification and an answer": (STREAMS, lambda _: client.call(session, "one__slow")),
        "a task": (CALLS, lambda _: client.call(session, task={"ttl": 3600000})),
        "a result that weir keeps as a task": (CALLS, lambda _: client.call(session, "two__echo", task={"ttl": 3600000})),
        "a parked call": (CALLS, lambda _: client.park()),
    }
    for name, (count, work) in kinds.items():
        sizes = bytes_of(redis, replica, work, count)
        found[f"bytes of Redis and of weir for {name}"] = sizes


def measure(options):
    upstream = Upstream(("127.0.0.1", 0), Server)
    threading.Thread(target=upstream.serve_forever, daemon=True).start()
    found, processes = Figures(sessions=options.sessions), []
    with tempfile.TemporaryDirectory() as folder:
        try:
            redis = Redis(folder)
            processes.append(redis.process)
            replicas = []
            for name in ("one", "two"):
                replicas.append(Replica(options.weir, folder, redis, upstream.server_address[1], name))
                processes.append(replicas[-1].process)
            owner, other = (Client(replica) for replica in replicas)
            # The first session brings scripts, connections and the upstream's session.
            owner.call(owner.open())
            idle = idle_rates(redis, 10)
            found["commands a second of an idle replica"] = {name: round(rate / 2, 2) for name, rate in sorted(idle.items())}
            before = redis.used(), replicas[0].resident()
            scripts, processor = redis.commands()["evalsha"], redis.processor_time()
            sessions = []
            found["commands to open a session"] = commands_of(redis, lambda _: sessions.append(owner.open()), options.sessions, idle)
            after = redis.used(), replicas[0].resident()
            found["bytes of Redis for a session"] = round((after[0] - before[0]) / options.sessions)
            found["resident bytes of weir for a session"] = round((after[1] - before[1]) / options.sessions)
            key = next(key for key in redis.run("--scan", "--pattern", "weir:s:*").splitlines())
            found["bytes of Redis for its key (MEMORY USAGE)"] = int(redis.run("MEMORY", "USAGE", key))
            scripts = redis.commands()["evalsha"] - scripts
            found["microseconds of Redis for a script, its connection included"] = round((redis.processor_time() - processor) / scripts)
            some = sessions[: options.sessions // 2]
            found["commands of a call at the owner"] = commands_of(redis, lambda at: owner.call(some[at]), len(some), idle)
            found["commands of a forwarded call"] = commands_of(redis, lambda at: other.call(some[at]), len(some), idle)
            measure_calls(found, redis, replicas[0], owner, some[0])
            end = lambda at: owner.ask(None, sessions[-1 - at], "DELETE")
            found["commands to end a session"] = commands_of(redis, end, options.sessions // 4, idle)
            replicas[0].process.kill()
            replicas[0].process.wait()
            # The first one waits until the killed replica counts as ended.
            other.call(some[0])
            single = {name: rate / 2 for name, rate in idle.items()}
            found["commands to take a session over"] = commands_of(redis, lambda at: other.call(some[1 + at]), options.sessions // 4, single)
        finally:
            for process in processes:
                process.kill()
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weir", help="the binary")
    parser.add_argument("--sessions", type=int, default=5000)
    print(json.dumps(measure(parser.parse_args()), indent=2))
