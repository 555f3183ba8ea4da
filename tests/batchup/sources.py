"""Random descriptions of sources, each of which either library can build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st

from .comparing import Library

Batch: TypeAlias = Any



@dataclass(frozen=True)
class SamplerSpec:
    """Arguments of one of the four samplers, over a data set of `length` rows."""

    kind: str
    length: int
    indices: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()
    repeats: int = 1

    @property
    def endless(self) -> bool:
        return bool(self.weights) or self.repeats == -1

    @property
    def only_shuffled(self) -> bool:
        return bool(self.weights)

    def build(self, library: Library) -> Any:
        indices = np.array(self.indices, dtype=int)
        if self.kind == "standard":
            return library.sampling.StandardSampler(self.length, repeats=self.repeats)
        if self.kind == "subset":
            return library.sampling.SubsetSampler(indices, repeats=self.repeats)
        if self.kind == "weighted":
            return library.sampling.WeightedSampler(np.array(self.weights))
        return library.sampling.WeightedSubsetSampler(np.array(self.weights), indices)


@dataclass(frozen=True)
class ArraySpec:
    """An array source whose sampler is given, or made by the source from `indices` and `repeats`."""

    sampler: SamplerSpec
    include_indices: bool
    by_sampler: bool
    n_arrays: int = 2

    @property
    def endless(self) -> bool:
        return self.sampler.endless

    @property
    def only_shuffled(self) -> bool:
        return self.sampler.only_shuffled

    @property
    def n_leaves(self) -> int:
        return self.n_arrays + self.include_indices

    def build(self, library: Library) -> Any:
        rows = np.arange(self.sampler.length)
        data = [rows.astype(np.int32), np.stack([rows, rows * 0.5], axis=1).astype(np.float32)][: self.n_arrays]
        if self.by_sampler or self.sampler.weights:
            options: dict[str, Any] = {"sampler": self.sampler.build(library)}
        else:
            options = {"repeats": self.sampler.repeats}
            if self.sampler.kind == "subset":
                options["indices"] = np.array(self.sampler.indices, dtype=int)
        return library.data_source.ArrayDataSource(data, include_indices=self.include_indices, **options)


@dataclass(frozen=True)
class CompositeSpec:
    parts: tuple[Any, ...]
    flatten: bool
    trim: bool

    @property
    def endless(self) -> bool:
        return all(part.endless for part in self.parts)

    @property
    def only_shuffled(self) -> bool:
        return any(part.only_shuffled for part in self.parts)

    def build(self, library: Library) -> Any:
        parts = [part.build(library) for part in self.parts]
        return library.data_source.CompositeDataSource(parts, flatten=self.flatten, trim=self.trim)


@dataclass(frozen=True)
class ChoiceSpec:
    parts: tuple[Any, ...]
    stratified: bool

    @property
    def endless(self) -> bool:
        # The first part that runs out ends it; only if none ever does it goes on for ever.
        return all(part.endless for part in self.parts)

    @property
    def only_shuffled(self) -> bool:
        return any(part.only_shuffled for part in self.parts)

    def build(self, library: Library) -> Any:
        parts = [part.build(library) for part in self.parts]
        return library.data_source.ChoiceDataSource(parts, stratified=self.stratified)


def reverse_parts(*batch: Batch) -> tuple[Batch, ...]:
    """A map that changes the structure: the parts the other way round."""
    return batch[::-1]


def add_one(*batch: Batch) -> Batch:
    """A map that changes values, at any depth."""
    return tuple(add_one(*part) if isinstance(part, tuple) else part + 1 for part in batch)


def keep_half(*batch: Batch) -> Batch:
    """A map that changes lengths, at any depth: the first half of the samples, rounded up."""
    return tuple(keep_half(*part) if isinstance(part, tuple) else part[: (len(part) + 1) // 2] for part in batch)


@dataclass(frozen=True)
class MapSpec:
    source: Any
    function: Any

    @property
    def endless(self) -> bool:
        return bool(self.source.endless)

    @property
    def only_shuffled(self) -> bool:
        return bool(self.source.only_shuffled)

    def build(self, library: Library) -> Any:
        ours = library.data_source.__name__.startswith("batchup_ng")
        options = {"resizes": True} if ours and self.function is keep_half else {}
        return self.source.build(library).map(self.function, **options)


EVEN_MAPS = (reverse_parts, add_one)
ALL_MAPS = (*EVEN_MAPS, keep_half)

weight_values = st.one_of(st.integers(1, 5).map(float), st.floats(0.01, 10.0), st.just(0.0))


@st.composite
def samplers(draw: st.DrawFn, kinds: tuple[str, ...] = ("standard", "subset", "weighted", "weighted subset")) -> Any:
    """A sampler of any of the kinds, over 1 to 25 rows, with few repeats, one or endless ones."""
    kind = draw(st.sampled_from(kinds))
    length = draw(st.integers(1, 25))
    indices: tuple[int, ...] = ()
    if "subset" in kind:
        indices = tuple(draw(st.lists(st.integers(0, length - 1), min_size=1, max_size=25)))
    if "weighted" in kind:
        count = len(indices) or length
        drawn = st.lists(weight_values, min_size=count, max_size=count).filter(any)
        return SamplerSpec(kind, length, indices, tuple(draw(drawn)))
    return SamplerSpec(kind, length, indices, repeats=draw(st.sampled_from([1, 1, 2, 3, -1])))


@st.composite
def arrays(draw: st.DrawFn, **options: Any) -> Any:
    """An array source with any sampler."""
    return ArraySpec(draw(samplers(**options)), draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 2)))


def maps_of(specs: st.SearchStrategy[Any], functions: tuple[Any, ...] = EVEN_MAPS) -> st.SearchStrategy[Any]:
    """A source under a map."""
    return st.builds(MapSpec, specs, st.sampled_from(functions))


def composites_of(specs: st.SearchStrategy[Any], trims: st.SearchStrategy[bool]) -> st.SearchStrategy[Any]:
    """One to three sources side by side."""
    parts = st.lists(specs, min_size=1, max_size=3).map(tuple)
    return st.builds(CompositeSpec, parts, flatten=st.booleans(), trim=trims)


def choices_of(specs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """One to three sources in turn."""
    parts = st.lists(specs, min_size=1, max_size=3).map(tuple)
    return st.builds(ChoiceSpec, parts, stratified=st.booleans())


def trees(trims: st.SearchStrategy[bool], functions: tuple[Any, ...] = EVEN_MAPS) -> st.SearchStrategy[Any]:
    """Arrays under maps and composites, nested."""

    def extend(specs: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        return st.one_of(maps_of(specs, functions), composites_of(specs, trims))

    return st.recursive(arrays(), extend, max_leaves=5)


trimmed_trees = trees(st.just(True))
shortening_trees = trees(st.just(True), ALL_MAPS)
mixed_trees = trees(st.booleans())
# Not mixed: to trim, BatchUp measures only the first array of a part, and does not see that the others are ragged.
like_trees = st.one_of(trimmed_trees, trees(st.just(False)))
