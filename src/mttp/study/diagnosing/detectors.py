"""The table of detectors, and `mttp.diagnose`, which runs them all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from mttp.otlp.streams import Progress
from mttp.reading import Recording
from mttp.reading.completeness import sampled
from mttp.reading.sources import Source
from mttp.study.diagnosing import components, control, grading, hacking, learning, policy, tasks
from mttp.study.diagnosing.evidence import EVIDENCE, RunEvidence, evidence_of
from mttp.study.diagnosing.false_alarms import FALSE_ALARM_METHOD, FALSE_ALARMS
from mttp.study.diagnosing.reading import reading_of, stopping
from mttp.study.diagnosis import SEVERITIES, Cleared, Diagnosis, DiagnosisFinding, NotJudged
from mttp.tables import Database
from mttp.tables.completeness import complete_runs
from mttp.tables.opening import open_tables

Result: TypeAlias = "DiagnosisFinding | Cleared | NotJudged"


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """One kind of problem, the function that looks for it, and what usually fixes it."""

    kind: str
    detect: Callable[[RunEvidence], Result]
    advice: str
    applies: Callable[[RunEvidence], bool] = lambda _: True
    """Whether a run of this kind could have the problem."""

    def run(self, run: RunEvidence) -> Result:
        """The result of the detector, with its kind."""
        result = self.detect(run)
        if isinstance(result, DiagnosisFinding):
            return replace(
                result,
                kind=self.kind,
                advice=self.advice,
                false_alarm_rate=FALSE_ALARMS[self.kind],
                false_alarm_method=FALSE_ALARM_METHOD,
            )
        return replace(result, kind=self.kind)


def _is_language(run: RunEvidence) -> bool:
    return run.is_language


def _has_spaces(run: RunEvidence) -> bool:
    return not run.is_language and any(episode.env_spaces for episode in run.episodes)


def _has_groups(run: RunEvidence) -> bool:
    return run.has_groups


def _has_graders(run: RunEvidence) -> bool:
    return run.has_graders


def _has_components(run: RunEvidence) -> bool:
    return len(run.components) > 1


def _has_updates(*fields: str) -> Callable[[RunEvidence], bool]:
    """Whether an update has one of the fields."""
    return lambda run: any(update[name] is not None for update in run.updates for name in fields)


def _has_divergence(run: RunEvidence) -> bool:
    return run.is_language or _has_updates("kl")(run)


DETECTORS: Final = (
    Detector(
        kind="reward_hacking",
        detect=hacking.reward_hacking,
        advice="read the example episodes, close the loophole in the reward, go back to a checkpoint "
        "before the divergence, and gate on the quality",
    ),
    Detector(
        kind="high_reward_low_quality",
        detect=hacking.high_reward_low_quality,
        advice="read the example episodes and add what they have in common as a check or a penalty of "
        "the spec",
    ),
    Detector(
        kind="reward_jump",
        detect=hacking.reward_jump,
        advice="compare episodes before and after the jump: a loophole was found, a grader changed, or"
        " a skill was learned",
    ),
    Detector(
        kind="perfect_rewards",
        detect=hacking.perfect_rewards,
        advice="audit a sample by hand; harder tasks or a finer reward give a signal again",
    ),
    Detector(
        kind="reward_length",
        detect=hacking.reward_length,
        applies=_is_language,
        advice="normalize the reward or the loss by length, or have the grader compare answers of "
        "equal length",
    ),
    Detector(
        kind="verbosity",
        detect=hacking.verbosity,
        applies=_is_language,
        advice="penalize length beyond what the task needs, and use a loss that does not favor long "
        "completions",
    ),
    Detector(
        kind="zero_variance_groups",
        detect=learning.zero_variance_groups,
        applies=_has_groups,
        advice="filter or resample such groups; where all fail give easier tasks or partial credit, "
        "where all pass harder ones",
    ),
    Detector(
        kind="kl_drift",
        detect=policy.kl_drift,
        applies=_has_divergence,
        advice="raise the KL coefficient, lower the learning rate, or go back to an earlier checkpoint",
    ),
    Detector(
        kind="over_optimization",
        detect=policy.over_optimization,
        applies=_has_divergence,
        advice="go back to the checkpoint with the best quality, and stop earlier or raise the KL "
        "coefficient",
    ),
    Detector(
        kind="entropy_collapse",
        detect=policy.entropy_collapse,
        advice="raise the entropy bonus or the sampling temperature, lower the learning rate, or clip "
        "less on the upper side",
    ),
    Detector(
        kind="diversity_collapse",
        detect=policy.diversity_collapse,
        applies=_has_groups,
        advice="raise the sampling temperature, reward different solutions, or train on tasks that are"
        " not solved yet",
    ),
    Detector(
        kind="repetition",
        detect=policy.repetition,
        applies=_is_language,
        advice="penalize repeated n-grams in the reward, and check the end-of-sequence token and the "
        "sampling parameters",
    ),
    Detector(
        kind="truncation",
        detect=learning.truncation,
        advice="raise the limit, or leave truncated episodes out of the loss instead of giving them a "
        "low reward",
    ),
    Detector(
        kind="sparse_rewards",
        detect=learning.sparse_rewards,
        advice="give partial credit by shaping or rubrics, begin with easier tasks, or sample more per task",
    ),
    Detector(
        kind="saturation",
        detect=learning.saturation,
        advice="stop, or go on with harder tasks, another reward or another learning rate",
    ),
    Detector(
        kind="missing_rewards",
        detect=grading.missing_rewards,
        advice="repair or retry the grader; leave failed rewards out of the update instead of counting"
        " them as zero",
    ),
    Detector(
        kind="grader_noise",
        detect=grading.grader_noise,
        applies=_has_graders,
        advice="average several calls of the grader, give it a rubric or a lower temperature, or use a"
        " verifier",
    ),
    Detector(
        kind="forgetting",
        detect=tasks.forgetting,
        advice="mix the lost tasks into training, or go back to the checkpoint before the drop",
    ),
    Detector(
        kind="grader_drift",
        detect=grading.grader_drift,
        applies=_has_graders,
        advice="pin the grader and the spec by version; rescore all episodes by one version with "
        "mttp.rescore",
    ),
    Detector(
        kind="data_drift",
        detect=tasks.data_drift,
        advice="shuffle tasks over the run, or compare rewards within tasks and not over time",
    ),
    Detector(
        kind="leakage",
        detect=tasks.leakage,
        applies=lambda run: run.is_language or run.has_prompts,
        advice="take leaked tasks out of one of the splits and evaluate again",
    ),
    Detector(
        kind="diverging_components",
        detect=components.diverging_components,
        applies=_has_components,
        advice="decide which component counts, name it by --quality, and weight the others so that they do"
        " not pay for its loss",
    ),
    Detector(
        kind="dead_components",
        detect=components.dead_components,
        applies=_has_components,
        advice="mend the component or take it out: it changes no ranking",
    ),
    Detector(
        kind="missing_components",
        detect=components.missing_components,
        applies=_has_components,
        advice="repair the component, or leave these rewards out instead of adding nothing for it",
    ),
    Detector(
        kind="update_spike",
        detect=policy.update_spike,
        applies=_has_updates("kl", "clip_fraction"),
        advice="go back to the checkpoint before the jump, and lower the learning rate or the clip range",
    ),
    Detector(
        kind="limit_terminated",
        detect=control.limit_terminated,
        applies=lambda run: not run.is_language,
        advice="report the time limit as truncated, so that the value of the last state counts",
    ),
    Detector(
        kind="dead_actions",
        detect=control.dead_actions,
        applies=_has_spaces,
        advice="check the mapping of actions, masks and the entropy bonus",
    ),
    Detector(
        kind="constant_observations",
        detect=control.constant_observations,
        applies=_has_spaces,
        advice="check the sensor or the wrapper, or leave these dimensions out",
    ),
    Detector(
        kind="explained_variance",
        detect=control.explained_variance,
        applies=_has_updates("explained_variance"),
        advice="scale rewards, give the critic more capacity or updates, or check its inputs",
    ),
    Detector(
        kind="growing_losses",
        detect=control.growing_losses,
        applies=_has_updates("value_loss", "grad_norm"),
        advice="normalize rewards or returns, and clip the gradient",
    ),
    Detector(
        kind="seed_collapse",
        detect=control.seed_collapse,
        applies=lambda run: len(run.levels) > 1,
        advice="look at this seed's first updates; report all seeds, and not the mean alone",
    ),
)
"""Every detector; each has one entry in every diagnosis."""


def diagnose(
    source: Source | Recording | Database,
    *,
    quality: str | None = None,
    run: str | None = None,
    progress: Progress | None = None,
) -> Diagnosis:
    """
    Diagnose a training run: reward hacking, collapse, drift, leakage and others.

    `source` is what `mttp.read` takes, a Recording, or the tables of one.
    `quality` names what the rewards should stand for: a late score by its grader, a split or `held_out` for
    the rewards of held-out episodes, or a metric such as `success`, `components.correct`, `metrics.audit`.
    By default it is the first of these with 8 values: a late score of a person, another late score, held-out
    episodes, recorded outcomes, a component of the kind verifier beside others.
    `run` is the id or name of the run, where the source holds several; by default the one that ends far below
    the others, if there is one.
    Training time is the order in which episodes start, in windows that are cut at policy updates where there
    are enough of these.
    Each detector is in `findings`, in `judged` where it found nothing, in `missing` with what it lacks, or in
    `inapplicable` where such a run can't have the problem.

    Raises ReadError where the source can't be read or holds no episodes, StudyError for an unknown quality or
    run and for several runs, MissingExtra without `mttp[study]`.
    """
    with open_tables(source, progress) as database:
        database.prepare(*EVIDENCE)
        complete_runs(database)
        evidence = evidence_of(database, quality=quality, run=run)
        with np.errstate(all="ignore"):
            applying = [detector for detector in DETECTORS if detector.applies(evidence)]
            results = [detector.run(evidence) for detector in applying]
            reading = reading_of(evidence)
    origin = source if isinstance(source, Recording) else database
    problems = [*dict.fromkeys(origin.problems)]
    findings = sorted(
        (result for result in results if isinstance(result, DiagnosisFinding)),
        key=lambda finding: SEVERITIES.index(finding.severity),
    )
    should_stop, advice = stopping(reading, findings)
    return Diagnosis(
        source=", ".join([*map(str, origin.sources), *origin.stores]) or "memory",
        episodes=len(evidence.episodes),
        updates=len(evidence.updates),
        quality=evidence.quality_name,
        findings=tuple(findings),
        judged=tuple(result for result in results if isinstance(result, Cleared)),
        missing=tuple(result for result in results if isinstance(result, NotJudged)),
        inapplicable=tuple(detector.kind for detector in DETECTORS if detector not in applying),
        reading=reading,
        should_stop=should_stop,
        advice=advice,
        problems=tuple(str(problem.message) for problem in problems),
        sampled=sampled(problems),
    )
