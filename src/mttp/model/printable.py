"""
Text from elsewhere as a terminal or a log may have it: recorded text, names of files, answers of receivers.

All warnings of mttp pass `OneLine`, and all that commands print passes `visible` or `visible_json`.
"""

from __future__ import annotations

import logging
import re

__all__ = ["OneLine", "one_line", "visible", "visible_json"]

_C0 = r"\x00-\x1f"
_OTHERS = r"\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""Control codes beyond ASCII, separators of lines, marks of direction, halves of a character."""
_ACTING = re.compile(f"[{_C0}{_OTHERS}]")
_ACTING_IN_JSON = re.compile(f"[{_OTHERS}]")
_VISIBLE = {"\n": "⏎", "\t": " ", "\r": ""}


def visible(text: object, *, lines: bool = False) -> str:
    """Text with the characters that act on a terminal spelled out; with `lines`, its line breaks stay."""
    if lines:
        return "\n".join(visible(line) for line in str(text).split("\n"))
    return _ACTING.sub(_spelled, str(text))


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    return _VISIBLE.get(found[0], f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def visible_json(document: str) -> str:
    """A JSON document that reads back as it was, with the characters that act on a terminal escaped."""
    return _ACTING_IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", document)


def one_line(text: str) -> str:
    """Text without control characters, which a terminal or a log would act on."""
    return text if text.isprintable() else "".join(c if c.isprintable() else " " for c in text)


class OneLine(logging.Filter):
    """Lets every record through, its message as one line and its traceback without control codes."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace what would act on a terminal."""
        message = record.getMessage()
        if not message.isprintable():
            record.msg, record.args = one_line(message), ()
        if record.exc_info and not record.exc_text:
            record.exc_text = visible(logging.Formatter().formatException(record.exc_info), lines=True)
        return True


logging.getLogger("mttp").addFilter(OneLine())
