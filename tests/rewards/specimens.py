"""A spec with its graders, and functions that write changed copies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mttp.rewards.spec import RewardSpec

SPEC = """\
mttp: reward-spec/1
name: gsm8k
version: 1.2.0
inputs: {completion: string, answer: string}
components:
  - {name: math, kind: verifier, use: "graders:math_reward", weight: 0.5, range: [0, 1]}
  - {name: format, kind: rubric, use: "graders:format_reward", weight: 0.3, range: [0, 1]}
  - {name: language, kind: rubric, use: "graders:language_reward", weight: 0.2, range: [0, 1]}
  - {name: no-tool-abuse, kind: check, use: "graders:no_tool_abuse"}
combine: weighted_sum
cases:                       # kinds: valid, unusual, near-miss, exploit, violation
  - name: right
    kind: valid
    input: {completion: "<think>5+3</think><answer>8</answer>", answer: "8"}
    expect: {value: 1.0}
  - name: number-soup
    kind: exploit
    input: {completion: "1 2 3 4 5 6 7 8", answer: "8"}
    expect: {value: {max: 0.7}}
  - {better: right, than: number-soup}
"""

GRADERS = '''\
"""Graders of a toy."""

import re

from helpers import SCALE, scaled

_ANSWER = re.compile("<answer>(.*?)</answer>")


def math_reward(completion, answer):
    """Whether the answer is right."""
    found = _ANSWER.search(completion)
    return scaled(found is not None and found[1] == answer)


def format_reward(completion):
    return 1.0 if "<think>" in completion else 0.0


def language_reward(completion):
    return 1.0


def no_tool_abuse(completion):
    return "rm -rf" not in completion
'''

HELPERS = """\
SCALE = 1.0
UNUSED = 1


def scaled(value):
    return float(value) * SCALE
"""


def write(folder: str = "specs", *, spec: str = SPEC, graders: str = GRADERS, helpers: str = HELPERS) -> Path:
    """Write the spec and its modules to a folder, and return the spec's path."""
    place = Path(folder)
    place.mkdir(parents=True, exist_ok=True)
    for name, text in (("gsm8k.yaml", spec), ("graders.py", graders), ("helpers.py", helpers)):
        (place / name).write_text(text)
    return place / "gsm8k.yaml"


def load(folder: str = "specs", **texts: str) -> RewardSpec:
    """Write the files and load the spec."""
    return RewardSpec.load(write(folder, **texts))


def changed(old: str, new: str, text: str = SPEC) -> str:
    """Return the text with one occurrence replaced, which must exist."""
    assert old in text, old
    return text.replace(old, new)


def small(**fields: Any) -> dict[str, Any]:
    """Return a spec document with one component as plain data."""
    component = {"name": "right", "kind": "verifier", "use": "graders:math_reward", "range": [0, 1]}
    document = {"mttp": "reward-spec/1", "name": "small", "version": "1.0.0", "components": [component]}
    return document | fields
