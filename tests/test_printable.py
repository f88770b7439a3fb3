"""What comes from elsewhere, as a log and a terminal have it."""

from __future__ import annotations

import json
import logging

import pytest

from mttp.printable import visible, visible_json

EVIL = "a\x1b[31mb\nc\x9bd\u202ee\u061cf\u2028g\x07"


@pytest.mark.parametrize("name", ["message", "argument"])
def test_what_is_logged_acts_on_no_terminal(name: str, caplog: pytest.LogCaptureFixture) -> None:
    """
    Whether it stands in the message or in an argument; a message is one line.
    """
    logger = logging.getLogger("mttp")
    if name == "message":
        logger.warning(EVIL)
    else:
        logger.warning("mttp: %s of %d", EVIL, 7)

    assert caplog.messages[0].isprintable()
    assert "[31mb" in caplog.messages[0]


def test_a_traceback_acts_on_no_terminal(caplog: pytest.LogCaptureFixture) -> None:
    """
    Its line breaks stay, and the exception's text is spelled out.
    """
    try:
        raise ValueError(EVIL)
    except ValueError:
        logging.getLogger("mttp").exception("mttp: it failed")

    assert "\\x1b[31mb" in caplog.text
    assert not set("\x1b\x9b\u202e\u061c\u2028\x07") & set(caplog.text)


def test_text_has_its_acting_characters_spelled_out() -> None:
    """
    Line breaks stay only where lines were asked for.
    """
    assert "a\\x1b[31mb⏎c\\x9bd\\u202ee\\u061cf\\u2028g\\x07" == visible(EVIL)
    assert "a\nb" == visible("a\nb", lines=True)


def test_a_document_reads_back_as_it_was() -> None:
    """
    With lone surrogates, too.
    """
    document = visible_json(json.dumps({EVIL: "\x7f\ud800"}, ensure_ascii=False))

    assert {EVIL: "\x7f\ud800"} == json.loads(document)
    assert document.isprintable()
