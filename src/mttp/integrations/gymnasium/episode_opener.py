"""Opening the episodes of one environment with the facts that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from mttp.codec.plain import Faults, Written, to_json
from mttp.integrations.gymnasium.evaluating import split_of
from mttp.integrations.options import Options
from mttp.recording import configuration
from mttp.recording.open_episode import OpenEpisode, Template
from mttp.recording.session import Session

__all__ = ["EpisodeOpener", "OpenEnvEpisode"]


class OpenEnvEpisode(NamedTuple):
    """An open episode, its session and that session's recorder."""

    episode: OpenEpisode
    session: Session
    recorder: object

    def is_recording(self) -> bool:
        """Return False if the session was closed, or if this is a forked child."""
        return self.session._records_for(self.recorder)


class EpisodeOpener:
    """Opens the episodes of one environment; `identity` returns its facts and is called once."""

    def __init__(self, identity: Callable[[Faults], dict[str, Any]]) -> None:
        self._identity = identity
        self._env_facts: dict[str, Any] | None = None
        self._template: tuple[object, Template] | None = None
        """The attributes that all episodes share, and the run recorder that they are encoded for."""

    def open(self, options: Options, start: Mapping[str, Any]) -> OpenEnvEpisode | None:
        """Open an episode with the facts of its start; returns None without a session to record in."""
        session = configuration.recording_session()
        if session is None:
            return None
        faults: Faults = []
        if self._env_facts is None:
            self._env_facts = _with_encoded_documents(self._identity(faults), faults)
        if self._template is None or self._template[0] is not session._recorder:
            self._template = session._recorder, session._template(self._env_facts, faults)
        facts = {"split": split_of(session), **options.identity(), **start}
        if options.metadata:
            facts["metadata"] = {**(start.get("metadata") or {}), **options.metadata}
        episode = session._episode_from_template(self._template[1], facts)
        return OpenEnvEpisode(episode, session, session._recorder) if episode else None


def _with_encoded_documents(facts: dict[str, Any], faults: Faults) -> dict[str, Any]:
    """Return an environment's facts with the documents among them as JSON text, encoded once."""
    documents = {name: facts[name] for name in ("env_kwargs", "env_spaces") if facts.get(name)}
    return facts | {name: Written(to_json(value, faults)) for name, value in documents.items()}
