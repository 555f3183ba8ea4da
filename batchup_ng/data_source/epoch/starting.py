"""Starts the runner of an epoch: of a pool, of a plan on the consumer's thread, or of a stream on that thread.

It stands apart from :mod:`.opening` because the runners import that module.
"""

from __future__ import annotations

import weakref
from typing import Any

from .checkpoint import put_back
from .direct import DirectRunner, StreamRunner, direct_batches, streamed_batches, whole_stream
from .opening import Epoch, Runner, RunsEpochs


def start(epoch: Epoch, earlier: weakref.ref[Any] | None = None) -> Runner:
    """Start the runner of an epoch. It shares the buffer of a pool with the iterator `earlier`."""
    node = epoch.node
    if isinstance(node, RunsEpochs):
        return node.start(epoch, earlier)
    if epoch.plan is not None:
        return DirectRunner(direct_batches(node, epoch, node.notes.buffers))
    owner = node.checkpointable()
    if epoch.saved is not None:
        put_back(owner, epoch.saved)
    buffers = None if node.traits.of_pool else node.notes.buffers
    return StreamRunner(streamed_batches(whole_stream(node, epoch.options), epoch.accounting, buffers), owner, epoch)
