"""Reward specs: loading them, their identity and scoring by them."""

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
from mttp.rewards.source_files import Code, Coverage, of_target
from mttp.rewards.trainers import TrlReward
from mttp.rewards.trust import Trust, Trusted

MAX_INCLUDED: Final = 500
"""The maximum number of specs that a spec includes, directly and indirectly."""


class RewardSpec:
    """
    A named, versioned definition of a reward: its components, how they combine, and cases that test it.

    Load a spec from a file with `RewardSpec.load`, or build one from functions:

        >>> import mttp
        >>> @mttp.rewards.verifier(range=(0, 1))
        ... def right(completion, answer):
        ...     return completion.strip() == answer
        >>> spec = mttp.RewardSpec(
        ...     name="exact",
        ...     version="1.0.0",
        ...     inputs={"completion": "string", "answer": "string"},
        ...     components=[right],
        ... )
        >>> result = spec.score(completion=" 8", answer="8")
        >>> result.value, result.verdict
        (1.0, 'pass')

    `name` (str) and `version` (str, a semantic version) identify the spec.
    `components` are decorated functions, or dicts with the keys of a component in a file; `use` may be a
    function. `include` are dicts with the keys of an include; `spec` may be a RewardSpec.
    `folder` (a path) is where modules, files and includes are looked up.
    `trust` names the modules outside of `folder` whose code may run (str or a collection of str); True trusts
    all code.
    Further keyword arguments are the other keys of a spec file: `inputs`, `combine` (may be a function of
    values and weights by name), `partial_credit`, `range`, `clip`, `step_total`, `floor`, `on_invalid`,
    `horizon`, `depends`, `distributions`, `cases` and `description`.

    Raises SpecError when an argument is not valid in a spec file.
    Scoring and reading files need `mttp[spec]`, and raise MissingExtra without it.
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
        Load a spec from a YAML or JSON file.

            spec = mttp.RewardSpec.load("specs/gsm8k.yaml")

        The spec's code is imported at the first use of `plan` or of a scoring method, not here.
        Modules in the file's directory and below it may be imported. `trust` (str or a collection of str)
        names further modules, as the environment variable MTTP_TRUST does; True trusts all code. A spec file
        can't extend this.

        Raises SpecError with file, line and column when the file can't be read or is not a valid spec, and
        MissingExtra without `mttp[spec]`.
        """
        place = Path(path)
        lock = locking.read_lock(place)
        chain = _Chain(pins=lock.pins if lock is not None else {})
        return cls._load(place, trust=Trust.of(trust, place.parent), chain=chain)

    @classmethod
    def from_text(cls, text: str, *, folder: str | Path | None = None, trust: Trusted = False) -> RewardSpec:
        """
        Parse a spec from YAML or JSON text.

        `folder` (a path) is where its modules, files and includes are looked up; `trust` is as for `load`.
        Raises SpecError with line and column when the text is not a valid spec.
        """
        place = Path(folder) if folder is not None else None
        return cls._of(parse(text), place, Trust.of(trust, place))

    @classmethod
    def from_dict(
        cls, data: Mapping[str, Any], *, folder: str | Path | None = None, trust: Trusted = False
    ) -> RewardSpec:
        """
        Build a spec from a dict with the keys of a spec file, such as `to_dict` returns.

        `folder` (a path) is where its modules, files and includes are looked up; `trust` is as for `load`.
        Raises SpecError when the dict is not a valid spec.
        """
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
        """The validated keys of the spec file."""
        self.source = source
        """The spec's data with line numbers, for error messages."""
        self.folder = folder.absolute() if folder is not None else None
        """The directory in which its modules and files are looked up; None without one."""
        self._trust = trust
        self._functions = dict(functions or {})
        self.included: Mapping[str, RewardSpec] = {
            **(included or {}),
            **self._include(folder, chain, included or {}),
        }
        """The included specs by the names that this spec gives them."""
        self._refuse_conflicts()

    @property
    def name(self) -> str:
        """The spec's name."""
        return self.document.name

    @property
    def version(self) -> str:
        """The spec's semantic version."""
        return self.document.version

    @property
    def path(self) -> Path | None:
        """The absolute path of the spec's file; None for a spec without a file."""
        return self.folder / self.source.path.name if self.folder and self.source.path else None

    @cached_property
    def parts(self) -> Sequence[ComponentEntry]:
        """The spec's components, with one entry for each included spec."""
        ranges = {name: spec.range for name, spec in self.included.items()}
        return [
            entry.model_copy(update=self.included[entry.name]._as_part())
            if entry.name in self.included
            else entry
            for entry in reward_range.entries(self.document, ranges)
        ]

    def _as_part(self) -> dict[str, Any]:
        """Return the scope and relativity of this spec as a component of another spec."""
        scopes = {part.scope for part in self.parts}
        relative = any(part.relative for part in self.parts)
        return {"scope": "step" if scopes == {"step"} else "terminal", "relative": relative}

    @cached_property
    def range(self) -> tuple[float, float] | None:
        """The lowest and highest reward, stated or derived; None if a component has no range."""
        return reward_range.stated_or_reachable(self.document, self.parts)

    @property
    def floor(self) -> float:
        """The reward of a sample that fails a check."""
        return reward_range.floor(self.document, self.parts)

    @cached_property
    def canonical(self) -> str:
        """The canonical JSON (RFC 8785) of the keys that affect scores."""
        included = {name: spec.sha256 for name, spec in self.included.items()}
        return identity.canonical(self.document, self.parts, included)

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of `canonical`, 64 hex digits; it does not depend on name, version or cases."""
        return identity.digest(self.canonical)

    @cached_property
    def codes(self) -> Mapping[str, Code]:
        """The code of each function by its `use` target, or by the component's name without one."""
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
        """The digest of the scoring code, `files:1:` and 64 hex digits; computing it imports nothing."""
        included = {name: spec.code_sha256 for name, spec in self.included.items()}
        return self._code_digest(included)

    @cached_property
    def own_code_sha256(self) -> str:
        """The digest of the scoring code without that of included specs, as `code_sha256`."""
        return self._code_digest({})

    @cached_property
    def code_coverage(self) -> Coverage:
        """How much of the scoring code `code_sha256` covers: full, partial or opaque."""
        included = [spec.code_coverage for spec in self.included.values()]
        return identity.coverage(self.codes.values(), included)

    @cached_property
    def code_gaps(self) -> tuple[str, ...]:
        """The reasons why `code_coverage` is not full, each starting with the component's name."""
        targets = {entry.name: entry.use or entry.name for entry in self.document.components}
        if isinstance(self.document.combine, CombiningFunction):
            targets[COMBINE] = self.document.combine.use or COMBINE
        gaps = [f"{name}: {gap}" for name, target in targets.items() for gap in self.codes[target].gaps]
        included = self.included.items()
        return (*gaps, *(f"{name}: {gap}" for name, spec in included for gap in spec.code_gaps))

    @cached_property
    def identity(self) -> Spec:
        """The name, version and digests that are recorded with every reward."""
        return Spec(
            name=self.name,
            version=self.version,
            sha256=self.sha256,
            code_sha256=self.code_sha256,
            code_coverage=self.code_coverage,
        )

    @cached_property
    def plan(self) -> ScoringPlan:
        """
        The spec ready to score, with its functions imported.

        Raises SpecError when a function is missing, is not trusted, or needs an input that the spec lacks.
        """
        path = self.path
        components = tuple(self._component(entry) for entry in self.parts)
        if self._codes() != self.codes:
            raise self.source.error("the spec's code changed after the spec was loaded; load the spec again")
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
        """Yield this spec and all specs that it includes, directly and indirectly."""
        yield self
        for spec in self.included.values():
            yield from spec.everything()

    def to_dict(self) -> dict[str, Any]:
        """Return the keys of the spec file as a dict of plain data, without defaults."""
        return described(self.document)

    def to_yaml(self) -> str:
        """Return the spec as YAML; raises SpecError when a function can't be named in a file, as a lambda."""
        self._refuse_unnamed()
        return writing.to_yaml(self.to_dict())

    def to_json(self) -> str:
        """Return the spec as JSON; raises SpecError when a function can't be named in a file, as a lambda."""
        self._refuse_unnamed()
        return writing.to_json(self.to_dict())

    def score(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """
        Score one sample by the components of scope `terminal`.

        The sample is a mapping from input name to value, keyword arguments, or both:

            result = spec.score(completion="<answer>8</answer>", answer="8")

        A component that raises, abstains, returns NaN or leaves its range does not raise here: its grade in
        `result.components` has the error, and `on_invalid` decides the reward. The same holds for a missing
        input and for one of another type. Inside an episode the scoring is recorded.

        Raises NeedsGroup when a component is relative, and SpecError when the spec's code can't be used or no
        component has the scope.
        """
        return scoring.score(self.plan, _sample(sample, inputs))

    def score_step(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """Score one step by the components of scope `step`; arguments and errors are those of `score`."""
        return scoring.score_step(self.plan, _sample(sample, inputs))

    def for_episode(self) -> EpisodeScorer:
        """
        Return a scorer for one episode: call its `step(...)` for each step, then its `end(...)`.

        The sum of the step rewards stays within `step_total`, and a check that fails in a step sets the
        end's reward to the floor. `total` is the sum of both.
        Raises SpecError when the spec's code can't be used.
        """
        return EpisodeScorer(self.plan)

    async def ascore(self, sample: Mapping[str, Any] | None = None, /, **inputs: Any) -> RewardResult:
        """Score one sample as `score` does, running asynchronous components and judges concurrently."""
        return await scoring.ascore(self.plan, _sample(sample, inputs))

    def score_batch(
        self, samples: Sequence[Mapping[str, Any]], *, concurrency: int = 1
    ) -> list[RewardResult]:
        """
        Score many samples, up to `concurrency` (int, 1 or more) at once in threads.

        Returns one result for each sample, in their order. A component with `arity: batch` is called once for
        all samples. The results are not recorded until you give them to an episode.
        Errors are those of `score`, and ValueError when `concurrency` is below 1.
        """
        return scoring.score_batch(self.plan, samples, concurrency=concurrency)

    def rank(self, group: Sequence[Mapping[str, Any]], *, seed: int | None = None) -> Ranking:
        """
        Score the samples of one group together, so that relative components can compare them.

        `seed` (int) shuffles the order in which relative components receive the samples; without it they get
        the group's order. `results` of the ranking are in the group's order, and not recorded until you give
        them to episodes. Raises SpecError when the group is empty or the spec's code can't be used.
        """
        return scoring.rank(self.plan, group, seed=seed)

    def for_trl(self, *, concurrency: int = 1, group_size: int | None = None) -> TrlReward:
        """
        Return the spec as a reward function for TRL, with the spec's name.

            trainer = GRPOTrainer(..., reward_funcs=[spec.for_trl()])

        `concurrency` is that of `score_batch`. `group_size` is the trainer's `num_generations`; relative
        components need it. A sample without a valid reward is None in the returned list.
        Instrumented trainers record components, failed checks and the spec's identity.
        Raises SpecError when the spec's code can't be used, and NeedsGroup without a needed `group_size`.
        """
        _ = self.plan  # fail here, not after the trainer has generated its first batch
        return TrlReward(self, concurrency=concurrency, group_size=group_size)

    def for_gymnasium(self, env: Any) -> Any:
        """
        Wrap a Gymnasium environment so that its rewards are those of the spec.

        A sample has `observation`, `action`, `reward` (the environment's own), `terminated`, `truncated`,
        `info`, `episode_return` and `episode_length`.
        Raises SpecError unless the spec has `on_invalid: floor` (every step needs a number), NeedsGroup when
        a component is relative, and MissingExtra without Gymnasium.
        """
        try:
            environments = import_module("mttp.rewards.environments")
        except ModuleNotFoundError as error:
            if error.name != "gymnasium":
                raise
            raise MissingExtra(package="gymnasium", extra="gymnasium", purpose="for_gymnasium") from error
        _ = self.plan  # fail here, not at the first step
        return environments.RewardedEnv(env, self)

    def __repr__(self) -> str:
        return f"RewardSpec({self.name!r}, {self.version!r}, components={[part.name for part in self.parts]})"

    def _refuse_unnamed(self) -> None:
        """Raise SpecError for a function that can't be imported by a name."""
        targets = {entry.name: entry.use for entry in self.document.components}
        combine = self.document.combine
        targets[COMBINE] = combine.use if isinstance(combine, CombiningFunction) else None
        for name, function in self._functions.items():
            if targets[name] is None:
                owner = "`combine`" if name == COMBINE else f"the component {name!r}"
                called = getattr(function, "__qualname__", type(function).__qualname__)
                raise SpecError(
                    f"{owner} uses {called}, which a file can't name under `use`; "
                    "define a function in a module and use that"
                )

    def _include(
        self, folder: Path | None, chain: _Chain, specs: Mapping[str, RewardSpec]
    ) -> dict[str, RewardSpec]:
        """Load the included specs, except those in `specs`."""
        included: dict[str, RewardSpec] = {}
        for index, part in enumerate(self.document.include):

            def fail(reason: str, index: int = index) -> SpecError:
                return self.source.error(f"{reason}{chain}", "include", index, "spec")

            if part.as_ in specs:
                refuse_version(part, specs[part.as_].version, fail)
                continue
            chosen = choose(part, folder, fail, chain.pins)
            if chain.has(chosen.path):
                raise self.source.error(
                    f"the includes form a cycle{chain.longer(chosen.path)}; remove one of them",
                    "include",
                    index,
                    "spec",
                )
            chain.loaded.append(chosen.path)
            if len(chain.loaded) > MAX_INCLUDED:
                raise fail(f"more than {MAX_INCLUDED} specs are included, counting repeated includes")
            trust = self._trust
            if chosen.package is not None:
                trust = trust.of_package(chosen.package, chosen.path.parent)
            included[part.as_] = RewardSpec._load(chosen.path, trust=trust, chain=chain)
        return included

    def _refuse_conflicts(self) -> None:
        """Raise SpecError when one name is included as two different specs."""
        specs: dict[str, tuple[RewardSpec, str]] = {}
        for index, part in enumerate(self.document.include):
            for spec, way in self.included[part.as_]._ways(self.name):
                known, other = specs.setdefault(spec.name, (spec, way))
                if (known.version, known.sha256) != (spec.version, spec.sha256):
                    raise self.source.error(
                        f"{spec.name} is included as {known.version} ({other}) and as "
                        f"{spec.version} ({way}); include one version in both places",
                        "include",
                        index,
                    )

    def _ways(self, way: str) -> Iterator[tuple[RewardSpec, str]]:
        """Yield this spec and all that it includes, each with the path of includes that leads to it."""
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
        return sorted({*self.document.depends}.union(*(part.depends for part in self.document.components)))

    def _code(self, use: str | None, function: Callable[..., Any] | None) -> Code:
        if function is not None:
            return of_function(function, self.document.distributions, self._depends())
        if use is None:
            return Code(coverage="opaque", gaps=("it has no `use`",))
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
            raise self.source.error(f'{name} has no `use`; name its function as "module:function"', *at)
        policy = Policy(self.folder, self._trust)
        return resolve(use, policy, lambda reason: self.source.error(reason, *at, "use"))


@dataclass(frozen=True, slots=True)
class _Chain:
    """The chain of includes through which a spec is loaded."""

    paths: tuple[Path, ...] = ()
    """The files from the first spec to this one."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Locked versions by name, from the first spec's lock."""
    loaded: list[Path] = field(default_factory=list)
    """Every file loaded for the first spec's includes so far, repeats counted."""

    def longer(self, path: Path) -> _Chain:
        return _Chain((*self.paths, path), self.pins, self.loaded)

    def has(self, path: Path) -> bool:
        return path.resolve() in [loaded_path.resolve() for loaded_path in self.paths]

    def __str__(self) -> str:
        return f" ({' includes '.join(map(str, self.paths))})" if len(self.paths) > 1 else ""


def _sample(sample: Mapping[str, Any] | None, inputs: Mapping[str, Any]) -> Mapping[str, Any]:
    return inputs if sample is None else {**sample, **inputs}
