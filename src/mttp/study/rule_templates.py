"""The files of promotion rules that `mttp gate --init` writes, by what is gated."""

from __future__ import annotations

from typing import Final

_HEAD = """\
# Promotion rules: `mttp gate CANDIDATE --rules promotion.yaml --baseline BASE`
#
# A rule passes if its one-sided confidence bound is on the right side of the limit,
# fails if the opposite bound is on the wrong side, and is inconclusive in between.
# What is missing counts against the candidate.
# Remove the first `# ` of each line of a rule to use it.

confidence: 0.95 # of one-sided bounds: a candidate that is just not good enough passes 1 time in 20
# allow: [tasks] # accepted differences between the sides: env, tasks, inputs, spec, grader, missing, sampled
"""

_PINS = """\

# baseline: # refuses a baseline that is another one, or old
#   run: base # its id or name
#   sha256: "0123456789abcdef" # `mttp summary` prints it
#   max_age: 30 days
"""

_ENV = """\
# window: 100 # last finished episodes of each training run that count: what it has learned, not the way there

# Evaluate the checkpoint, recorded with kind='eval': its episodes are independent.
# A training run is a learning curve, so each one is one value: one alone is inconclusive, use five seeds.

aggregate: # the mean over all episodes with other seeds, or over training runs
  - metric: return
    gain: 0.0 # better than the baseline by more than this
  # - metric: return
  #   min: 195 # what counts as solved, whatever the baseline reached

# protected: # no environment may get worse by more than the margin, in units of the return
#   - by: env
#     metric: return
#     margin: 10

# safety: # the share of episodes that fail a check or a component
#   - check: no_collision # fails below 0.5; for a penalty add `below: 0`
#     max: 0.05 # needs 59 episodes without a failure

# service:
#   - metric: duration
#     percentile: 95
#     max: 30 # seconds; needs 59 episodes

data:
  missing: 0.0 # an episode without a return is no success
  errors: 0.0 # a crash is a result of the policy, or the simulator is broken
  min_episodes: 50 # fewer show large gains only
  # min_tasks: 50 # seeds of the environment, so that not the same episode counts many times
  # min_runs: 5 # seeds of the training: fewer do not show how much they differ

# pins: # another environment, version, time limit or reward wrapper than the baseline's is refused anyway
#   env: CartPole-v1
"""

_LLM = """\

aggregate: # the mean over all tasks
  - metric: return # the mean score, each task counted once; of passes and failures that is pass@1
    margin: 0.05 # worse than the baseline by less than this; needs 52 tasks without a loss
  # - metric: pass@1
  #   min: 0.30 # the least that is of use, whatever the baseline reached
  # - metric: success
  #   gain: 0.0 # better than the baseline by more than this

# protected: # no slice may get worse by more than the margin; the baseline's labels hold
#   - by: split
#     metric: success
#     margin: 0.10 # each slice needs 25 tasks without a loss

# focus: # this slice must get better
#   - by: inputs.level
#     slice: hard
#     metric: success
#     gain: 0.0

# safety: # the share of episodes that fail a check or a component
#   - check: no_leak # fails below 0.5; for a penalty add `below: 0`
#     max: 0.05 # needs 59 tasks without a failure

# service: # longer answers are no better ones
#   - metric: tokens
#     max_ratio: 1.2 # of the baseline's mean; needs 10 tasks

# hacking: # high reward with low quality
#   - when: [reward >= 0.8, components.correct < 0.5]
#     max: 0.05 # needs 59 tasks without one

data:
  missing: 0.0 # share of episodes without a reward: those that fail are the first to be lost
  errors: 0.0 # share of episodes that ended by an error, or whose grading failed
  samples: same # as many samples of each task as the baseline: else the best could be chosen
  min_episodes: 52
  min_tasks: 52 # for the margin of 0.05; samples of one task are no more tasks

# pins: # rewards of another spec or grader are other rewards
#   spec: maths@1.2.0
#   grader: judge@2024-06
"""

_EVAL = """\

aggregate: # the mean over all tasks
  - metric: return # the mean score, each task counted once
    margin: 0.05 # worse than the baseline by less than this; needs 52 tasks without a loss
  - metric: coverage # the share that neither policy nor grader abstained from
    min: 0.90 # else accuracy is that of the easy tasks; needs 25 tasks without an abstention
  # - metric: accuracy_when_answered
  #   min: 0.50 # of those that were answered: what a user who gets an answer sees

# protected: # no slice may get worse by more than the margin; the baseline's labels hold
#   - by: split
#     metric: success
#     margin: 0.10 # each slice needs 25 tasks without a loss

# service:
#   - metric: time_to_first_token
#     percentile: 95
#     max: 2.0 # seconds; needs 59 episodes
#   - metric: tokens
#     max_ratio: 1.2 # of the baseline's mean; needs 10 tasks

data:
  missing: 0.0 # share of episodes without a score; an abstention is one of them
  errors: 0.0 # share of episodes that ended by an error, or whose grading failed
  samples: same # as many samples of each task as the baseline: else the best could be chosen
  min_episodes: 52
  min_tasks: 52 # for the margin of 0.05; samples of one task are no more tasks

# pins: # scores of another grader are other scores
#   grader: judge@2024-06
"""

DEFAULT: Final = "llm"
TEMPLATES: Final = {"env": _HEAD + _ENV + _PINS, "llm": _HEAD + _LLM + _PINS, "eval": _HEAD + _EVAL + _PINS}
"""Files of rules: for environments, for language models, and for evaluations by `mttp.evaluate`."""
