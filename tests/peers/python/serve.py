"""How a peer server meets the outside: stdio, or HTTP on a port that may be free to choose."""

import argparse
import socket

import uvicorn
from starlette.types import ASGIApp


def flags() -> argparse.Namespace:
    """`--transport stdio|http|sse` and `--port N`; port 0 takes a free one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--transport", choices=["stdio", "http", "sse"], default="stdio")
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


class Announcing(uvicorn.Server):
    """Says where it listens once it does."""

    def __init__(self, config: uvicorn.Config, path: str) -> None:
        super().__init__(config)
        self.path = path

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or []:
            print(f"listening http://127.0.0.1:{bound.getsockname()[1]}{self.path}", flush=True)


async def over_http(app: ASGIApp, port: int, path: str = "/mcp") -> None:
    """Serves `app` on loopback until the process is told to end."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    await Announcing(uvicorn.Config(app, log_level="warning"), path).serve(sockets=[bound])
