"""Random graphs of sources for hypothesis: any nesting of what the library can compose."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

import batchup_ng as bu
from batchup_ng import batch as batches
from batchup_ng.data_source import PlannedDataSource
from batchup_ng.randomness import SampleRng


def halved(*batch: Any) -> Any:
    """A map of every leaf of any batch."""
    return batches.map_leaves(lambda leaf: leaf * 0.5, batch)


def one_column(*batch: Any) -> Any:
    """A map that gives every batch the same structure, so that any sources may be joined."""
    first = next(iter(batches.leaves(batch)))
    return (np.asarray(first, dtype=np.float64).reshape(len(first), -1)[:, 0],)


def noisy(*batch: Any, rng: Any) -> Any:
    """A map that adds draws to the first leaf."""
    (column,) = one_column(*batch)
    return (column + (rng.normal() if isinstance(rng, SampleRng) else rng.normal(size=len(column))),)


def noisy_sample(*sample: Any, rng: np.random.Generator) -> Any:
    first = next(iter(batches.leaves(sample)))
    return (float(np.ravel(first)[0]) + rng.normal(),)


def beside(*batch: Any, others: list[Any], rng: SampleRng) -> Any:
    """A map that adds up the first leaves of a batch and of its companions."""
    columns = [one_column(*(other.values() if isinstance(other, dict) else other))[0] for other in (batch, *others)]
    return (sum(column / (1 << i) for i, column in enumerate(columns)) + rng.normal(),)


def plain_sample(*sample: Any) -> Any:
    return (np.ravel(next(iter(batches.leaves(sample))))[:1].astype(np.float64),)


def in_a_list(own: Any) -> list[Any]:
    """The exchange of ranks that all get the losses of each row."""
    return [own]


def after_losses(sampler: bu.FeedbackSampler) -> bu.FeedbackSampler:
    """Report losses of two epochs, so that the order of epochs 0 to 3 is known, and return the sampler."""
    rows = np.arange(0, sampler.n_rows, 2)
    for epoch in range(2):
        sampler.update(rows, (rows * 7 + epoch) % 5, epoch)
    sampler.update([], [], 2)
    return sampler


@st.composite
def samplers(draw: st.DrawFn, n: int, endless: bool) -> bu.AbstractSampler:
    """A sampler over `n` rows; one that never ends only if `endless`."""
    repeats = draw(st.sampled_from([1, 1, 2, 3] + [-1] * endless))
    kinds = ["standard", "subset", "buckets", "packed", "stratified", "blocks", "interleaved", "every second"]
    kind = draw(st.sampled_from(kinds + ["weighted", "weighted subset", "in turn", "feedback"] * endless))
    rows = np.array(draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12)))
    if kind == "subset":
        return bu.SubsetSampler(rows, repeats)
    if kind == "in turn":
        return bu.WeightedSubsetSampler(np.arange(1, len(rows) + 1), rows, replacement=False)
    if kind == "buckets":
        return bu.BucketSampler(np.arange(n) * 7 % 10, num_buckets=draw(st.integers(1, 5)))
    if kind == "packed":
        return bu.PackSampler(np.arange(n) * 7 % 10, draw(st.integers(9, 40)), window=draw(st.integers(1, 30)))
    if kind == "stratified":
        return bu.StratifiedSampler(np.arange(n) ** 2 % 5, draw(st.sampled_from([None, rows])), repeats)
    if kind == "blocks":
        block, window, groups = draw(st.integers(1, 9)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
        return bu.BlockShuffleSampler(n, block, window, repeats, groups, 2)
    if kind == "interleaved" and n > 1:
        cut = draw(st.integers(1, n - 1))
        return bu.MixtureSampler([cut, n - cut], [2, 1], -1 if repeats == -1 else draw(st.integers(1, 60)))
    if kind == "every second":
        return bu.StridedSampler(n, stride=2, repeats=repeats)
    if kind == "feedback":
        return after_losses(bu.FeedbackSampler(n, 0.7, num_samples=draw(st.integers(1, 40)), gather=in_a_list))
    if kind == "weighted":
        return bu.WeightedSampler(np.array(draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))))
    if kind == "weighted subset":
        return bu.WeightedSubsetSampler(np.arange(1, len(rows) + 1), rows)
    return bu.StandardSampler(n, repeats)


@st.composite
def arrays(draw: st.DrawFn, endless: bool) -> PlannedDataSource:
    """A source of arrays with 1 to 25 rows."""
    n = draw(st.integers(1, 25))
    ids = np.arange(n) + draw(st.sampled_from([0, 100]))
    data: list[Any] = [ids, np.outer(ids, [1.0, 2.0, 3.0]).astype(np.float32)][: draw(st.integers(1, 2))]
    sampler = draw(st.none() | samplers(n, endless))
    return bu.ArrayDataSource(data, sampler=sampler, include_indices=draw(st.booleans()))


@st.composite
def series(draw: st.DrawFn) -> PlannedDataSource:
    """Windows of a series, 1 to 25 of them."""
    length, stride, horizon = draw(st.integers(1, 4)), draw(st.integers(1, 3)), draw(st.integers(0, 2))
    return bu.windows(np.arange(length + horizon + stride * draw(st.integers(0, 24))), length, stride, horizon)


def graphs(endless: bool = True) -> st.SearchStrategy[PlannedDataSource]:
    """Any source, of arrays or made of others."""
    leaves = arrays(endless) | arrays(False) | series()
    return st.recursive(leaves, lambda inner: composed(inner, endless), max_leaves=5)


def packs(node: Any) -> bool:
    """Return whether a sampler here makes batches of any size, all of them whole."""
    return isinstance(getattr(node, "sampler", None), bu.PackSampler) or any(map(packs, node.children()))


@st.composite
def composed(draw: st.DrawFn, inner: st.SearchStrategy[Any], endless: bool) -> Any:
    """A source made of one or more of `inner`."""
    source = draw(inner)
    kind = draw(st.sampled_from(KINDS))
    if kind in ("samples", "random samples") and "['CompositeDataSource', False" in str(source.fingerprint()):
        kind = "map"  # untrimmed, so that a batch may have no last samples with all their parts
    if kind in MAPS:
        return MAPS[kind](source)
    if kind in ("composite", "choice"):
        others = [source, *draw(st.lists(inner, max_size=2))]
        if kind == "composite":
            trim = draw(st.booleans()) and not any(packs(other.node) for other in others)
            return bu.CompositeDataSource(others, flatten=draw(st.booleans()), trim=trim)
        return bu.ChoiceDataSource([other.map(one_column) for other in others], stratified=draw(st.booleans()))
    if kind == "for ever" and not endless:
        kind = "repeat"
    return rearranged(kind, source, draw(inner), draw(st.integers(0, 10**6)))


MAPS: dict[str, Any] = {
    "map": lambda source: source.map(halved),
    "batch": lambda source: source.map(noisy, rng="batch"),
    "sample": lambda source: source.map(noisy, rng="sample"),
    "samples": lambda source: source.map_samples(plain_sample),
    "random samples": lambda source: source.map_samples(noisy_sample, rng="sample"),
}
KINDS = [
    *MAPS, "composite", "choice", "concat", "zip", "companions", "subset", "filtered", "split", "take", "repeat",
    "for ever",
]  # fmt: skip


def rearranged(kind: str, source: Any, other: Any, number: int) -> Any:
    """A source that hands out the rows of others; `source` itself where its rows have no numbers."""
    if kind == "take":
        return bu.take(source, 1 + number % 40)
    if kind == "repeat":
        return bu.repeat(source, 1 + number % 3)
    if kind == "for ever":
        return bu.repeat(source, -1)
    try:
        if kind == "concat":
            return bu.concat(source.map(one_column), other.map(one_column), source.map(noisy, rng="sample"))
        if kind == "zip":
            return bu.zip(source, source.map(noisy, rng="sample"), flatten=bool(number % 2))
        if kind == "companions":
            return source.map(beside, rng="sample", companions=1 + number % 2)
        if kind == "split":
            return bu.split(source, (0.6, 0.4), seed=number)[number % 2]
        n = source.num_samples()
        if kind == "filtered":  # the nests of a zip, of which some are kept by what they hold
            nests = bu.zip(source, other.map(one_column) if other.num_samples() == n else source, flatten=False)
            return bu.subset(nests, kept(nests, number))
        return bu.subset(source, (np.arange(7) * (number + 1)) % n)
    except (bu.ArgumentError, bu.ArgumentTypeError):
        return source  # endless, without numbers, or too small to be split: refused, as it says


def kept(source: Any, number: int) -> np.ndarray:
    """Return the positions of the samples whose first value a rule keeps, or all."""
    (batch,) = bu.subset(source, np.arange(source.num_samples())).batch_iterator(10**6)
    first = np.asarray(next(iter(batches.leaves(batch))), dtype=np.float64).reshape(int(source.num_samples()), -1)[:, 0]
    keep = np.flatnonzero(np.floor(first * 7).astype(np.int64) % 3 != number % 3)
    return keep if len(keep) else np.arange(len(first))


def shuffles(generators: bool = True) -> st.SearchStrategy[tuple[str, int]]:
    """What to pass as ``shuffle=``, to be made anew each time by :func:`shuffle_of`."""
    kinds = ["none", "seed", *(["RandomState", "Generator"] if generators else [])]
    return st.tuples(st.sampled_from(kinds), st.integers(0, 2**32 - 1))


def shuffle_of(kind: tuple[str, int]) -> Any:
    """Return the value of ``shuffle=`` that `kind` stands for."""
    make = {"none": lambda s: None, "seed": int, "RandomState": np.random.RandomState,
            "Generator": np.random.default_rng}  # fmt: skip
    return make[kind[0]](kind[1])
