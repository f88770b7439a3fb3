"""A taskset and a harness for verifiers that need no sandbox: the harness is a loop in this process."""

from __future__ import annotations

import httpx
import verifiers.v1 as vf

__all__ = ["TinyHarness", "TinyTaskset"]

TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        },
    },
}


class TinyData(vf.TaskData):
    """A sum and its answer."""

    answer: str


class TinyTask(vf.Task[TinyData]):
    """Asks for a sum."""

    @vf.reward(weight=0.8)
    async def correct(self, trace: vf.Trace) -> float:
        """Return 1 if the last reply has the answer; fails for the task without one."""
        if not self.data.answer:
            raise ValueError("the task has no answer")
        return float(self.data.answer in trace.last_reply)

    @vf.reward(weight=0.2)
    async def short(self, trace: vf.Trace) -> float:
        """Return the share of a limit that the last reply leaves."""
        return 1 - min(len(trace.last_reply), 100) / 100

    @vf.metric
    async def letters(self, trace: vf.Trace) -> float:
        """Return the length of the last reply."""
        return float(len(trace.last_reply))


class TinyTaskset(vf.Taskset[TinyTask]):
    """Three sums, of which the last has no answer."""

    def load(self):
        """Yield the tasks."""
        for number, answer in enumerate(("2", "4", "")):
            prompt = f"What is {number + 1} + {number + 1}?"
            yield TinyTask(TinyData(idx=number, prompt=prompt, answer=answer), self.config.task)


class TinyHarness(vf.Harness[vf.HarnessConfig]):
    """Asks the model, adds the numbers that it wants added, and asks again."""

    EXECUTES_CODE = False
    NEEDS_CONTAINER = False
    APPENDS_SYSTEM_PROMPT = True

    async def launch(
        self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None
    ) -> vf.ProgramResult:
        """Run the loop until the model calls no tool."""
        messages = [{"role": "user", "content": data.prompt}]
        async with httpx.AsyncClient(headers={"authorization": f"Bearer {secret}"}, timeout=30) as client:
            for _ in range(3):
                body = {"model": ctx.model, "messages": messages, "tools": [TOOL]}
                answer = await client.post(f"{endpoint}/chat/completions", json=body)
                answer.raise_for_status()
                message = answer.json()["choices"][0]["message"]
                messages.append(message)
                calls = message.get("tool_calls") or []
                if not calls:
                    break
                messages += [{"role": "tool", "tool_call_id": call["id"], "content": "4"} for call in calls]
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")
