"""Train with rollout workers, a reward service and a learner, each in a process of its own.

Three processes write the trace of an episode: the worker that plays it, the service that scores it, and the
learner that learns from it. Each process writes its own file in one directory.
"""

from __future__ import annotations

import argparse
import http.client
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import mttp

DIGITS, STEPS = 4, 4
GROUP_SIZE, GROUPS_PER_UPDATE = 8, 4
LEARNING_RATE = 4.0
AHEAD = 2
"""Updates whose episodes are played at the same time, so that no worker waits for the learner."""

Array = npt.NDArray[np.float64]
Headers = dict[str, str]
Score = Callable[[Headers, int, int], float]
"""Asks the reward service for the reward of an answer to a prompt."""


class Job(NamedTuple):
    """An episode to play."""

    group: str
    prompt: int
    policy: int
    """Number of updates that the policy has had."""
    logprobs: Array


class Sample(NamedTuple):
    """An episode that was played."""

    job: Job
    answer: int
    reward: float
    trace_id: str
    carrier: Headers
    """What the learner needs to continue the trace."""


class Role:
    """What is played by a process of its own."""

    def ready(self) -> None:
        """Return once the process is there."""

    def close(self) -> None:
        """Write the rest of what the process recorded."""
        if (session := mttp.current_session()) is not None:
            session.close()


class Worker(Role):
    """Plays episodes: it works on a sum in steps, and answers in the last one."""

    def __init__(self, number: int, work: float) -> None:
        self._rng = np.random.default_rng(number)
        self._work = work

    def play(self, job: Job, score: Score) -> Sample:
        """Play an episode, and ask for its reward while it is open."""
        left, right = divmod(job.prompt, DIGITS)
        policy: Any = {
            "policy": "table",
            "policy_version": str(job.policy),
            "policy_update_index": job.policy - 1,
        }
        with mttp.episode(env="sums", task=f"{left}+{right}", group=job.group, **policy) as episode:
            for _ in range(STEPS):
                with episode.step() as step:
                    _compute(self._work)
                    answer = int(self._rng.choice(len(job.logprobs), p=np.exp(job.logprobs)))
                    step.observation(f"{left}+{right}=?")
                    step.action(str(answer))
                    step.tokens(ids=[answer], logprobs=[job.logprobs[answer]])
            carrier = mttp.inject()
            reward = score(carrier, job.prompt, answer)
            episode.end(terminated=True, outcome="success" if reward == 1 else "failure")
        return Sample(job, answer, reward, episode.trace_id, carrier)


class Grader(Role):
    """Scores answers, in another process than the episode's."""

    def score(self, carrier: Headers, prompt: int, answer: int) -> float:
        """Return 1 for the sum, 0.2 next to it, else 0, and record it as the reward of the episode."""
        distance = abs(answer - sum(divmod(prompt, DIGITS)))
        with mttp.extract(carrier) as part:
            correct, near = float(distance == 0), float(distance <= 1)
            reward = 0.8 * correct + 0.2 * near
            weights = {"correct": 0.8, "near": 0.2}
            part.reward(reward, grader="sums", components={"correct": correct, "near": near}, weights=weights)
        return reward


class Learner(Role):
    """Makes answers with an advantage more likely, group by group."""

    def __init__(self, updates: int) -> None:
        self._rng = np.random.default_rng(0)
        self._logits = np.zeros((DIGITS * DIGITS, 2 * DIGITS - 1))
        self._groups: dict[str, list[Sample]] = {}
        self._batch: list[tuple[mttp.recording.OpenGroup, list[Sample]]] = []
        self._updates, self._asked, self._done = updates, 0, 0

    def begin(self) -> list[Job]:
        """Return the first episodes to play."""
        return [job for _ in range(AHEAD) for job in self._ask()]

    def take(self, sample: Sample) -> list[Job]:
        """Learn once there are enough groups; return further episodes to play."""
        members = self._groups.setdefault(sample.job.group, [])
        members.append(sample)
        if len(members) < GROUP_SIZE:
            return []
        episodes, rewards = [one.trace_id for one in members], [one.reward for one in members]
        group = mttp.group(sample.job.group, episodes, rewards=rewards, normalization="mean_std")
        self._batch.append((group, self._groups.pop(sample.job.group)))
        if len(self._batch) < GROUPS_PER_UPDATE:
            return []
        self._learn()
        return self._ask()

    def _learn(self) -> None:
        """Make an update of the batch, and record in each episode how far the policy had moved on from it."""
        gradient, loss = np.zeros_like(self._logits), 0.0
        count = GROUPS_PER_UPDATE * GROUP_SIZE
        for group, members in self._batch:
            for sample, advantage in zip(members, group.value.advantages, strict=True):
                logprobs, answer = self._logprobs(sample.job.prompt), sample.answer
                ratio = float(np.exp(logprobs[answer] - sample.job.logprobs[answer]))
                with mttp.extract(sample.carrier) as part:
                    part.metric("importance_ratio", ratio)
                step = advantage * ratio * (np.eye(len(logprobs))[answer] - np.exp(logprobs)) / count
                gradient[sample.job.prompt] -= step
                loss -= advantage * ratio / count
        self._logits -= LEARNING_RATE * gradient
        mttp.update(
            self._done,
            loss=float(loss),
            grad_norm=float(np.linalg.norm(gradient)),
            learning_rate=LEARNING_RATE,
            policy_version_after=str(self._done + 1),
            groups=[group for group, _ in self._batch],
        )
        self._batch, self._done = [], self._done + 1

    def _ask(self) -> list[Job]:
        """Return the episodes of one more update, unless enough were asked for."""
        if self._asked == self._updates:
            return []
        self._asked += 1
        prompts = [int(prompt) for prompt in self._rng.integers(len(self._logits), size=GROUPS_PER_UPDATE)]
        return [
            Job(f"{self._asked - 1}/{number}", prompt, self._done, self._logprobs(prompt))
            for number, prompt in enumerate(prompts)
            for _ in range(GROUP_SIZE)
        ]

    def _logprobs(self, prompt: int) -> Array:
        shifted = self._logits[prompt] - self._logits[prompt].max()
        return np.asarray(shifted - np.log(np.exp(shifted).sum()))


def _compute(milliseconds: float) -> None:
    """Use so much time of a processor: it stands for the policy and the environment."""
    matrix, end = np.eye(32), time.thread_time() + milliseconds / 1e3
    while time.thread_time() < end:
        matrix @= matrix


# Processes of multiprocessing: jobs and samples go through queues, rewards over HTTP.

PATIENCE = 60.0
"""Seconds without a sample after which something is wrong."""


def play(number: int, milliseconds: float, address: str, jobs: Any, samples: Any) -> None:
    """Play jobs, until there is none."""
    worker, connection = Worker(number, milliseconds), http.client.HTTPConnection(address)

    def score(carrier: Headers, prompt: int, answer: int) -> float:
        body = json.dumps({"prompt": prompt, "answer": answer})
        connection.request("POST", "/score", body, carrier)
        with connection.getresponse() as response:
            return float(json.load(response)["reward"])

    with mttp.configure():  # its transport and its run are those of the process that started it
        samples.put(None)  # it is ready
        while (job := jobs.get()) is not None:
            samples.put(worker.play(job, score))


class Service(BaseHTTPRequestHandler):
    """The reward service: a request has an answer in its body, and an episode's carrier in its headers."""

    protocol_version, disable_nagle_algorithm = "HTTP/1.1", True
    grader = Grader()

    def do_POST(self) -> None:
        """Respond with the reward."""
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        reward = self.grader.score(dict(self.headers), asked["prompt"], asked["answer"])
        body = json.dumps({"reward": reward}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def serve(addresses: Any, stop: Any) -> None:
    """Serve until `stop` is set."""
    with mttp.configure(), ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever).start()
        addresses.put(f"127.0.0.1:{server.server_port}")
        stop.wait()
        server.shutdown()


def learn(workers: int, updates: int, jobs: Any, samples: Any, seconds: Any) -> None:
    """Wait for the workers, then ask for episodes and learn from them; tell how long that took."""
    with mttp.configure():
        learner = Learner(updates)
        for _ in range(workers):
            samples.get(timeout=PATIENCE)
        start = time.perf_counter()
        for job in learner.begin():
            jobs.put(job)
        for _ in range(episodes_of(updates)):
            for job in learner.take(samples.get(timeout=PATIENCE)):
                jobs.put(job)
        seconds.put(time.perf_counter() - start)
        for _ in range(workers):
            jobs.put(None)


def with_processes(workers: int, updates: int, milliseconds: float) -> float:
    """Train with spawned processes; return the seconds from the first job to the last update."""
    spawn = multiprocessing.get_context("spawn")
    addresses, jobs, samples, seconds = (spawn.Queue() for _ in range(4))
    stop = spawn.Event()
    service = spawn.Process(target=serve, args=(addresses, stop))
    service.start()
    address = addresses.get(timeout=PATIENCE)
    learner = spawn.Process(target=learn, args=(workers, updates, jobs, samples, seconds))
    players = [
        spawn.Process(target=play, args=(number, milliseconds, address, jobs, samples))
        for number in range(workers)
    ]
    for process in (learner, *players):
        process.start()
    learner.join()
    if learner.exitcode:
        for process in (service, *players):
            process.terminate()
        sys.exit("the learner failed, or got no episode for a minute; see above")
    for process in players:
        process.join()
    stop.set()
    service.join()
    return float(seconds.get(timeout=PATIENCE))


# Actors of Ray: all of it goes through Ray, carriers as arguments.


class RayWorker(Worker):
    """Plays episodes, and asks an actor for their rewards."""

    def __init__(self, number: int, work: float, grader: Any) -> None:
        super().__init__(number, work)
        self._grader = grader

    def play_scored(self, job: Job) -> Sample:
        """Play an episode."""
        import ray

        return self.play(job, lambda *asked: float(ray.get(self._grader.score.remote(*asked))))


def with_ray(workers: int, updates: int, milliseconds: float) -> float:
    """Train with actors; return the seconds from the first job to the last update."""
    import ray

    variables = {name: os.environ[name] for name in ("MTTP_RUN_ID", "MTTP_TRANSPORT")}
    ray.init(num_cpus=workers + 2, include_dashboard=False, runtime_env={"env_vars": variables})
    grader, learner = ray.remote(Grader).remote(), ray.remote(Learner).remote(updates)
    players = [ray.remote(RayWorker).remote(number, milliseconds, grader) for number in range(workers)]
    jobs = ray.get(learner.begin.remote())
    ray.get([player.ready.remote() for player in (grader, *players)])
    playing: dict[Any, Any] = {}
    start = time.perf_counter()
    for _ in range(episodes_of(updates)):
        occupy(players, jobs, playing)
        (sample, *_), _ = ray.wait(list(playing))
        del playing[sample]
        more = learner.take.remote(sample)
        occupy(players, jobs, playing)
        jobs += ray.get(more)
    seconds = time.perf_counter() - start
    ray.get([actor.close.remote() for actor in (grader, learner, *players)])  # Ray ends them without notice
    ray.shutdown()
    return seconds


def occupy(players: Sequence[Any], jobs: list[Job], playing: dict[Any, Any]) -> None:
    """Give each actor that plays nothing a job; `playing` is the actor of each result that is awaited."""
    idle = [player for player in players if player not in playing.values()]
    for player in idle[: len(jobs)]:
        playing[player.play_scored.remote(jobs.pop(0))] = player


def episodes_of(updates: int) -> int:
    """Return the number of episodes of so many updates."""
    return updates * GROUPS_PER_UPDATE * GROUP_SIZE


def report(directory: str, run_id: str) -> None:
    """Print what a run's files say: whether each episode is whole, and from how many processes."""
    recording = mttp.read(directory)
    episodes = [episode for episode in recording if episode.run_id == run_id]
    complete = sum(episode.complete for episode in episodes)
    parts = " or ".join(map(str, sorted({1 + len(episode.segments) for episode in episodes})))
    print(f"  {complete} of {len(episodes)} episodes complete, each written by {parts} processes")
    learned = sum(bool(episode.consumed_by) for episode in episodes)
    groups = {episode.group for episode in episodes}
    print(f"  {learned} of them learned from, in {len(groups)} groups")


def main(argv: Sequence[str] | None = None) -> None:
    """Train once for each number of workers, and print how many episodes a second they play."""
    parser = argparse.ArgumentParser(description="Train with workers, a reward service and a learner.")
    parser.add_argument(
        "--workers", type=int, nargs="+", default=[2], metavar="N", help="numbers of workers (default: 2)"
    )
    parser.add_argument("--updates", type=int, default=4, help="updates to make (default: %(default)s)")
    parser.add_argument(
        "--work",
        type=float,
        default=20.0,
        metavar="MS",
        help="milliseconds that a step computes (default: %(default)g)",
    )
    parser.add_argument("--ray", action="store_true", help="use actors of Ray instead of processes")
    parser.add_argument("--out", default="runs/fleet", help="directory to write (default: %(default)s)")
    args = parser.parse_args(argv)
    if min(args.workers) < 1 or args.updates < 1 or args.work < 0:
        parser.error("--workers and --updates are at least 1, and --work is at least 0")

    train, alone = with_ray if args.ray else with_processes, None
    for workers in args.workers:
        settings = {"workers": workers, "updates": args.updates, "ray": args.ray}
        with mttp.configure(
            f"file://{args.out}/", run=f"fleet-{workers}", algorithm="grpo", config=settings
        ) as session:
            seconds = train(workers, args.updates, args.work)
        rate = episodes_of(args.updates) / seconds
        alone = rate if workers == 1 else alone
        beside = f", {rate / alone:.2f} times those of one" if alone and workers > 1 else ""
        print(f"{workers} {'worker' if workers == 1 else 'workers'}: {rate:.1f} episodes a second{beside}")
        report(args.out, session.run_id)


if __name__ == "__main__":
    main()
