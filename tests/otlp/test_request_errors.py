"""What libraries raise, in plain words."""

from __future__ import annotations

import errno
import http.client
import socket
import urllib.error

import pytest
import requests
import urllib3

from mttp.otlp.request_errors import request_error


def caused(error: Exception, cause: Exception) -> Exception:
    """An error as it is raised from another."""
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ConnectionRefusedError(111, "refused"), "refused", "connection refused"),
        (urllib.error.URLError(ConnectionRefusedError(111, "refused")), "refused", "connection refused"),
        (socket.gaierror(-2, "not known"), "name", "unknown host name (not known)"),
        (TimeoutError("timed out"), "timeout", "no answer within 1.5 seconds"),
        (
            requests.ReadTimeout(caused(urllib3.exceptions.PoolError(None, "x"), TimeoutError())),  # type: ignore[arg-type]
            "timeout",
            "no answer within 1.5 seconds",
        ),
        (ConnectionResetError(104, "reset"), "closed", "the connection was closed without an answer"),
        (http.client.RemoteDisconnected("x"), "closed", "the connection was closed without an answer"),
        (http.client.BadStatusLine("SSH-2.0"), "foreign", "the server does not speak HTTP"),
        (http.client.IncompleteRead(b"abc", 7), "cut", "the answer ended after 3 bytes"),
        (urllib3.exceptions.IncompleteRead(3, 7), "cut", "the answer ended after 3 bytes"),
        (OSError(errno.ENETUNREACH, "Network is unreachable"), "other", "Network is unreachable"),
        (ValueError("odd  \n thing"), "other", "odd thing"),
        (ValueError(), "other", "ValueError"),
    ],
)
def test_the_cause_is_reported_whatever_it_is_wrapped_in(error: Exception, kind: str, said: str) -> None:
    """
    And its kind, so that the caller can give advice.
    """
    found = request_error(error, 1.5)

    assert (kind, True) == (found.kind, found.message.startswith(said)), found.message
