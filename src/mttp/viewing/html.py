"""The HTML around the front end: a page with its data inside, or one that asks its server."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from html import escape
from importlib import resources

__all__ = ["asset", "report_html", "view_html"]

_ICON = (
    "data:image/svg+xml,"
    "%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 16'%3E"
    "%3Cpath d='M2 13V9h3v4zm4.5 0V3h3v10zm4.5 0V6h3v7z' fill='%230072b2'/%3E%3C/svg%3E"
)


@cache
def asset(name: str) -> str:
    """The text of a file of the front end."""
    return resources.files("mttp.viewing").joinpath("assets", name).read_text(encoding="utf-8")


def report_html(title: str, data: str) -> str:
    """A page with its data inside, a JSON document; nothing else is loaded."""
    script, style = asset("app.js"), asset("app.css")
    # A page may hold any text: `<` would end the script element, or open a comment.
    document = data.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:"
    return _page(
        title,
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<style>{style}</style>',
        f'<script type="application/json" id="mttp-report">{document}</script>\n<script>{script}</script>',
    )


def view_html(title: str, label_token: str = "") -> str:
    """A page that asks its server for data; with a token, it may also send labels."""
    labels = f'\n<meta name="mttp-labels" content="{escape(label_token)}">' if label_token else ""
    return _page(
        title,
        f'<link rel="stylesheet" href="app.css">\n<meta name="mttp-view" content="api/">{labels}',
        '<script src="app.js"></script>',
    )


def _hash(text: str) -> str:
    """The source expression by which a policy allows an inline script or style."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _page(title: str, head: str, body: str) -> str:
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<link rel="icon" href="{_ICON}">
{head}
</head>
<body>
<div id="app"></div>
<noscript>This page needs JavaScript.</noscript>
{body}
</body>
</html>
"""
