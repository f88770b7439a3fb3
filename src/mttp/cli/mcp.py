"""`mttp mcp`: recordings for coding agents, by the Model Context Protocol."""

from __future__ import annotations

from contextlib import closing

from mttp.cli.interrupts import until_interrupted
from mttp.cli.output import Sources

__all__ = ["mcp"]


def mcp(paths: Sources) -> None:
    """
    Serve recordings to a coding agent, by the Model Context Protocol.

    It speaks over standard input and output. The agent can list runs, diagnose and compare them, query their
    tables, draw learning curves, and read single episodes and groups. It reads these recordings and nothing
    else, and writes nothing. Recorded text is marked as data that no instruction may be taken from.
    Configure the agent to start this command, as by `claude mcp add runs -- mttp mcp runs/`.

    \b
    Examples:
      mttp mcp runs/
      mttp mcp runs/base.jsonl runs/new.jsonl

    \b
    Exit codes:
      0  Everything is fine: the agent ended the connection.
      2  Wrong usage, or input that can't be read.
    """
    from mttp.workflows.agent_tools import AgentTools, server

    with until_interrupted(), closing(AgentTools(paths)) as tools:
        server(tools).run("stdio")
