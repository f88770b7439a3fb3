"""The figures of a recording, from its tables."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mttp.codec import summary_fields
from mttp.model.gradings import OTHER, GraderHealth
from mttp.model.weighting import Weighting, weighting
from mttp.otlp.streams import Progress
from mttp.reading.identity import episodes_digest
from mttp.reading.problems import Problem
from mttp.reading.sources import Source
from mttp.tables.completeness import COMPLETENESS, complete_runs
from mttp.tables.database import Database
from mttp.tables.graders import GradersOfRuns, Queryable, graders_of_runs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mttp.model.episodes import Run

__all__ = [
    "HEALTH",
    "SUMMARY",
    "VERDICT_KEY",
    "VERDICT_SOURCE",
    "Health",
    "Labels",
    "PartialRewards",
    "RecordedVerdict",
    "Returns",
    "Summary",
    "Trend",
    "health",
    "summarize",
    "summary_of",
]

VERDICT_SOURCE, VERDICT_KEY = "mttp gate", "gate"
"""The source and the key of the annotations that `mttp gate --record` writes."""
_MAX_KINDS: Final = 100
"""The maximum number of kinds of faults, and of attributes left out, that are listed."""

_EPISODES = """
SELECT
    trace_id, run_id, coalesce(start_time, 0) AS start_time, duration, "return" AS recorded_return, advantage,
    length, counts,
    reward_status IN ('ok', 'missing') OR reward IS NULL OR "return" IS DISTINCT FROM reward
        AS is_return_counted,
    CASE WHEN counts AND is_return_counted THEN "return" END AS "return",
    coalesce(prompt_tokens, 0) AS prompt_tokens, coalesce(completion_tokens, 0) AS completion_tokens,
    CASE WHEN isfinite(cost_usd) THEN cost_usd END AS cost_usd,
    sampling_share,
    status AS statuses,
    CASE WHEN counts THEN outcome ELSE 'unknown' END AS outcomes,
    env AS envs,
    coalesce(nullif(concat_ws(' ', spec_name, spec_version), ''), '') AS specs,
    coalesce(task, '') AS tasks,
    counts_reason AS reasons
FROM episodes
"""
_LABELS: Final = ("statuses", "outcomes", "envs", "specs", "tasks", "reasons")
_IS_SPAN = "NOT contains(span_id, ':')"
_RUN = """coalesce("mttp.run.id", '')"""
_FAULTY = "('episode', 'segment', 'agent', 'step', 'steps', 'group', 'update', 'annotate')"
"""Types of spans whose faults count: those of a scoring are on the span of its target, too."""
_NAMES: Final = {
    "faults": f"""
        SELECT {_RUN} AS run_id, unnest("fault_kinds") AS name
        FROM spans
        WHERE (type IN {_FAULTY} OR place IN (SELECT place FROM roots WHERE NOT is_finished)) AND {_IS_SPAN}
    """,
    "omissions": f"""
        SELECT {_RUN} AS run_id, unnest("omitted_names") AS name
        FROM spans
        WHERE type NOT IN ('', 'run', 'run.start', 'eval.run', 'eval.run.start', 'eval.result') AND {_IS_SPAN}
    """,
}
"""Names of faults and of what was left out, by run."""
_NUMBERS: Final = {
    "groups": f"""
        SELECT {_RUN} AS run_id, count(DISTINCT trace_id) AS number
        FROM spans WHERE type = 'group' GROUP BY ALL
    """,
    "updates": f"""
        SELECT {_RUN} AS run_id, count(DISTINCT trace_id) AS number
        FROM spans WHERE type = 'update' GROUP BY ALL
    """,
    "annotations": f"""
        SELECT {_RUN} AS run_id, count(DISTINCT trace_id) AS number
        FROM spans WHERE type = 'annotate' AND {_IS_SPAN} GROUP BY ALL
    """,
    "invalid_step_rewards": f"""
        SELECT run_id, sum(number)::BIGINT AS number
        FROM (
            SELECT {_RUN} AS run_id, 1 AS number
            FROM spans
            WHERE type = 'step' AND {_IS_SPAN}
                AND "mttp.step.reward" IS NULL AND "mttp.step.reward_status" = 'error'
                AND "scores" IS NULL AND "score_statuses" IS NULL
                AND (trace_id, span_id) NOT IN (SELECT (trace_id, parent_id) FROM spans WHERE type = 'reward')
            UNION ALL
            SELECT
                {_RUN},
                "mttp.steps.reward_errors" - coalesce(len(list_filter(
                    from_json("step_gradings", '[{{"component": "VARCHAR", "status": "VARCHAR"}}]'),
                    lambda grading: grading.component = '' AND grading.status = 'error'
                )), 0)
            FROM spans
            WHERE type = 'steps' AND "mttp.steps.reward_errors" > 0
        )
        GROUP BY ALL
    """,
}
"""Numbers by run."""
_CALL_TOKENS = f"""
SELECT
    run_id,
    coalesce(sum(inputs), 0)::BIGINT AS inputs,
    coalesce(sum(outputs), 0)::BIGINT AS outputs
FROM (
    SELECT
        {_RUN} AS run_id, "gen_ai.usage.input_tokens" AS inputs, "gen_ai.usage.output_tokens" AS outputs
    FROM spans
    WHERE type = 'call' AND "mttp.run.id" IS NOT NULL AND "mttp.grader.name" IS NULL
    UNION ALL
    SELECT roots.run_id, "gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"
    FROM called
    JOIN spans USING (place)
    JOIN roots ON roots.trace_id = called.trace_id
    WHERE called.is_foreign AND "mttp.grader.name" IS NULL
)
GROUP BY ALL
"""
_TRENDS = f"""
SELECT
    run_id, name, count(*) AS count,
    arg_min(value, (start_time, span_id)) AS first,
    arg_max(value, (start_time, span_id)) AS last,
    favg(value) AS mean
FROM (
    UNPIVOT (
        SELECT
            {_RUN} AS run_id, start_time, span_id,
            "mttp.update.loss" AS loss, "mttp.update.kl" AS kl, "mttp.update.entropy" AS entropy
        FROM spans
        WHERE type = 'update'
    )
    ON loss, kl, entropy INTO NAME name VALUE value
)
WHERE isfinite(value)
GROUP BY GROUPING SETS ((run_id, name), (name))
"""
_VERDICTS = f"""
SELECT
    {_RUN} AS run_id, start_time, "label" AS verdict,
    coalesce("gen_ai.evaluation.explanation", '') AS evidence,
    coalesce("mttp.annotation.target_trace_id", '') AS episode
FROM spans
WHERE
    type = 'annotate' AND {_IS_SPAN}
    AND "mttp.annotation.source" = '{VERDICT_SOURCE}'
    AND "mttp.annotation.key" = 'mttp.metadata.{VERDICT_KEY}'
"""
_EVALS = """
SELECT count(DISTINCT coalesce("mttp.eval.id", trace_id)) AS number
FROM spans
WHERE type IN ('eval.run', 'eval.run.start', 'eval.result')
"""
SUMMARY: Final = (
    *(_EPISODES, *_NAMES.values(), *_NUMBERS.values(), _CALL_TOKENS, _TRENDS, _VERDICTS, _EVALS),
    *(COMPLETENESS, "SELECT run_id FROM gradings"),
)
"""The queries of `summary_of`."""


class _Columns:
    """Columns of the episodes, arrays of one entry per episode in order of start, then trace id."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], words: Mapping[str, tuple[str, ...]]) -> None:
        self._columns = columns
        self.words = words

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._columns[name]

    def __len__(self) -> int:
        return len(self._columns["start_time"])

    def where(self, mask: NDArray[np.bool_]) -> _Columns:
        """Return the rows of a mask."""
        return _Columns({name: column[mask] for name, column in self._columns.items()}, self.words)


class RecordedVerdict(NamedTuple):
    """A verdict of a gate that was recorded as a late fact."""

    time: int
    """Nanoseconds since the Unix epoch."""
    verdict: str
    """promote, reject or inconclusive."""
    evidence: str
    """The deciding rules, both sides and the rules."""
    episode: str
    """Trace id of the candidate's last episode."""


@dataclass(frozen=True, slots=True)
class Trend:
    """First, last and mean of a number over the updates of a run, in order of start."""

    count: int
    """Number of updates with a finite value."""
    first: float
    """The first finite value."""
    last: float
    """The last finite value."""
    mean: float
    """Arithmetic mean of the finite values."""


@dataclass(frozen=True, slots=True)
class Returns:
    """Returns of the episodes with one label."""

    episodes: int
    """Number of episodes with the label."""
    count: int
    """Number of their returns that are finite numbers."""
    mean: float | None
    """Arithmetic mean of these `count` returns; None if there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialRewards:
    """The rewards that lack something, beside the others: how it moved rewards and advantages."""

    count: int
    """Number of episodes whose reward was given although it lacks a component, or failed."""
    of: int
    """Number of episodes with a reward."""
    mean: float | None
    """Mean of these rewards."""
    mean_of_others: float | None
    """Mean of the rewards that lack nothing."""
    advantage: float | None
    """Mean advantage of these episodes; None if none is known."""
    advantage_of_others: float | None
    """Mean advantage of the episodes whose rewards lack nothing."""


class Labels:
    """
    One string per episode, stored as a code into the distinct strings, `words`.

    Iterating yields the strings in order of the episodes' start.
    """

    def __init__(
        self, words: tuple[str, ...], codes: NDArray[np.uint32], returns: NDArray[np.float64]
    ) -> None:
        self.words = words
        """The distinct strings."""
        self.codes = codes
        """Index into `words` for each episode, shape [episodes], in order of start."""
        self._returns = returns

    def __iter__(self) -> Iterator[str]:
        return (self.words[code] for code in self.codes)

    def counts(self) -> dict[str, int]:
        """Number of episodes per string, most frequent first."""
        by_count = sorted(
            Counter(self.codes.tolist()).items(), key=lambda item: (-item[1], self.words[item[0]])
        )
        return {self.words[code]: count for code, count in by_count}

    def returns(self) -> dict[str, Returns]:
        """Returns of the episodes per string, most frequent first."""
        finite: defaultdict[str, list[float]] = defaultdict(list)
        for code, return_ in zip(self.codes.tolist(), self._returns.tolist(), strict=True):
            if math.isfinite(return_):
                finite[self.words[code]].append(return_)
        return {
            word: Returns(count, len(finite[word]), _mean(finite[word]))
            for word, count in self.counts().items()
        }


def _mean(values: Sequence[float]) -> float | None:
    return math.fsum(value / len(values) for value in values) if values else None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Summary:
    """
    The figures of a recording.

    Arrays (`start_times`, `durations`, `returns`, `lengths`, `is_counted`) and labels (`statuses`,
    `outcomes`, `envs`, `specs`, `tasks`, `reasons`) have one entry per episode, in order of start, then
    trace id.
    An episode that does not count, by the rule of `mttp.model.counting`, has no return and no outcome.
    `by_run` has a summary of each run; with several runs, the figures of the summary itself are totals.
    `len(summary)` is the number of episodes.
    """

    columns: _Columns
    """The columns of the episodes."""
    graders: tuple[GraderHealth, ...] = ()
    """
    The health of each grader and component, from the last scoring of each episode, agent and step.

    Every score of a later annotation counts, with the scope `late`.
    """
    unlisted_gradings: int = 0
    """Number of gradings of graders beyond the first 1,000, which are not in `graders`."""
    invalid_step_rewards: int = 0
    """Number of steps whose reward is not a finite number and that have no scoring in `graders`."""
    faults: dict[str, int] = field(default_factory=dict)
    """Number of recorded faults by kind, most frequent first."""
    omissions: dict[str, int] = field(default_factory=dict)
    """How often each attribute was left out, withheld or redacted, most frequent first."""
    prompt_tokens: int = 0
    """Number of prompt tokens of the policies."""
    completion_tokens: int = 0
    """Number of completion tokens of the policies."""
    call_input_tokens: int = 0
    """Input tokens of called models, as they report them, without calls of graders."""
    call_output_tokens: int = 0
    """Output tokens of called models, as they report them, without calls of graders."""
    runs: list[Run] = field(default_factory=list)
    """Runs in order of start, one per process."""
    by_run: dict[str, Summary] = field(default_factory=dict)
    """The summary of each run by run id, in order of start; empty in the summary of a run."""
    groups: int = 0
    """Number of groups."""
    updates: int = 0
    """Number of updates."""
    loss: Trend | None = None
    """Loss of the updates; None if none has a finite one."""
    kl: Trend | None = None
    """KL divergence of the updates, in nats; None if none has a finite one."""
    entropy: Trend | None = None
    """Entropy of the policy in the updates, in nats; None if none has a finite one."""
    cost_usd: float | None = None
    """Sum of the episodes' costs in US dollars; None if no episode has a cost."""
    cost_count: int = 0
    """Number of episodes with a finite cost."""
    annotations: int = 0
    """Number of annotations."""
    verdicts: tuple[RecordedVerdict, ...] = ()
    """The verdicts that `mttp gate --record` has written, in order of time."""
    evals: int = 0
    """Number of evaluations."""
    problems: list[Problem] = field(default_factory=list)
    """Problems of the recording, without those that only `mttp.read` detects, such as `incomplete_group`."""
    sources: list[Path] = field(default_factory=list)
    """Paths of the files that were read, in order."""
    stores: list[str] = field(default_factory=list)
    """Trace stores, as `scheme:url`, and datasets that were read, in order."""
    duplicates: int = 0
    """Number of repeated spans of mttp that were dropped."""

    @property
    def statuses(self) -> Labels:
        """Status: completed, aborted, error or unfinished."""
        return self._labels("statuses")

    @property
    def outcomes(self) -> Labels:
        """Outcome: success, failure or unknown."""
        return self._labels("outcomes")

    @property
    def envs(self) -> Labels:
        """Id of the environment, empty if there is none."""
        return self._labels("envs")

    @property
    def specs(self) -> Labels:
        """Name and version of the reward spec, separated by a space; empty if there is none."""
        return self._labels("specs")

    @property
    def tasks(self) -> Labels:
        """Id of the task, empty if there is none."""
        return self._labels("tasks")

    @property
    def reasons(self) -> Labels:
        """Why it counts or not: counted, error, not_finished, cut_off or evaluation."""
        return self._labels("reasons")

    def _labels(self, name: str) -> Labels:
        return Labels(self.columns.words[name], self.columns[name], self.returns)

    @property
    def partial_rewards(self) -> PartialRewards | None:
        """The rewards that lack something; None if all are whole."""
        import numpy as np

        is_given = np.isfinite(self.columns["recorded_return"])
        is_whole = self.columns["is_return_counted"]
        if not np.any(is_given & ~is_whole):
            return None

        def mean(name: str, rows: NDArray[np.bool_]) -> float | None:
            values = self.columns[name][rows]
            return _mean(values[np.isfinite(values)].tolist())

        partial, whole = is_given & ~is_whole, is_given & is_whole
        return PartialRewards(
            count=int(partial.sum()),
            of=int(is_given.sum()),
            mean=mean("recorded_return", partial),
            mean_of_others=mean("recorded_return", whole),
            advantage=mean("advantage", partial),
            advantage_of_others=mean("advantage", whole),
        )

    def weighting(self, *, is_sample: bool) -> Weighting | None:
        """
        Return what the episodes say about their run if each counts by 1/share of its sampling.

        None if no share is below 1, unless `is_sample` says that episodes are missing.
        """
        worth = {"success": 1.0, "failure": 0.0}
        successes = [worth.get(outcome, math.nan) for outcome in self.outcomes]
        shares = self.columns["sampling_share"].tolist()
        return weighting(shares, self.returns.tolist(), successes, is_sample=is_sample)

    @property
    def failed_gradings(self) -> int:
        """Number of error, invalid and partial gradings of `graders`, plus `invalid_step_rewards`."""
        return sum(grader.failed for grader in self.graders) + self.invalid_step_rewards

    @property
    def start_times(self) -> NDArray[np.int64]:
        """Start times in nanoseconds since the Unix epoch, shape [episodes]; 0 if unknown."""
        return self.columns["start_time"]

    @property
    def durations(self) -> NDArray[np.float64]:
        """Seconds from start to end, shape [episodes]; NaN for unfinished episodes."""
        return self.columns["duration"]

    @property
    def returns(self) -> NDArray[np.float64]:
        """Returns, shape [episodes]; NaN if unknown, and of the episodes that do not count."""
        return self.columns["return"]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Numbers of environment steps, shape [episodes], also of the episodes that do not count."""
        return self.columns["length"]

    @property
    def is_counted(self) -> NDArray[np.bool_]:
        """Whether each episode counts in means, shape [episodes]."""
        return self.columns["counts"]

    @property
    def sha256(self) -> str:
        """Digest of the episodes, which annotations and the format of the file do not change."""
        numbers = ("length", "recorded_return", "duration")
        rows = zip(
            self.columns["trace_id"],
            self.columns["start_time"].tolist(),
            self.envs,
            self.tasks,
            self.statuses,
            *(self.columns[name].tolist() for name in numbers),
            strict=True,
        )
        return episodes_digest(rows)

    def __len__(self) -> int:
        return len(self.columns)

    def __repr__(self) -> str:
        steps = int(self.lengths.sum())
        counted = {"episode": len(self), "step": steps, "problem": len(self.problems)}
        counts = ", ".join(f"{count} {noun}{'' if count == 1 else 's'}" for noun, count in counted.items())
        return f"<Summary of {counts}>"


def summarize(source: Source, *, strict: bool = False, progress: Progress | None = None) -> Summary:
    """
    Read `source` and return its figures; the arguments and errors are those of `mttp.read`.

    The figures are those of the tables, whose table `episodes` has a row for each episode.
    Raises MissingExtra if DuckDB is not installed: `pip install 'mttp[study]'`.
    """
    with Database(source, strict=strict, progress=progress) as database:
        return summary_of(database)


def summary_of(database: Database, run_ids: Set[str] | None = None) -> Summary:
    """Return the figures of a database, with the runs that have these ids, by default all."""
    database.prepare(*SUMMARY)
    columns = _columns(database)
    runs = [run for run in complete_runs(database) if run_ids is None or run.id in run_ids]
    counts = _Counts(database, runs)
    episodes = Counter(columns["run_id"].tolist())
    starts = _starts(columns, runs)
    ids = sorted({*episodes, *counts.run_ids}, key=lambda run_id: (starts.get(run_id, 0), run_id))
    by_run = {
        run_id: _summary(
            columns if len(ids) == 1 else columns.where(columns["run_id"] == run_id),
            counts.of([run_id], run_id),
            runs=[run for run in runs if run.id == run_id],
        )
        for run_id in ids
    }
    return _summary(
        columns,
        counts.of(ids, None),
        runs=runs,
        by_run=by_run,
        evals=database.rows(_EVALS)[0]["number"],
        problems=database.problems,
        sources=database.sources,
        stores=database.stores,
        duplicates=database.duplicates,
    )


def _columns(database: Database) -> _Columns:
    import numpy as np

    columns = database.arrays(_EPISODES)
    words = {}
    for name in _LABELS:
        codes: dict[str, int] = {}
        column = (codes.setdefault(word, len(codes)) for word in columns[name])
        columns[name] = np.fromiter(column, np.uint32, len(columns[name]))
        words[name] = tuple(codes)
    return _Columns(columns, words)


def _starts(columns: _Columns, runs: Iterable[Run]) -> dict[str, int]:
    """Return the start of each run; one without a run span starts with its first episode."""
    starts: dict[str, int] = {}
    episodes = zip(columns["run_id"].tolist(), columns["start_time"].tolist(), strict=True)
    for run_id, start in (*episodes, *((run.id, run.start_time or 0) for run in runs)):
        starts[run_id] = min(starts.get(run_id, start), start)
    return starts


class _Counts:
    """What is counted besides the episodes, by run."""

    def __init__(self, database: Database, runs: Iterable[Run]) -> None:
        self._numbers = {
            name: {row["run_id"]: row["number"] for row in database.rows(query)}
            for name, query in _NUMBERS.items()
        }
        self._names = {name: _names(database, query) for name, query in _NAMES.items()}
        for run in runs:
            self._names["faults"][run.id].update(map(summary_fields.fault_kind, run.faults))
            self._names["omissions"][run.id].update(map(summary_fields.omitted_name, run.omissions))
        self._call_tokens = {
            row["run_id"]: (row["inputs"], row["outputs"]) for row in database.rows(_CALL_TOKENS)
        }
        self._trends: defaultdict[str | None, dict[str, Trend]] = defaultdict(dict)
        for row in database.rows(_TRENDS):
            run_id, name = row.pop("run_id"), row.pop("name")
            self._trends[run_id][name] = Trend(**row)
        self._verdicts = _verdicts(database)
        self._graders = graders_of_runs(database)

    @property
    def run_ids(self) -> set[str]:
        """Ids of the runs that something is counted of."""
        counted = (*self._numbers.values(), *self._names.values(), self._call_tokens, self._graders)
        return {run_id for by_run in counted for run_id in by_run if run_id is not None}

    def of(self, run_ids: Sequence[str], key: str | None) -> dict[str, Any]:
        """Return the fields of a summary of these runs; `key` is the id of a single one."""
        tokens = [self._call_tokens.get(run_id, (0, 0)) for run_id in run_ids]
        graders = self._graders.get(key, GradersOfRuns())
        return {
            **{
                name: sum(by_run.get(run_id, 0) for run_id in run_ids)
                for name, by_run in self._numbers.items()
            },
            **{
                name: _most_first(sum((by_run[run_id] for run_id in run_ids), Counter()))
                for name, by_run in self._names.items()
            },
            "call_input_tokens": sum(inputs for inputs, _ in tokens),
            "call_output_tokens": sum(outputs for _, outputs in tokens),
            **self._trends[key],
            "verdicts": tuple(sorted(verdict for run_id, verdict in self._verdicts if run_id in run_ids)),
            "graders": graders.graders,
            "unlisted_gradings": graders.unlisted,
        }


def _names(database: Queryable, query: str) -> defaultdict[str, Counter[str]]:
    """Return the number of each name of a query, by run."""
    names: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in database.rows(f"SELECT *, count(*) AS number FROM ({query}) GROUP BY ALL"):
        names[row["run_id"]][row["name"]] += row["number"]
    return names


def _verdicts(database: Queryable) -> list[tuple[str, RecordedVerdict]]:
    """Return the recorded verdicts with their runs."""
    return [
        (
            row["run_id"],
            RecordedVerdict(row["start_time"], row["verdict"] or "", row["evidence"], row["episode"]),
        )
        for row in database.rows(_VERDICTS)
    ]


HEALTH: Final = ("SELECT run_id FROM gradings", _NAMES["faults"], _VERDICTS)
"""The queries of `health`."""


class Health(NamedTuple):
    """What went wrong in a recording, and what gates decided."""

    graders: tuple[GraderHealth, ...]
    faults: dict[str, int]
    verdicts: tuple[RecordedVerdict, ...]


def health(database: Queryable, runs: Iterable[Run], run_ids: Collection[str] | None = None) -> Health:
    """Return the health of runs, by default of all; the tables of `HEALTH` are computed in the database."""

    def is_wanted(run_id: str) -> bool:
        return run_ids is None or run_id in run_ids

    faults = Counter(
        summary_fields.fault_kind(fault) for run in runs if is_wanted(run.id) for fault in run.faults
    )
    for run_id, counter in _names(database, _NAMES["faults"]).items():
        faults.update(counter if is_wanted(run_id) else {})
    verdicts = tuple(sorted(verdict for run_id, verdict in _verdicts(database) if is_wanted(run_id)))
    of_runs = graders_of_runs(database, *_of_runs(run_ids))
    return Health(of_runs.get(None, GradersOfRuns()).graders, _most_first(faults), verdicts)


def _of_runs(run_ids: Collection[str] | None) -> tuple[str, dict[str, Any]]:
    """Return the condition of these runs, with its parameters."""
    return ("true", {}) if run_ids is None else ("run_id IN (SELECT unnest($runs))", {"runs": [*run_ids]})


def _most_first(names: Mapping[str, int]) -> dict[str, int]:
    """Return counts by name, most frequent first; names beyond the first `_MAX_KINDS` are one."""
    by_count = sorted(names.items(), key=lambda item: (-item[1], item[0]))
    listed = dict(by_count[:_MAX_KINDS])
    if others := sum(count for _, count in by_count[_MAX_KINDS:]):
        listed[OTHER] = listed.get(OTHER, 0) + others
    return listed


def _summary(columns: _Columns, counts: Mapping[str, Any], **facts: Any) -> Summary:
    costs = [cost for cost in columns["cost_usd"].tolist() if not math.isnan(cost)]
    return Summary(
        columns=columns,
        prompt_tokens=int(columns["prompt_tokens"].sum()),
        completion_tokens=int(columns["completion_tokens"].sum()),
        cost_usd=math.fsum(costs) if costs else None,
        cost_count=len(costs),
        **counts,
        **facts,
    )
