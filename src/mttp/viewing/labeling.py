"""Labels that a person gives while viewing: the queue of episodes with its probabilities, and late facts."""

from __future__ import annotations

import math
import random
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from mttp.codec import annotations as codec
from mttp.errors import ConfigureError
from mttp.model.draws import Label, Weights, label_rate, labels, preferences, weights
from mttp.model.episodes import Annotation, Reward
from mttp.model.spans import SpanRecord
from mttp.reading.labels import KnownIds
from mttp.rewards.agreement import agreement
from mttp.viewing.live import LivePages

__all__ = ["RANDOM_SHARE", "Labeling", "Write"]

Write = Callable[[Annotation, KnownIds], SpanRecord]
"""Writes an annotation as a late fact, and returns its span."""

RANDOM_SHARE: Final = 0.25
"""Share of the queue that is random."""
_MOST_DRAWS: Final = 10_000
_MOST_DISAGREEMENTS: Final = 50
_REWARD: Final = """
coalesce(
    CASE
        WHEN reward_status IN ('ok', 'missing')
            AND coalesce(reward_trace_id, '') NOT IN (SELECT unnest($late::VARCHAR[]))
            THEN reward
    END,
    "return"
)
"""
"""The reward by graders, else the return: a person's score is the reward where the program recorded none."""
_CANDIDATES: Final = f"""
WITH scored AS (
    SELECT trace_id, env, {_REWARD} AS reward FROM episodes WHERE status = 'completed'
),
people AS (
    SELECT unnest($people::VARCHAR[]) AS trace_id, unnest($scores::DOUBLE[]) AS score
),
-- Mid-ranks from 0 to 1 among the episodes that people scored: scales of graders and of people differ.
compared AS (
    SELECT
        trace_id, reward, score,
        (rank() OVER (PARTITION BY env ORDER BY reward) + (count(*) OVER (PARTITION BY env, reward)) / 2)
            / count(*) OVER (PARTITION BY env)
        - (rank() OVER (PARTITION BY env ORDER BY score) + (count(*) OVER (PARTITION BY env, score)) / 2)
            / count(*) OVER (PARTITION BY env) AS difference
    FROM scored
    JOIN people USING (trace_id)
    WHERE reward IS NOT NULL
),
flagged AS (
    SELECT
        trace_id,
        reward IS NOT NULL
            AND percent_rank() OVER (PARTITION BY env, reward IS NULL ORDER BY reward) < 0.1 AS is_low,
        reward IS NOT NULL
            AND percent_rank() OVER (PARTITION BY env, reward IS NULL ORDER BY reward DESC) < 0.1 AS is_high,
        coalesce(abs(compared.difference) > 0.25, false) AS is_disagreement
    FROM scored
    LEFT JOIN (SELECT trace_id, difference FROM compared) AS compared USING (trace_id)
),
candidates AS (
    FROM flagged WHERE trace_id NOT IN (SELECT unnest($drawn::VARCHAR[]))
)
"""
"""Episodes that the next draw can give; a tail is a tenth of an environment's, equal rewards included."""
_TARGETS: Final = {"is_low": "tail", "is_high": "tail", "is_disagreement": "disagreement"}
"""What is drawn besides random episodes, by column."""


@dataclass(frozen=True, slots=True)
class _Draw:
    """An episode that was drawn."""

    episode: str
    selection: str
    probability: float | None
    """None if not every candidate could be drawn."""
    candidates: int

    def of(self, annotation: Annotation) -> Annotation:
        """Return the annotation with how its episode was chosen."""
        return replace(
            annotation,
            selection=self.selection,
            selection_probability=self.probability,
            candidates=self.candidates,
        )


class Labeling:
    """
    The labels of the person `by`: draws episodes, records labels by `write`, and takes the last one back.

    `random_share` is the share of draws among all episodes that this person has not drawn; the others are of
    both tails of reward, and of disagreements between graders and people.
    """

    def __init__(
        self,
        pages: LivePages,
        write: Write,
        *,
        by: str,
        random_share: float = RANDOM_SHARE,
        seed: int | None = None,
    ) -> None:
        if not by.strip():
            raise ConfigureError("the name of the person who annotates is empty; give --annotate NAME")
        self.by = by
        self.token = secrets.token_urlsafe(16)
        """What a page must send with each change; pages of other sites can't read it."""
        self.count = 0
        """Number of late facts that were written."""
        self._pages = pages
        self._write = write
        self._random_share = random_share
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._draws: dict[str, _Draw] = {}
        """Draws by their keys."""
        self._written: dict[str, Annotation] = {}
        """What was written here, by trace id: pages read it a moment later."""
        self._undo: list[list[Annotation]] = []
        """What takes each label back, the last one last."""

    # The queue.

    def next(self, skipped: Collection[str] = ()) -> dict[str, Any]:
        """
        Return the next episode of the queue with the key of its draw; None where all are drawn.

        Raises ConfigureError while the recording is read for the first time: not all candidates are known.
        """
        if not self._pages.is_read:
            raise ConfigureError("the recording is still being read; ask for the next episode a little later")
        with self._lock:
            draw = self._drawn(skipped)
            if draw is None:
                return {"episode": None}
            key = secrets.token_urlsafe(8)
            self._draws[key] = draw
            if len(self._draws) > _MOST_DRAWS:
                self._draws.pop(next(iter(self._draws)))
            return {"draw": key, **asdict(draw)}

    def _drawn(self, skipped: Collection[str]) -> _Draw | None:
        people = self._people()
        labelled = {episode for episode, label in self._own().items() if _is_draw(label.draw)}
        parameters = {
            "people": [*people],
            "scores": [*people.values()],
            "late": self._late_scores(),
            "drawn": [*{*labelled, *skipped}],
        }
        counts = ", ".join(f"count(*) FILTER ({name}) AS {name}" for name in _TARGETS)
        with self._pages.snapshot() as database:
            (count,) = database.rows(
                f"{_CANDIDATES} SELECT count(*) AS candidates, {counts} FROM candidates", parameters
            )
            candidates = count["candidates"]
            if not candidates:
                return None
            targets = [name for name in _TARGETS if count[name]]
            is_random = not targets or self._random.random() < self._random_share
            target = "true" if is_random else self._random.choice(targets)
            place = self._random.randrange(candidates if is_random else count[target])
            (row,) = database.rows(
                f"{_CANDIDATES} FROM candidates WHERE {target} ORDER BY trace_id LIMIT 1 OFFSET {place}",
                parameters,
            )
        share = self._random_share if targets else 1.0
        targeted = sum(1 / count[name] for name in targets if row[name])
        probability = share / candidates + (1 - share) * targeted / max(len(targets), 1)
        return _Draw(
            episode=row["trace_id"],
            selection="random" if is_random else _TARGETS[target],
            probability=probability if share > 0 else None,
            candidates=candidates,
        )

    # Labels.

    def label(
        self,
        episode: str,
        *,
        draw: str = "",
        score: float | None = None,
        note: str | None = None,
        best: bool = False,
    ) -> dict[str, Any]:
        """
        Record a score from 0 to 1, a note, or that the episode is the best of its group.

        Return the episode's current labels. Raises ConfigureError for an unknown episode or draw, and for one
        without others in its group.
        """
        with self._lock:
            row = self._row(episode)
            chosen = self._draws.get(draw)
            if draw and (chosen is None or chosen.episode != episode):
                raise ConfigureError(f"draw={draw[:40]!r} is not a draw of episode {episode}; draw again")
            if score is not None:
                earlier = self._own().get(episode)
                self._record(row, self._score(score, chosen, earlier), [self._score_before(episode, earlier)])
            if note is not None:
                comment = Annotation(kind="comment", key="comment", value=note, episode=episode)
                self._record(row, _chosen(comment, chosen), [replace(comment, value=self._note(episode))])
            if best:
                self._prefer(row)
            return self._state(episode)

    def undo(self) -> dict[str, Any]:
        """Take the last label of this view back by a revision; raises ConfigureError if there is none."""
        with self._lock:
            if not self._undo:
                raise ConfigureError("there is no label of this view to undo")
            revisions = self._undo.pop()
            for annotation in revisions:
                self._put(self._row(annotation.episode), annotation)
            return {"episode": revisions[0].episode, **self._state(revisions[0].episode)}

    def of(self, episode: str) -> dict[str, Any]:
        """Return this person's current labels of an episode."""
        with self._lock:
            return self._state(episode)

    def _state(self, episode: str) -> dict[str, Any]:
        label = self._own().get(episode)
        best = [choice.episode for choice in preferences(self._mine()) if choice.episode == episode]
        return {
            "score": None if label is None else label.value,
            "selection": None if label is None else label.draw.selection,
            "note": self._note(episode),
            "best": bool(best),
        }

    def _score(self, value: float | None, draw: _Draw | None, earlier: Label | None) -> Annotation:
        """Return a score; it keeps how the episode was drawn first. None withdraws the score."""
        status = "missing" if value is None else "ok"
        reward = Reward(value=value, status=status, grader=self.by, grader_kind="human")
        score = Annotation(kind="score", key="score", value=value, reward=reward)
        if earlier is not None and _is_draw(earlier.draw):
            return _like(score, earlier.draw)
        return _chosen(score, draw)

    def _score_before(self, episode: str, earlier: Label | None) -> Annotation:
        """Return the score that takes the next one back."""
        score = self._score(None if earlier is None else earlier.value, None, None)
        score = replace(score, episode=episode, selection=None)
        return score if earlier is None else _like(score, earlier.draw)

    def _prefer(self, row: Mapping[str, Any]) -> None:
        """Record that the episode is better than the others of its group; another choice is taken back."""
        if row["group"] is None:
            raise ConfigureError(f"episode {row['trace_id']} is in no group")
        query = (
            'SELECT trace_id, run_id, span_id, "group" FROM episodes '
            'WHERE run_id = $run AND "group" = $group ORDER BY start_time, trace_id'
        )
        with self._pages.snapshot() as database:
            rows = database.rows(query, {"run": row["run_id"], "group": row["group"]})
        members = {member["trace_id"]: member for member in rows}
        others = tuple(episode for episode in members if episode != row["trace_id"])
        if not others:
            raise ConfigureError(f"episode {row['trace_id']} is the only one of its group")
        undone = [Annotation(kind="preference", key="preference", episode=row["trace_id"])]
        for earlier in preferences(self._mine()):
            if earlier.episode in members:
                self._put(members[earlier.episode], Annotation(kind="preference", key="preference"))
                undone.append(replace(earlier, revision=0))
        self._record(
            row, Annotation(kind="preference", key="preference", rejected=others, selection="hand"), undone
        )

    # What is recorded.

    def _record(self, row: Mapping[str, Any], annotation: Annotation, undone: list[Annotation]) -> None:
        self._put(row, annotation)
        self._undo.append(undone)

    def _put(self, row: Mapping[str, Any], annotation: Annotation) -> None:
        """Write an annotation with a revision above those of this person before."""
        episode, run_id = row["trace_id"], row["run_id"]
        latest = max((earlier.revision for earlier in self._mine()), default=0)
        revised = replace(
            annotation,
            episode=episode,
            run_id=run_id,
            by=self.by,
            revision=max(time.time_ns(), latest + 1),
        )
        span = self._write(revised, KnownIds(runs={episode: run_id}, roots={episode: row["span_id"]}))
        self._written[span.trace_id] = codec.decode(span)
        self.count += 1

    def _row(self, episode: str) -> Mapping[str, Any]:
        query = 'SELECT trace_id, run_id, span_id, "group" FROM episodes WHERE trace_id = $episode'
        with self._pages.snapshot() as database:
            rows = database.rows(query, {"episode": episode})
        if not rows:
            raise ConfigureError(f"there is no episode {episode[:40]!r} that has ended")
        return rows[0]

    def _annotations(self) -> Iterator[Annotation]:
        """Yield the annotations of whole episodes, those that pages have not read yet included."""
        for annotation in {**self._pages.annotations, **self._written}.values():
            if not annotation.on_step:
                yield annotation

    def _mine(self) -> list[Annotation]:
        return [annotation for annotation in self._annotations() if annotation.by == self.by]

    def _scores(self) -> dict[str, dict[str, Label]]:
        """Return the current scores of each person by episode."""
        by_person: dict[str, list[tuple[Annotation, float | None]]] = {}
        for score in self._annotations():
            if _is_of_person(score):
                is_number = isinstance(score.value, (int, float)) and math.isfinite(score.value)
                by = (score.reward.grader if score.reward is not None else None) or score.by or ""
                by_person.setdefault(by, []).append((score, float(score.value) if is_number else None))
        return {by: labels(scores) for by, scores in by_person.items()}

    def _late_scores(self) -> list[str]:
        """Return the trace ids of people's scores."""
        return [score.trace_id for score in self._annotations() if _is_of_person(score)]

    def _own(self) -> dict[str, Label]:
        return self._scores().get(self.by, {})

    def _people(self) -> dict[str, float]:
        """Return the mean of people's scores by episode."""
        by_episode: dict[str, list[float]] = {}
        for current in self._scores().values():
            for episode, label in current.items():
                by_episode.setdefault(episode, []).append(label.value)
        return {episode: math.fsum(values) / len(values) for episode, values in by_episode.items()}

    def _note(self, episode: str) -> str:
        """Return this person's current note."""
        notes = [note for note in self._mine() if note.kind == "comment" and note.episode == episode]
        return str(max(notes, key=lambda note: note.order).value or "") if notes else ""

    # What the labels say.

    def overview(self) -> dict[str, Any]:
        """Return the rates and agreements of each person's scores, and where graders and people disagree."""
        with self._lock:
            scores, people = self._scores(), self._people()
            rewards = f"""
                SELECT trace_id, env, {_REWARD} AS reward FROM episodes
                WHERE trace_id IN (SELECT unnest($people::VARCHAR[]))
            """
            differing = f"""
                {_CANDIDATES}
                SELECT trace_id AS episode, reward, score FROM compared WHERE abs(difference) > 0.25
                ORDER BY abs(difference) DESC, trace_id LIMIT {_MOST_DISAGREEMENTS}
            """
            with self._pages.snapshot() as database:
                late = self._late_scores()
                rewarded = database.rows(rewards, {"people": [*people], "late": late})
                parameters = {"people": [*people], "scores": [*people.values()], "late": late, "drawn": []}
                disagreements = database.rows(differing, parameters)
            rows = {row["trace_id"]: row for row in rewarded}
            return {
                "by": self.by,
                "random_share": self._random_share,
                "labels": [
                    {"env": env, **_statement(by, current, rows, env)}
                    for by, current in sorted(scores.items())
                    for env in sorted({rows[episode]["env"] for episode in current if episode in rows})
                ],
                "disagreements": disagreements,
            }


def _statement(
    by: str, current: Mapping[str, Label], rows: Mapping[str, Mapping[str, Any]], env: str
) -> dict[str, Any]:
    """Return the rate of a person's scores in one environment, and their agreement with the rewards."""
    weighed = weights(current)
    here = {episode: label for episode, label in current.items() if rows.get(episode, {}).get("env") == env}
    of = {episode: weight for episode, weight in weighed.of.items() if episode in here}
    left_out: dict[str, int] = {}
    for episode in here.keys() - of.keys():
        how = here[episode].draw.selection or "unknown"
        left_out[how] = left_out.get(how, 0) + 1
    rate = label_rate("score", by, here, Weights(of=of, left_out=left_out, method=weighed.method))
    pairs = [
        (float(rows[episode]["reward"]), here[episode].value, weight)
        for episode, weight in of.items()
        if rows[episode]["reward"] is not None and math.isfinite(rows[episode]["reward"])
    ]
    ranks = agreement([(reward, score) for reward, score, _ in pairs], [weight for *_, weight in pairs])
    return {**asdict(rate), "agreement": None if ranks is None else asdict(ranks)}


def _chosen(annotation: Annotation, draw: _Draw | None) -> Annotation:
    return replace(annotation, selection="hand") if draw is None else draw.of(annotation)


def _like(annotation: Annotation, draw: Annotation) -> Annotation:
    """Return the annotation with how the episode of another one was chosen."""
    return replace(
        annotation,
        selection=draw.selection,
        selection_probability=draw.selection_probability,
        candidates=draw.candidates,
    )


def _is_of_person(annotation: Annotation) -> bool:
    reward = annotation.reward
    return annotation.kind == "score" and reward is not None and reward.grader_kind in (None, "human")


def _is_draw(annotation: Annotation) -> bool:
    return annotation.selection not in (None, "hand")
