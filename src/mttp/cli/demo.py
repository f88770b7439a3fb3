"""`mttp demo`: train an agent, record its episodes, and read the recording back."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Protocol

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import mttp as package
from mttp.cli.output import Json, console, print_json, print_page, say
from mttp.errors import ConfigureError, MissingExtra
from mttp.semconv import attributes as a

__all__ = ["demo"]


class _OnEpisode(Protocol):
    def __call__(self, index: int, return_: float, /) -> None: ...


def demo(
    *,
    out: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The file to write; it must not exist.", show_default="runs/demo-N.jsonl"
        ),
    ] = Path(),
    episodes: Annotated[int, typer.Option(metavar="N", min=1, help="Number of episodes.")] = 300,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the run.")] = 0,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="URL",
            help="Also send episodes and metrics to this OTLP receiver: http://HOST:4318.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """
    Train a small agent on CartPole, record its episodes, and print a summary.

    \b
    Examples:
      mttp demo
      mttp demo --episodes 400 --seed 3 --out runs/pole.jsonl
      mttp demo --episodes 2000 --to http://localhost:4318

    \b
    Exit codes:
      0  Everything is fine.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.pages.summary import document, page
    from mttp.tables import summarize

    example = _example()
    path = _unused() if out == Path() else out
    if path.exists():
        raise ConfigureError(f"{path} exists; choose another file with --out")
    arguments = ["--episodes", str(episodes), "--seed", str(seed), "--out", str(path)]
    arguments += ["--to", to] if to is not None else []
    with _metrics(to), _progress(episodes) as on_episode:
        example.main(arguments, on_episode=on_episode)
    summary = summarize(path)
    if json:
        print_json(document(summary))
        return
    print_page(page(summary))
    _say_what_next(path)


def _example() -> ModuleType:
    """Import and return `examples/cartpole.py` of the package, or of the checkout."""
    home = Path(package.__file__).parent
    places = (home / "examples" / "cartpole.py", home.parents[1] / "examples" / "cartpole.py")
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        raise ConfigureError(f"the example is not at {' or '.join(map(str, places))}; install mttp again")
    spec = spec_from_file_location("mttp_example_cartpole", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise MissingExtra(package="gymnasium", extra="gymnasium", purpose="the demo") from error
    return module


@contextmanager
def _metrics(to: str | None) -> Iterator[None]:
    """Within the block, send training metrics to the receiver every second; only over HTTP."""
    if to is None or not to.startswith(("http://", "https://")):
        yield
        return
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.metrics import set_meter_provider
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource

    endpoint = f"{to.partition('?')[0].rstrip('/')}/v1/metrics"
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(endpoint), export_interval_millis=1000)
    provider = MeterProvider([reader], resource=Resource.create({a.SERVICE_NAME: "mttp"}))
    set_meter_provider(provider)
    try:
        yield
    finally:
        provider.shutdown()


def _unused() -> Path:
    """Return the first of runs/demo-1.jsonl, runs/demo-2.jsonl, … that does not exist."""
    number = 1
    while (path := Path("runs") / f"demo-{number}.jsonl").exists():
        number += 1
    return path


@contextmanager
def _progress(episodes: int) -> Iterator[_OnEpisode]:
    """Show a progress bar on standard error; without a terminal, a line every fifty episodes."""
    recent: deque[float] = deque(maxlen=50)

    def mean_with(return_: float) -> str:
        recent.append(return_)
        return f"mean return {sum(recent) / len(recent):5.1f}"

    def print_line(index: int, return_: float, /) -> None:
        text = mean_with(return_)
        if (index + 1) % 50 == 0:
            say(f"episode {index + 1:4d}  {text}", error=True)

    errors = console(error=True)
    if not errors.is_terminal:
        yield print_line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors) as bar:
        task = bar.add_task("training", total=episodes)

        def advance(_: int, return_: float, /) -> None:
            bar.update(task, advance=1, description=mean_with(return_))

        yield advance


def _say_what_next(path: Path) -> None:
    say(
        f"\nThe episodes are in {path}. Next:\n"
        f"  mttp report {path}                one HTML file: curves, findings, episodes\n"
        f"  mttp show {path}                  runs and episodes\n"
        f"  mttp show {path} --episode best   one episode, step by step\n"
        f"  mttp convert {path} demo.parquet  for DuckDB, pandas, polars\n"
        f"  python -c \"import mttp; print(mttp.read('{path}').episodes[0])\""
    )
