"""The rollout process of TRL's AsyncGRPOTrainer records into the same run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import mttp

pytest.importorskip("trl")
pytest.importorskip("aiohttp")
pytest.importorskip("trl.experimental.async_grpo")

PROGRAM = """
import json, threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import mttp
from integrations import tiny

class Model(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        choice = {"token_ids": [7, 8, 1], "logprobs": {"token_logprobs": [-0.5, -0.25, -0.125]}}
        body = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

def correct(prompts, completions, completion_ids, answer, **_):
    return [*map(scored, prompts, completions, completion_ids, answer)]

def scored(prompt, completion, ids, answer):
    with mttp.episode(env="sums", inputs={"answer": answer}) as episode, episode.step() as step:
        step.observation(prompt)
        step.action(completion)
        step.tokens(ids)
        step.reward(float(completion[-1]["content"] == answer))
    return episode.return_

def main():
    from accelerate import PartialState
    from datasets import Dataset
    from trl.chat_template_utils import qwen3_chat_template
    from trl.experimental.async_grpo import async_rollout_worker as library

    PartialState(cpu=True)
    library.is_vllm_available = lambda: True  # the rollouts talk to a server, and need it no more than that
    server = ThreadingHTTPServer(("127.0.0.1", 0), Model)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = qwen3_chat_template
    dataset = Dataset.from_list([{"prompt": [{"role": "user", "content": "44+1="}], "answer": "45"}])
    with mttp.configure("file://runs/", run="async"):
        worker = library.AsyncRolloutWorker(
            model_name="tiny",
            dataset=dataset,
            reward_funcs=[correct],
            processing_class=tokenizer,
            eos_token_ids=[1],
            num_generations=2,
            max_inflight_tasks=2,
            queue_maxsize=8,
            vllm_server_url=f"http://127.0.0.1:{server.server_port}",
        )
        worker.start()
        samples = [worker.rollout_buffer.get(timeout=60) for _ in range(4)]
        worker.stop()
    print([sample.metrics["rewards/correct"] for sample in samples])

if __name__ == "__main__":
    main()
"""


def test_a_reward_function_in_trl_s_child_records_into_the_run(tmp_path: Path) -> None:
    """
    The spawned child finds run and transport in its environment variables, and writes everything before it
    ends.
    """
    (tmp_path / "program.py").write_text(PROGRAM)
    paths = os.pathsep.join(path for path in sys.path if path)
    quiet = {"TRL_EXPERIMENTAL_SILENCE": "1", "PYTHONPATH": paths}
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=tmp_path,
        env=os.environ | quiet,
        timeout=240,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )

    assert "[1.0, 1.0, 1.0, 1.0]" == done.stdout.splitlines()[-1]
    recording = mttp.read(tmp_path / "runs")
    assert (2, 1, [], 0) == (
        len({run.pid for run in recording.runs}),
        len({run.id for run in recording.runs}),
        recording.problems,
        recording.duplicates,
    )
    assert len(recording) >= 4
    assert {("sums", 1.0, True)} == {(each.env, each.return_, each.complete) for each in recording}
    (step,) = recording.episodes[0].steps
    assert ([7, 8, 1], "45") == (step.tokens.ids.tolist(), step.action[-1]["content"])
