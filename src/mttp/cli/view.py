"""`mttp view`: recordings as live pages in a browser."""

from __future__ import annotations

import os
import secrets
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mttp.cli.files import LateFactsFile
from mttp.cli.interrupts import until_interrupted
from mttp.cli.output import Json, Sources, print_json, say
from mttp.errors import ConfigureError
from mttp.pages.words import count, visible

if TYPE_CHECKING:
    from mttp.viewing.labeling import Labeling
    from mttp.viewing.live import LivePages

__all__ = ["view"]

_LONGEST_END = 20.0
"""Seconds after which an interrupted command ends in any case."""


def view(
    paths: Sources,
    *,
    baseline: Annotated[
        list[str] | None,
        typer.Option("--baseline", metavar="BASE", help="Recording to compare with; may be repeated."),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="HOST", help="Address to listen on; others than loopback need a token."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="PORT", min=0, max=65_535, help="Port; 0 takes a free one.")
    ] = 8350,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            "--tokenizer", metavar="FILE", help="tokenizer.json, or its directory: shows the texts of tokens."
        ),
    ] = None,
    annotate: Annotated[
        str | None,
        typer.Option("--annotate", metavar="NAME", help="Label episodes by keys, as this person."),
    ] = None,
    random_share: Annotated[
        float,
        typer.Option(
            "--random-share",
            metavar="SHARE",
            min=0.0,
            max=1.0,
            help="Share of random episodes in the queue of --annotate.",
        ),
    ] = 0.25,
    browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    json: Json = False,
) -> None:
    """
    Show recordings as live pages in a browser, while the training writes them.

    The pages are those of mttp report. New episodes appear, filters stay, and the address of a list or an
    episode can be shared. Recordings are not loaded into memory: a million episodes can be searched, sorted
    and opened. Pages are read-only, and served on this machine only, unless --host names another address;
    then the printed address holds a token. With --json, prints one object with the address. Ctrl-C ends it.

    With --annotate, pages take scores, notes and preferences by keys, and write them as late facts into a new
    file beside the recording. A queue gives episodes of both tails of reward, those on which graders and
    people disagree, and random ones; each label keeps how its episode was chosen, and with what probability.

    \b
    Examples:
      mttp view runs/
      mttp view runs/new.jsonl --baseline runs/old.jsonl --open
      mttp view runs/ --host 0.0.0.0 --port 9000
      mttp view runs/ --annotate ada@example.com

    \b
    Exit codes:
      0  Everything is fine: ended by Ctrl-C.
      2  Wrong usage, input that can't be read, or a port that is in use.
    """
    watchdog = threading.Timer(_LONGEST_END, os._exit, (0,))  # a statement may hold up the end
    watchdog.daemon = True
    with until_interrupted():
        from mttp.viewing.live import LivePages
        from mttp.viewing.server import is_loopback, serve
        from mttp.viewing.token_texts import load_tokenizer

        pieces = None if tokenizer is None else load_tokenizer(tokenizer)
        token = None if is_loopback(host) else secrets.token_urlsafe(16)
        target = None if annotate is None else _label_file(paths)
        with closing(
            LivePages(paths, baseline=baseline, pieces=pieces, keep_annotations=target is not None)
        ) as pages:
            labels = _labeling(pages, target, annotate or "", random_share)
            pages.start()
            with closing(serve(pages, host, port, token=token, labels=labels)) as server:
                _announce(host, server.port, token, browser=browser, json=json)
                try:
                    with until_interrupted():
                        threading.Event().wait()
                finally:  # a second signal can come before it is ignored
                    watchdog.start()
    if watchdog.is_alive():
        watchdog.cancel()
        watchdog.join()
    if labels is not None and target is not None and target.path is not None:
        say(visible(f"wrote {count(labels.count, 'label')} to {target.path}"), error=json)
    if threading.active_count() > 1:  # the interpreter would wait for a thread that can't be broken off
        sys.stdout.flush()
        os._exit(0)


def _label_file(paths: Sequence[str]) -> LateFactsFile:
    if len(paths) != 1:
        raise ConfigureError(
            f"--annotate writes beside one recording, and {len(paths)} are given; give a file or a directory"
        )
    return LateFactsFile(Path(paths[0]))


def _labeling(
    pages: LivePages, target: LateFactsFile | None, by: str, random_share: float
) -> Labeling | None:
    from mttp.viewing.labeling import Labeling

    return None if target is None else Labeling(pages, target.add, by=by, random_share=random_share)


def _announce(host: str, port: int, token: str | None, *, browser: bool, json: bool) -> None:
    name = f"[{host}]" if ":" in host else host
    address = f"http://{name}:{port}/" + ("" if token is None else f"?token={token}")
    if json:
        print_json({"address": address})
    else:
        say(visible(f"{address}  (Ctrl-C ends it)"))
    if browser:
        import webbrowser

        webbrowser.open(address)
