"""A reward spec: its document, what it is identified by, and how it scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from mttp.errors import MissingExtra, SpecError
from mttp.model.episodes import Spec
from mttp.model.results import Ranking, RewardResult
from mttp.rewards import identity, locking, reward_range, scoring, writing
from mttp.rewards.callable_code import of_function
from mttp.rewards.callables import Policy, check_signature, resolve
from mttp.rewards.composing import COMBINE, described, parts_of
from mttp.rewards.document import CombiningFunction, ComponentEntry, SpecDocument
from mttp.rewards.episodic import EpisodeScorer
from mttp.rewards.includes import choose, refuse_version
from mttp.rewards.loading import document_of
from mttp.rewards.parsing import SpecSource, parse, read
from mttp.rewards.plan import Component, ScoringPlan
from mttp.rewards.static_analysis import Code, Coverage, of_target
from mttp.rewards.trainers import TrlReward
from mttp.rewards.trust import Trust, Trusted

__all__ = ["MAX_INCLUDED", "RewardSpec"]

MAX_INCLUDED: Final = 500
"""Most specs that a spec includes, with those that they include."""


class RewardSpec:
    """
    What is paid, by which rule, at which version.

    From a file with `load`, or made here of functions:

        RewardSpec(name="gsm8k", version="1.2.0", inputs={"completion": "string", "answer": "string"},
                   components=[math_reward, {"name": "format", "kind": "rubric", "use": format_reward}])

    A component is a decorated function, or a mapping as in a file, whose `use` may be a function.
    An include is a mapping as in a file, whose `spec` may be a RewardSpec; `combine` may be a function.
    Raises SpecError for what no file could say either.
    """

    def __init__(
        self,
        *,
        name: str,
        version: str,
        components: Iterable[object] = (),
        include: Iterable[Mapping[str, Any]] = (),
        folder: str | Path | None = None,
        trust: Trusted = False,
        **fields: Any,
    ) -> None:
        parts = parts_of(components, include, fields.get("combine"), RewardSpec)
        data = {"mttp": "reward-spec/1", "name": name, "version": version, **fields, **parts.fields}
        place = Path(folder) if folder is not None else None
        self._open(
            SpecSource(data=data),
            folder=place,
            trust=Trust.of(trust, place),
            functions=parts.functions,
            included=parts.included,
            chain=_Chain(),
        )

    @classmethod
    def load(cls, path: str | Path, *, trust: Trusted = False) -> RewardSpec:
        """
        The spec in a YAML or JSON file; its code is imported when it is first needed.

        Code in the file's directory, and in those below it, may be imported. `trust` names further modules,
        as the variable MTTP_TRUST does; True allows any. Nothing in the file does.
        Raises SpecError with file and line.
        """
        place = Path(path)
        lock = locking.read_lock(place)
        chain = _Chain(pins=lock.pins if lock is not None else {})
        return cls._load(place, trust=Trust.of(trust, place.parent), chain=chain)

    @classmethod
    def from_text(cls, text: str, *, folder: str | Path | None = None, trust: Trusted = False) -> RewardSpec:
        """The spec in a text; `folder` is where its modules, files and includes are looked for."""
        place = Path(folder) if folder is not None else None
        return cls._of(parse(text), place, Trust.of(trust, place))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, folder: str | Path | None = None, trust: Trusted = False
    ) -> RewardSpec:
        """The spec that plain data says, as a file would."""
        place = Path(folder) if folder is not None else None
        return cls._of(SpecSource(data=dict(data)), place, Trust.of(trust, place))

    @classmethod
    def _load(cls, path: Path, *, trust: Trust, chain: _Chain) -> RewardSpec:
        return cls._of(read(path), path.parent, trust, chain.longer(path))

    @classmethod
    def _of(
        cls, source: SpecSource, folder: Path | None, trust: Trust, chain: _Chain | None = None
    ) -> RewardSpec:
        spec = cls.__new__(cls)
        spec._open(source, folder=folder, trust=trust, chain=chain or _Chain())
        return spec

    def _open(
        self,
        source: SpecSource,
        *,
        folder: Path | None,
        trust: Trust,
        chain: _Chain,
        functions: Mapping[str, Callable[..., Any]] | None = None,
        included: Mapping[str, RewardSpec] | None = None,
    ) -> None:
        self.document: SpecDocument = document_of(source)
        """What the spec says."""
        self.source = source
        """Where it says so."""
        self.folder = folder.absolute() if folder is not None else None
        """Where its modules and files are looked for; None where it has no file."""
        self._trust = trust
        self._functions = dict(functions or {})
        self.included: Mapping[str, RewardSpec] = {
            **(included or {}),
            **self._include(folder, chain, included or {}),
        }
        """The included specs by their names here."""
        self._refuse_conflicts()

    @property
    def name(self) -> str:
        """Its name."""
        return self.document.name

    @property
    def version(self) -> str:
        """Its semantic version."""
        return self.document.version

    @property
    def path(self) -> Path | None:
        """Its file, wherever the process goes from here; None where it has none."""
        return self.folder / self.source.path.name if self.folder and self.source.path else None

    @cached_property
    def parts(self) -> Sequence[ComponentEntry]:
        """Its components, with an entry for each included spec."""
        found = reward_range.entries(self.document, {name: spec.range for name, spec in self.included.items()})
        return [
            one.model_copy(update=self.included[one.name]._as_part()) if one.name in self.included else one
            for one in found
        ]

    def _as_part(self) -> dict[str, Any]:
        """What its components make of it where another spec includes it."""
        scopes = {part.scope for part in self.parts}
        relative = any(part.relative for part in self.parts)
        return {"scope": "step" if scopes == {"step"} else "terminal", "relative": relative}

    @cached_property
    def range(self) -> tuple[float, float] | None:
        """Lowest and highest reward, stated or reachable; None where that is not known."""
        return reward_range.stated_or_reachable(self.document, self.parts)

    @property
    def floor(self) -> float:
        """What a sample gets where a check failed."""
        return reward_range.floor(self.document, self.parts)

    @cached_property
    def canonical(self) -> str:
        """The canonical JSON (RFC 8785) of what changes its scores."""
        included = {name: spec.sha256 for name, spec in self.included.items()}
        return identity.canonical(self.document, self.parts, included)

    @cached_property
    def sha256(self) -> str:
        """Digest of `canonical`, 64 hex digits: equal for specs that score alike, whatever their name."""
        return identity.digest(self.canonical)

    @cached_property
    def codes(self) -> Mapping[str, Code]:
        """The code of each function by its target, or by the component's name where it has none."""
        return self._codes()

    def _codes(self) -> dict[str, Code]:
        named: dict[str, tuple[str | None, Callable[..., Any] | None]] = {
            entry.name: (entry.use, self._functions.get(entry.name)) for entry in self.document.components
        }
        if isinstance(self.document.combine, CombiningFunction):
            named[COMBINE] = (self.document.combine.use, self._functions.get(COMBINE))
        return {use or name: self._code(use, function) for name, (use, function) in named.items()}

    @cached_property
    def code_sha256(self) -> str:
        """Digest of the code that scores, 64 hex digits; nothing is imported for it."""
        included = {name: spec.code_sha256 for name, spec in self.included.items()}
        return self._code_digest(included)

    @cached_property
    def own_code_sha256(self) -> str:
        """The same without the code of what it includes."""
        return self._code_digest({})

    @cached_property
    def code_coverage(self) -> Coverage:
        """full, partial or opaque: how much of the code `code_sha256` covers."""
        included = [spec.code_coverage for spec in self.included.values()]
        return identity.coverage(self.codes.values(), included)

    @cached_property
    def code_gaps(self) -> tuple[str, ...]:
        """Why `code_coverage` is not full: what is not in the digest, by component."""
        targets = {entry.name: entry.use or entry.name for entry in self.document.components}
        if isinstance(self.document.combine, CombiningFunction):
            targets[COMBINE] = self.document.combine.use or COMBINE
        own = [f"{name}: {gap}" for name, target in targets.items() for gap in self.codes[target].gaps]
        included = self.included.items()
        return (*own, *(f"{name}: {gap}" for name, spec in included for gap in spec.code_gaps))

    @cached_property
    def identity(self) -> Spec:
        """Name, version and digests, as every reward says them."""
        return Spec(
            name=self.name,
            version=self.version,
            sha256=self.sha256,
            code_sha256=self.code_sha256,
            code_coverage=self.code_coverage,
        )

    @cached_property
    def plan(self) -> ScoringPlan:
        """What scoring follows; its code is imported here. Raises SpecError where that can't be called."""
        path = self.path
        components = tuple(self._component(entry) for entry in self.parts)
        if self._codes() != self.codes:
            raise self.source.error("its code was changed after it was loaded; load it again")
        locking.warn(self)
        return ScoringPlan(
            identity=self.identity,
            inputs=self.document.inputs,
            components=components,
            combine=self._combine(),
            partial_credit=self.document.partial_credit,
            range=self.range,
            clip=self.document.clip,
            step_total=self.document.step_total,
            floor=self.floor,
            on_invalid=self.document.on_invalid,
            location=str(path) if path is not None else None,
            trust=self._trust,
            document=identity.recordable(self.to_dict()),
        )

    def everything(self) -> Iterator[RewardSpec]:
        """This spec, those that it includes, those that they include, and so on."""
        yield self
        for spec in self.included.values():
            yield from spec.everything()

    def to_dict(self) -> dict[str, Any]:
        """What its file says, as plain data, without what is left to defaults."""
        return described(self.document)

    def to_yaml(self) -> str:
        """What its file says, as YAML; raises SpecError where a file can't name a function."""
        self._refuse_unnamed()
        return writing.to_yaml(self.to_dict())

    def to_json(self) -> str:
        """What its file says, as JSON; raises SpecError as `to_yaml` does."""
        self._refuse_unnamed()
        return writing.to_json(self.to_dict())

    def score(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """
        What is paid for one sample, given by its inputs' names.

        Whatever a component does is in the result; raises NeedsGroup where one is relative.
        """
        return scoring.score(self.plan, _sample(sample, inputs))

    def score_step(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """The same for one step, by the components whose scope is a step."""
        return scoring.score_step(self.plan, _sample(sample, inputs))

    def for_episode(self) -> EpisodeScorer:
        """
        What scores one episode's steps and its end together: `step(...)` for each step, then `end(...)`.

        The sum of the steps stays within `step_total`, and a check that fails in a step gates the end.
        """
        return EpisodeScorer(self.plan)

    async def ascore(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """As `score`, with asynchronous components and judges side by side."""
        return await scoring.ascore(self.plan, _sample(sample, inputs))

    def score_batch(
        self, samples: Sequence[Mapping[str, Any]], *, concurrency: int = 1
    ) -> list[RewardResult]:
        """What is paid for each sample, in their order, as many at once as `concurrency` says."""
        return scoring.score_batch(self.plan, samples, concurrency=concurrency)

    def rank(self, group: Sequence[Mapping[str, Any]], *, seed: int | None = None) -> Ranking:
        """
        What is paid for the members of one group, whose relative components see all of them.

        With a `seed` they are shown in an order that is drawn with it.
        """
        return scoring.rank(self.plan, group, seed=seed)

    def for_trl(self, *, concurrency: int = 1, group_size: int | None = None) -> TrlReward:
        """
        The spec as one of TRL's `reward_funcs`, named as the spec.

        `concurrency` is that of `score_batch`; relative components need `group_size`, num_generations.
        Instrumented trainers record components, gates and identity of what it pays.
        Raises what `score` would of the spec itself: SpecError, MissingExtra.
        """
        _ = self.plan  # now, and not once the trainer has generated its first batch
        return TrlReward(self, concurrency=concurrency, group_size=group_size)

    def for_gymnasium(self, env: Any) -> Any:
        """
        The environment with the spec's rewards in place of its own, for Stable-Baselines3 and others.

        Raises SpecError where the spec can't pay every step a number, MissingExtra without Gymnasium.
        """
        try:
            environments = import_module("mttp.rewards.environments")
        except ModuleNotFoundError as error:
            if error.name != "gymnasium":
                raise
            raise MissingExtra(package="gymnasium", extra="gymnasium", purpose="for_gymnasium") from error
        _ = self.plan  # now, and not at the first step
        return environments.RewardedEnv(env, self)

    def __repr__(self) -> str:
        return f"RewardSpec({self.name!r}, {self.version!r}, components={[part.name for part in self.parts]})"

    def _refuse_unnamed(self) -> None:
        """Functions that were given here and can't be imported by a name."""
        stated = {entry.name: entry.use for entry in self.document.components}
        combine = self.document.combine
        stated[COMBINE] = combine.use if isinstance(combine, CombiningFunction) else None
        for name, function in self._functions.items():
            if stated[name] is None:
                what = "`combine`" if name == COMBINE else f"the component {name!r}"
                said = getattr(function, "__qualname__", type(function).__qualname__)
                raise SpecError(
                    f"{what} is {said}, which no file can name under `use`: "
                    "define a function in a module, and give that"
                )

    def _include(
        self, folder: Path | None, chain: _Chain, given: Mapping[str, RewardSpec]
    ) -> dict[str, RewardSpec]:
        """Load what the document includes and was not given here."""
        found: dict[str, RewardSpec] = {}
        for index, part in enumerate(self.document.include):

            def fail(reason: str, index: int = index) -> SpecError:
                return self.source.error(f"{reason}{chain}", "include", index, "spec")

            if part.as_ in given:
                refuse_version(part, given[part.as_].version, fail)
                continue
            chosen = choose(part, folder, fail, chain.pins)
            if chain.has(chosen.path):
                raise self.source.error(
                    f"the includes are a loop{chain.longer(chosen.path)}", "include", index, "spec"
                )
            chain.loaded.append(chosen.path)
            if len(chain.loaded) > MAX_INCLUDED:
                raise fail(f"more than {MAX_INCLUDED} specs are included, each counted as often as it is")
            trust = self._trust
            if chosen.package is not None:
                trust = trust.of_package(chosen.package, chosen.path.parent)
            found[part.as_] = RewardSpec._load(chosen.path, trust=trust, chain=chain)
        return found

    def _refuse_conflicts(self) -> None:
        """One name stands for one spec, wherever it is included."""
        found: dict[str, tuple[RewardSpec, str]] = {}
        for index, part in enumerate(self.document.include):
            for spec, way in self.included[part.as_]._ways(self.name):
                known, other = found.setdefault(spec.name, (spec, way))
                if (known.version, known.sha256) != (spec.version, spec.sha256):
                    raise self.source.error(
                        f"{spec.name} is included twice, as {known.version} ({other}) and as "
                        f"{spec.version} ({way}); ask for one version in both places",
                        "include",
                        index,
                    )

    def _ways(self, way: str) -> Iterator[tuple[RewardSpec, str]]:
        """This spec and those below it, each with how it came to be included."""
        way = f"{way} includes {self.name}"
        yield self, way
        for spec in self.included.values():
            yield from spec._ways(way)

    def _code_digest(self, included: Mapping[str, str]) -> str:
        return identity.code_digest(
            self.codes,
            included,
            {name: (self.folder or Path()) / name for name in self._depends()},
            self.document.distributions,
            lambda field, reason: self.source.error(reason, field),
        )

    def _depends(self) -> list[str]:
        names = [*self.document.depends, *(name for one in self.document.components for name in one.depends)]
        return sorted(set(names))

    def _code(self, use: str | None, function: Callable[..., Any] | None) -> Code:
        if function is not None:
            return of_function(function, self.document.distributions, self._depends())
        if use is None:
            return Code(coverage="opaque", gaps=("it names no code",))
        return of_target(use, self.folder, self.document.distributions, self._depends())

    def _component(self, entry: ComponentEntry) -> Component:
        if entry.name in self.included:
            return Component(entry=entry, plan=self.included[entry.name].plan)
        index = self.document.components.index(entry)
        function = self._function(entry.name, entry.use, "components", index)

        def fail(reason: str) -> SpecError:
            return self.source.error(reason, "components", index, "use")

        check_signature(function, entry, self.document, fail)
        return Component(entry=entry, function=function)

    def _combine(self) -> Any:
        combine = self.document.combine
        return (
            self._function(COMBINE, combine.use, "combine")
            if isinstance(combine, CombiningFunction)
            else combine
        )

    def _function(self, name: str, use: str | None, *at: str | int) -> Callable[..., Any]:
        if name in self._functions:
            return self._functions[name]
        if use is None:
            raise self.source.error(f"{name} has no `use`: say which function it is", *at)
        policy = Policy(self.folder, self._trust)
        return resolve(use, policy, lambda reason: self.source.error(reason, *at, "use"))


@dataclass(frozen=True, slots=True)
class _Chain:
    """How a spec came to be loaded."""

    paths: tuple[Path, ...] = ()
    """Its file, and before it those that include it."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Versions by name that the lock of the first has."""
    loaded: list[Path] = field(default_factory=list)
    """The files of all specs that the first includes so far, each as often as it was loaded."""

    def longer(self, path: Path) -> _Chain:
        return _Chain((*self.paths, path), self.pins, self.loaded)

    def has(self, path: Path) -> bool:
        return path.resolve() in [one.resolve() for one in self.paths]

    def __str__(self) -> str:
        return f" ({' includes '.join(map(str, self.paths))})" if len(self.paths) > 1 else ""


def _sample(sample: Mapping[str, Any] | None, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return inputs if sample is None else {**sample, **inputs}
