"""HTTP redirects that send the login only to the original host."""

from __future__ import annotations

from typing import Any
from urllib.request import HTTPRedirectHandler, Request


class SameHostRedirects(HTTPRedirectHandler):
    """Follows redirects; the Authorization header goes to the same scheme, host and port only."""

    def redirect_request(self, req: Request, *answer: Any) -> Request | None:
        redirected = super().redirect_request(req, *answer)
        login = req.unredirected_hdrs.get("Authorization")
        if redirected is None or (redirected.type, redirected.host) != (req.type, req.host):
            return redirected
        if login:
            redirected.add_unredirected_header("Authorization", login)
        return redirected
