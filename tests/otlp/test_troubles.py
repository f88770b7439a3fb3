"""What libraries raise, in plain words."""

from __future__ import annotations

import errno
import http.client
import socket
import urllib.error

import pytest
import requests
import urllib3

from mttp.otlp.request_errors import trouble


def caused(error: Exception, cause: Exception) -> Exception:
    """An error as it is raised from another."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ConnectionRefusedError(111, "refused"), "nobody", "nobody listens there (connection refused)"),
        (urllib.error.URLError(ConnectionRefusedError(111, "refused")), "nobody", "nobody listens there"),
        (socket.gaierror(-2, "not known"), "name", "the host's name is unknown (not known)"),
        (TimeoutError("timed out"), "timeout", "no answer within 1.5 seconds"),
        (
            requests.ReadTimeout(caused(urllib3.exceptions.PoolError(None, "x"), TimeoutError())),  # type: ignore[arg-type]
            "timeout",
            "no answer within 1.5 seconds",
        ),
        (ConnectionResetError(104, "reset"), "closed", "the connection was closed without an answer"),
        (http.client.RemoteDisconnected("x"), "closed", "the connection was closed without an answer"),
        (http.client.BadStatusLine("SSH-2.0"), "foreign", "what answers there does not speak HTTP"),
        (http.client.IncompleteRead(b"abc", 7), "cut", "the answer broke off after 3 bytes"),
        (urllib3.exceptions.IncompleteRead(3, 7), "cut", "the answer broke off after 3 bytes"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "other", "it can't be reached (Network is"),
        (ValueError("odd  \n thing"), "other", "odd thing"),
        (ValueError(), "other", "ValueError"),
    ],
)
def test_the_cause_is_said_whatever_it_is_wrapped_in(error: Exception, kind: str, said: str) -> None:
    """
    And of which sort it is, so that whoever asked can say what to try.
    """
    found = trouble(error, 1.5)

    assert (kind, True) == (found.kind, found.said.startswith(said)), found.said
