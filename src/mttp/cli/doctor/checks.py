"""The checks of `mttp doctor`, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from mttp.cli.doctor import endpoints, folders, packages, process, variables
from mttp.cli.doctor.findings import SetupFinding, error, ok
from mttp.cli.doctor.targets import SetupTarget, stated, targets
from mttp.errors import MttpError

__all__ = ["CHECKS", "ENDPOINT_CHECKS", "FOLDER_CHECKS", "run"]

CHECKS: tuple[Callable[[], Iterable[SetupFinding]], ...] = (
    packages.python,
    packages.dependencies,
    packages.extras,
    packages.libraries,
    variables.own_variables,
    variables.otel_variables,
    process.tracer_provider,
    process.encoding_process,
)
"""Checks of the machine and the environment."""
FOLDER_CHECKS: tuple[Callable[[SetupTarget], Iterable[SetupFinding]], ...] = (
    folders.writable,
    folders.disk,
    folders.spool,
)
"""Checks of a transport's folder."""
ENDPOINT_CHECKS: tuple[Callable[[SetupTarget, float], Iterable[SetupFinding]], ...] = (
    endpoints.connection,
    endpoints.tls,
    endpoints.request,
    endpoints.clock,
)
"""Checks of a transport's endpoint; after an error the later ones would only repeat it."""


def run(url: str | None, *, timeout: float) -> Iterator[SetupFinding]:
    """
    Yield what the checks find, also of the transport `url`, or of those that the environment states.

    `timeout` is the limit in seconds of each step at an endpoint.
    """
    for check in CHECKS:
        yield from _caught(check)
    yield from _caught(partial(_transports, url, timeout))


def _transports(url: str | None, timeout: float) -> Iterator[SetupFinding]:
    source, given = stated(url)
    try:
        found = list(targets(given))
    except MttpError as wrong:
        yield error("transport", f"{source}: {wrong}", "correct the address; docs/transports.md lists them")
        return
    if not found:
        yield error("transport", f"{source} select none: nothing is recorded", "set MTTP_TRANSPORT")
    for target in found:
        yield ok("transport", target.name)
        for check in FOLDER_CHECKS:
            yield from _caught(partial(check, target))
        yield from _endpoint(target, timeout) if target.host else ()


def _endpoint(target: SetupTarget, timeout: float) -> Iterator[SetupFinding]:
    for check in ENDPOINT_CHECKS:
        found = list(_caught(partial(check, target, timeout)))
        yield from found
        if any(finding.status == "error" for finding in found):
            return


def _caught(check: Callable[[], Iterable[SetupFinding]]) -> Iterator[SetupFinding]:
    """Yield what a check finds; one that raises is itself a finding, and the others run."""
    try:
        yield from check()
    except Exception as problem:
        name = getattr(getattr(check, "func", check), "__name__", "check").lstrip("_")
        yield error(name, f"the check failed: {type(problem).__name__}", "report it: this is a bug of mttp")
