"""The source that users compose: a face over a node of a graph.

A source checks arguments, builds nodes, and opens epochs. ``source.node`` is what it has; only the node is sent to
workers. The methods that compose sources build a node and ask :func:`~.faces.shown` for the source that shows it. Each
kind of source names its kind of node when its class is made. Methods with long contracts have files of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from .. import validation
from ..errors import ArgumentError, ArgumentTypeError
from ..graph.indexed import IndexedNode
from ..graph.map import CollateNode
from ..graph.node import Node, numbered_length
from ..graph.rearranged import ConcatNode, ZipNode
from ..graph.rounds import TakeNode
from ..graph.user import UserNode, refuse_methods_of_nodes
from . import epoch_maps
from .column_choice import dropped, renamed, selected, with_column
from .column_facts import columns_of
from .column_lengths import lengths
from .composing import repeated, subset_of
from .faces import shown
from .filtering import filtered
from .image_options import with_images
from .labels import labels_of
from .looking import length_of, looked_at, read_in_order
from .mapping import map, map_samples
from .own_attributes import replaceable
from .padded import pad
from .sampled import batched, sample
from .splitting import ADVICE_ON_SPLIT_OPTIONS, split_nodes
from .views import views

if TYPE_CHECKING:
    from .planned import PlannedDataSource


class AbstractDataSource:
    """The base class of every data source.

    A custom source derives from this class and defines ``num_samples`` and ``batch_iterator``. For random access it
    also defines ``is_random_access``, ``batch_indices_iterator`` and ``samples_by_indices_nomapping``.
    """

    _asks_fingerprint = True  # whether a user's class may have its own

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse a class with a method that would never be called."""
        super().__init_subclass__(**options)
        refuse_methods_of_nodes(cls)

    # -- BatchUp's methods -------------------------------------------------------------------------------------------

    @property
    def is_random_access(self) -> bool:
        """Whether batches can be made from row indices, in any order."""
        return False

    def num_samples(self, **kwargs: Any) -> Any:
        """Return the number of samples in an epoch: an int, ``numpy.inf``, or None if it is not known."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def batch_iterator(self, batch_size: int, **kwargs: Any) -> Iterator[Any]:
        """Return an iterator of batches."""
        raise NotImplementedError(f"Abstract for type {type(self)}")

    def samples_by_indices_nomapping(self, indices: Any) -> Any:
        """Return the batch of the rows `indices`."""
        raise self.node.no_random_access("samples_by_indices_nomapping")

    def samples_by_indices(self, indices: Any) -> Any:
        """Return the batch of `indices`, which number the rows that the sampler draws from."""
        raise self.node.no_random_access("samples_by_indices")

    def batch_indices_iterator(self, batch_size: int, shuffle: Any = None, **kwargs: Any) -> Iterator[Any]:
        """Return an iterator of the rows of each batch."""
        raise self.node.no_random_access("batch_indices_iterator")

    # -- the node ----------------------------------------------------------------------------------------------------

    @property
    def node(self) -> Node:
        """The node of this source in a graph."""
        return UserNode(self)

    def children(self) -> tuple[AbstractDataSource, ...]:
        """Return the sources that a custom source reads from, if there are any."""
        return ()

    def fingerprint(self) -> list[Any]:
        """Return everything that the order of an epoch depends on, except the seed, in strings, numbers and lists.

        A saved state keeps a digest of it. Only a source with the same graph, lengths and samplers can resume from the
        state. The pool is not included. This default has the class and the number of samples, but not the options of a
        custom source. Override it if such options change the order.
        """
        return [type(self).__name__, str(self.num_samples())]

    # -- functions of batches ----------------------------------------------------------------------------------------

    map = map
    map_samples = map_samples

    def collate(self, fn: Callable[[list[Any]], Any]) -> PlannedDataSource:
        """Return a source whose batches are ``fn(samples)``, as with PyTorch's ``collate_fn``.

        This is for existing functions: ``torch.utils.data.default_collate``, the data collators of Hugging Face. They
        need a list of single samples. To pad columns, ``map`` with :class:`~batchup_ng.PadColumns` is enough: it
        takes the batch without that list.

        Args:
            fn: Called with a list of the samples of a batch. A sample of a :class:`~batchup_ng.MapStyle` is the result
                of ``dataset[i]`` (a tuple, a dict, a tensor). After ``map_samples`` it is the result of that function.
                Otherwise it is a tuple with a row of each array, or a dict of these rows. The result of `fn` is the
                batch, unchanged. A map that follows takes a list as a tuple, and a dict by name.
        """
        return self._followed_by(CollateNode(self.node, fn))

    def _followed_by(self, node: Node) -> PlannedDataSource:
        return shown(node)

    # -- columns -----------------------------------------------------------------------------------------------------

    @replaceable
    def columns(self) -> Any:
        """The columns in the structure of a batch, each with `dtype` and `shape` ``(n, ...)``.

        It reads one sample with all maps, and up to three more if a function or a data set of yours makes arrays or
        single samples. The dtype is that of the batches; of numbers, it is the common one of these samples. Columns
        whose batches are lists have the dtype of a sample: ``dtype(str)`` of text, ``dtype(object)`` of values that are
        no numbers, text or arrays, None of a list without a value. An axis is None if batches of lists may differ along
        it, or if padding decides its length; n is None if it has no end or is not known, as after a lazy filter. What a
        function or a data set of yours makes has the shape of the first sample, with None for each axis along which the
        second, the middle or the last sample differs.

        Raises:
            ArgumentTypeError: the source only streams.
            ArgumentError: there is no sample.
        """
        return columns_of(self._graph())

    def select(self, *columns: Any) -> PlannedDataSource:
        """Return a source with only these columns, in this order. A source of arrays reads no others.

        If a map or a zip is below, random crops may change.

        Args:
            *columns: Names, or places from 0 if batches are tuples.

        Raises:
            ArgumentError: there is no such column; when a batch is made, if it is not known before.
        """
        return self._followed_by(selected(self.node, columns))

    def drop(self, *columns: Any) -> PlannedDataSource:
        """Return a source without these columns. Arguments and errors are as for :meth:`select`."""
        return self._followed_by(dropped(self.node, columns))

    def rename(self, names: Mapping[Any, str]) -> PlannedDataSource:
        """Return a source whose columns have other names. Columns that are not named keep theirs.

        Args:
            names: The new name of each column, by its present name: ``{"x": "image"}``. By its place if batches are
                tuples: they become dicts, and each column needs a name.

        Raises:
            ArgumentError: there is no such column, or two get one name; when a batch is made, if it is not known
                before.

        >>> import numpy as np, batchup_ng as bu
        >>> bu.ArrayDataSource([np.arange(2), np.arange(2)]).rename({0: "x", 1: "y"})[0:2]
        {'x': array([0, 1]), 'y': array([0, 1])}
        """
        return self._followed_by(renamed(self.node, names))

    @validation.known_names({})
    def with_column(self, name: Any, values: Any, *, on: Any = None) -> PlannedDataSource:
        """Return a source with one more column, at the end, or in place of the column with this name.

        Args:
            name: Its name; its place if batches are tuples, which is the number of columns for one more.
            values: A function of columns of a batch, called by place. It returns the column, one row per sample. Or an
                array or accessor with one row for each sample of the unshuffled epoch.
            on: The columns to call the function with, as for :meth:`map`. Default: those that its parameters name.

        Raises:
            ArgumentError: an array has another length than the epoch, or there is no such column.
            ArgumentTypeError: `values` is neither function nor array; or it is an array, and the source only streams.

        >>> import numpy as np, batchup_ng as bu
        >>> boxes = bu.ArrayDataSource({"width": np.array([2, 3]), "height": np.array([5, 7])})
        >>> boxes.with_column("area", lambda width, height: width * height)[0:2]
        {'width': array([2, 3]), 'height': array([5, 7]), 'area': array([10, 21])}
        """
        return self._followed_by(with_column(self.node, name, values, on))

    pad = pad
    views = views
    with_images = with_images
    lengths = lengths

    @replaceable
    def labels(self) -> Any:
        """The label of each sample, in the order of the unshuffled epoch: ``(n, ...)``. Other columns are not read.

        The labels are the column ``"label"``. In tuples without names they are the second column. None without such a
        column.

        Raises:
            ArgumentError: a map without `on=` makes the columns, or the epoch never ends.
            ArgumentTypeError: the source only streams, or its samples have no order (a choice, a draw by weight).

        >>> import numpy as np, batchup_ng as bu
        >>> train, test = bu.ArrayDataSource([np.zeros((6, 2)), np.arange(6) % 3]).split([0.5, 0.5], seed=1)
        >>> train.labels, train.rows
        (array([0, 1, 2]), array([0, 4, 5]))
        """
        return labels_of(self.node)

    @replaceable
    def rows(self) -> np.ndarray:
        """The row of each sample in the original source, ``(n,) int64``: its position in the unshuffled epoch there.

        The original source is at the bottom of all splits, subsets, ``take`` and maps. If it was made of a table,
        ``table.iloc[train.rows]`` are the rows of this source. If all parts of a concatenation come from one source,
        that is the original; if they come from several, the concatenation is. A ``zip`` has the rows of its first part.

        Raises:
            ArgumentError: the epoch never ends.
            ArgumentTypeError: the source only streams, or its samples have no order (a choice, a draw by weight).
        """
        node = self.node
        return np.array(node.origin_rows(np.arange(numbered_length("source", node))))

    # -- composing ---------------------------------------------------------------------------------------------------

    def take(self, n: int) -> PlannedDataSource:
        """Return the first `n` samples of each epoch: see :func:`batchup_ng.take`."""
        return shown(TakeNode(self.node, n))

    @validation.known_names({})
    def repeat(self, times: int = -1) -> PlannedDataSource:
        """Return several epochs as one, -1 without end: see :func:`batchup_ng.repeat`."""
        return shown(repeated(self.node, times))

    @validation.known_names()
    def subset(self, rows: Any = None, *, exclude: Any = None) -> PlannedDataSource:
        """Return the samples at positions `rows` of the unshuffled epoch: see :func:`batchup_ng.subset`."""
        return shown(subset_of(self.node, rows, exclude))

    @validation.known_names(ADVICE_ON_SPLIT_OPTIONS)
    def split(
        self,
        fractions: Sequence[float],
        seed: int | None = None,
        stratify: Any = None,
        groups: Any = None,
        *,
        shuffle: bool = True,
        gap: int = 0,
    ) -> list[PlannedDataSource]:
        """Divide the samples among several sources, at random or in order: see :func:`batchup_ng.split`."""
        return [shown(part) for part in split_nodes(self.node, fractions, seed, stratify, groups, shuffle, gap)]

    sample = sample
    batched = batched

    @validation.known_names()
    def concat(self, *others: AbstractDataSource, sampler: Any = None) -> PlannedDataSource:
        """Return this source followed by the others: see :func:`batchup_ng.concat`."""
        return shown(ConcatNode(nodes_in("sources", (self, *others)), sampler))

    @validation.known_names()
    def zip(self, *others: AbstractDataSource, flatten: bool = True) -> PlannedDataSource:
        """Return this source and the others side by side, sample by sample: see :func:`batchup_ng.zip`."""
        return shown(ZipNode(nodes_in("sources", (self, *others)), flatten))

    def with_index(self) -> PlannedDataSource:
        """Return a source whose batches begin with the array of their row numbers, as with `include_indices`.

        The numbers are the rows that ``batch_indices_iterator`` lists: rows of the arrays, or positions in a subset or
        a concatenation. A composite gives an array for each part. A choice gives the number of the source, then the
        rows in it. In a dict the row numbers are the column ``"index"``.

        Raises:
            ArgumentTypeError: the source only streams.
        """
        return shown(IndexedNode(self.node))

    @validation.known_names(renamed={"columns": "on"})
    def filter(
        self,
        predicate: Callable[..., Any],
        on: Any = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        lazy: bool = False,
        progress: bool | Callable[..., Any] = True,
    ) -> PlannedDataSource:
        """Return a source that keeps a sample if ``predicate(*sample)`` is true.

        The call reads all samples once, with their maps, and keeps a list of rows, the same in each epoch. If the
        answer is in an array, ``subset(numpy.flatnonzero(labels == 3))`` reads nothing.

        With ``lazy=True`` the call reads nothing, and works on streams too. The worker that makes a batch leaves out
        the samples that the predicate refuses. Maps before the filter get all samples. Maps after it get those that are
        left, with the random numbers of their positions. So batches have fewer samples than planned: lengths, ranks,
        ``take`` and saved states count the planned ones (``take`` of a stream counts those that are left). A batch
        with no sample left is not handed out. If ranks share the epoch, or a batch is requested by its number, other
        rows of the epoch take its place, as with ``on_error="replace"``: so ranks have equally many batches, and none
        is empty. The samples have no numbers: use ``concat``, ``mix``, ``subset``, ``split``, ``zip``, ``with_index``
        and ``source[i]`` before the filter.

        Args:
            predicate: Called with the parts of one sample, by name if batches are dicts. It returns True or False.
            on: The columns to call it with, by place, as for :meth:`map`. Without `lazy`, a source of arrays then reads
                no others. Default: all.
            cache: A file that remembers the answer, for example ``"kept.json"``: the next program with the same samples
                and predicate reads nothing. Samples and predicate are compared by a digest of the graph, of columns
                (bytes of arrays; path, size and time of files; ``fingerprint()`` of accessors) and of the code of the
                predicate and of maps, with the functions, defaults and globals that they refer to. Files that they read
                themselves, and functions of installed libraries, are not compared: delete the file if these change. If
                anything else differs, or the file is damaged, all samples are read again and the file is replaced.
            lazy: Whether to filter each batch as it is made.
            progress: Whether to show progress in a terminal if tqdm is installed; or a function like ``tqdm.tqdm``,
                which is called with ``(iterator, total=..., leave=False)``. A lazy filter shows none.

        Raises:
            ArgumentTypeError: without `lazy`: the source only streams, its samples have no numbers, or something that
                `cache` should compare has no ``fingerprint()``, or cannot be pickled.
            ArgumentError: there is no such column, or the epoch never ends; `cache` is no place for a new file, or
                another file; or it is given with `lazy`.
            MapResultError: the predicate does not return True or False.
            MapCallError: the predicate does not take the parts of a sample.

        Warns:
            CacheWarning: the file is damaged, or cannot be written, for example because the disk is full.

        >>> import numpy as np, batchup_ng as bu
        >>> source = bu.ArrayDataSource([np.arange(6)])
        >>> [x.tolist() for (x,) in source.filter(lambda x: x != 1).batch_iterator(3)]
        [[0, 2, 3], [4, 5]]
        >>> [x.tolist() for (x,) in source.filter(lambda x: x != 1, lazy=True).batch_iterator(3)]
        [[0, 2], [3, 4, 5]]
        """
        return self._followed_by(filtered(self.node, predicate, on, cache, lazy, progress))

    @validation.known_names({})
    def cache(self, where: Any = None, limit: int | str = "8GB") -> AbstractDataSource:
        """Return a source that reads each row once. Only :class:`~batchup_ng.ArrayDataSource` supports it.

        Raises:
            ArgumentTypeError: this is not an ``ArrayDataSource``.
        """
        raise ArgumentTypeError(
            f"only an ArrayDataSource can be cached, not a {type(self).__name__}: rows are kept before maps, which may "
            f"be random, and whatever their order; call cache() on the source that holds the accessors, then the rest: "
            f"ArrayDataSource([files, labels]).cache().map(...)"
        )

    # -- looking -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of samples in an epoch. Raise ``TypeError`` if it never ends, or is not known."""
        return length_of(self.node)

    def __bool__(self) -> bool:
        return True  # otherwise Python calls len(), which some do not have

    def __getitem__(self, which: Any) -> Any:
        """Return samples of epoch 0 without ``shuffle=``, with all maps applied.

        This is for inspection. Training reads whole batches with ``batch_iterator``.

        Args:
            which: A whole number gives one sample, nested like the batch, without the batch's axis. A slice, an array
                or list of whole numbers, or a boolean mask gives a batch.

        Raises:
            IndexError: there is no such sample.
            ArgumentTypeError: the source only streams, or its samples have no order (a choice, a draw by weight).
            ArgumentError: the epoch never ends.
        """
        return looked_at(which, self._numbered_length(), self._in_order)

    def _graph(self) -> Node:
        """Return the node of the batches without a pool."""
        return self.node

    def _numbered_length(self) -> int:
        return numbered_length("source", self.node)

    def _in_order(self, positions: np.ndarray) -> Any:
        return read_in_order(self.node, positions)

    def __iter__(self) -> NoReturn:
        raise ArgumentTypeError(
            f"{type(self).__name__} is not iterated over itself; iterate over source.batch_iterator(batch_size), or "
            f"look at single samples with source[i]"
        )

    def __repr__(self) -> str:
        return repr(self.node)

    def _repr_html_(self) -> str:
        return self.node._repr_html_()

    # -- over an epoch -----------------------------------------------------------------------------------------------

    batch_map_concat = epoch_maps.batch_map_concat
    batch_map_mean = epoch_maps.batch_map_mean


def node_of(name: str, source: Any) -> Node:
    """Return the node of `source`. Raise if it is no data source."""
    if not isinstance(source, AbstractDataSource):
        raise ArgumentTypeError(
            f"{name} must be a data source, not a {type(source).__name__}; wrap arrays in ArrayDataSource"
        )
    return source.node


def nodes_in(name: str, sources: Any) -> list[Node]:
    """Return the nodes of `sources`. Raise if there are none, or an element is no data source."""
    if isinstance(sources, AbstractDataSource) or not isinstance(sources, Iterable):
        raise ArgumentTypeError(f"{name} must be a list of data sources, not a {type(sources).__name__}; pass [a, b]")
    listed = [node_of(f"{name}[{i}]", source) for i, source in enumerate(sources)]
    if not listed:
        raise ArgumentError(f"{name} must hold at least one data source, and is empty")
    return listed
