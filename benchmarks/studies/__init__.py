"""The registry of studies: what ``python -m benchmarks NAME`` can measure.

A new study is a module that makes a :class:`~benchmarks.studies.base.Study` and one name below.
"""

from __future__ import annotations

from benchmarks.studies import consumer, memory, order, overhead, sizes, startup, throughput
from benchmarks.studies.base import Study

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        throughput.ARRAYS,
        throughput.IMAGES,
        throughput.PYTHON,
        sizes.STUDY,
        startup.STUDY,
        overhead.STUDY,
        consumer.STUDY,
        memory.STUDY,
        order.STUDY,
    )
}
