"""
Escaping of control characters in untrusted text: recorded text, file names, responses of receivers.

All log records of mttp pass `OneLine`; commands print through `visible` or `visible_json`.
"""

from __future__ import annotations

import logging
import re

__all__ = ["OneLine", "one_line", "visible", "visible_json"]

_C0 = r"\x00-\x1f"
_BEYOND_C0 = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1 control codes, line separators, bidirectional marks, lone surrogates."""
_CONTROL = re.compile(f"[{_C0}{_BEYOND_C0}]")
_CONTROL_IN_JSON = re.compile(f"[{_BEYOND_C0}]")
_VISIBLE = {"\n": "⏎", "\t": " ", "\r": ""}


def visible(text: object, *, lines: bool = False) -> str:
    """Return text with control characters escaped; with `lines`, its line breaks are kept."""
    if lines:
        return "\n".join(visible(line) for line in str(text).split("\n"))
    return _CONTROL.sub(_escaped, str(text))


def _escaped(match: re.Match[str]) -> str:
    code = ord(match[0])
    return _VISIBLE.get(match[0], f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def visible_json(document: str) -> str:
    """Return an equivalent JSON document with control characters escaped."""
    return _CONTROL_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", document)


def one_line(text: str) -> str:
    """Return text with a space for each character that is not printable."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


class OneLine(logging.Filter):
    """A logging filter that makes each message one line and escapes control characters in tracebacks."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Escape the record's message and traceback; always return True."""
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = one_line(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = visible(logging.Formatter().formatException(record.exc_info), lines=True)
        return True


logging.getLogger("mttp").addFilter(OneLine())
