"""The OAuth side of the Python client drivers: what an application brings to the SDK's own OAuth client. It keeps
everything in memory, knows no address but the MCP server's, and `browse` is the user's browser.

Both SDK generations have the same names here, but for the HTTP client and what a callback is."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import OAuthClientMetadata

# Nobody listens there: the browser stops where this begins.
REDIRECT = "http://127.0.0.1:8/callback"

# More redirects than any login takes.
MOST_STEPS = 20


class Account:
    """Storage and user of one SDK OAuth client."""

    def __init__(self, browser: Callable[[], Any]) -> None:
        """`browser` opens an HTTP client that keeps cookies and follows no redirects."""
        self.browser = browser
        self.tokens: Any = None
        self.client: Any = None
        self.callback: dict[str, str] = {}
        self.logins = 0
        self.saved = 0

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens
        self.saved += 1

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info

    async def redirected(self, url: str) -> None:
        self.logins += 1
        async with self.browser() as browser:
            for _ in range(MOST_STEPS):
                response = await browser.get(url)
                url = urljoin(url, response.headers["location"])
                if url.startswith(REDIRECT):
                    query = parse_qs(urlsplit(url).query)
                    self.callback = {name: values[0] for name, values in query.items()}
                    return
        raise AssertionError("redirects without an end")

    def provider(self, url: str, came_back: Callable[[dict[str, str]], Any]) -> OAuthClientProvider:
        """The SDK's OAuth client for the MCP server at `url`; `came_back` makes the SDK's idea of a callback."""

        async def callback() -> Any:
            return came_back(self.callback)

        wanted = OAuthClientMetadata.model_validate({
            "client_name": "weir peers",
            "redirect_uris": [REDIRECT],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        })
        redirected: Callable[[str], Awaitable[None]] = self.redirected
        return OAuthClientProvider(url, wanted, self, redirected, callback)
