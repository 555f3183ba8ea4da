"""The fault suite: tests of the faults F1 to F28 in ``docs/guarantees.md``, on the pools of this machine.

How it is organised:

* ``test_<group>.py`` holds the tests, one or more for each fault, named by its number: ``test_f2_...``. A test only
  chooses the setting (pool, start method, workers, size of a result, seed) and states what must be seen. Each fault is
  played once, in the setting that shows most, unless a quick test of ``tests/work_pool`` shows the same. The other
  settings and more repetitions run with ``--thorough``.
* ``scenes/<group>.py`` holds what happens: functions that use the library as a user would, and assert. Each scene
  is played by ``stage.play`` in a process of its own, which is forked by ``host.py`` where all is imported already, the
  leader of a new session, with a limit. A hang is a failure, with the stacks of all processes of the scene; then all of
  it is killed. After each scene no process, thread, descriptor, named shared memory or temporary file may be left.
* ``accounting.py`` is the epoch that the faults strike, with the check that its accounting balance; ``mischief.py`` the
  maps that go wrong; ``hunting.py`` finds workers by asking the system and kills or stops them.
* ``programs/`` holds whole programs for faults that strike the main process (signals).
* ``test_machines.py``: the state machines on real processes (M2), threads (M4) and leases (M5). ``soak.py`` is the
  soak, a script as well as a test (``test_soak.py``). ``test_planted_bugs.py`` plants known bugs in a copy of the
  package, one at a time, and asserts that a named test of this suite fails.

No test asserts how many seconds something takes: on a machine that is busy all of it takes several times as long.
Events are counted instead (processes started, workers that died, batches made), or a limit tells what hangs from what
ends.
The few figures that are about time run with ``--thorough``, with ten times the seconds of the goal.

Every random choice comes from one seed, which a failure prints; ``--faults-seed`` replays it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from .settings import SEED, Extent
from .stage import hosted


@pytest.fixture(scope="session", autouse=True)
def host() -> Iterator[None]:
    """The process that forks all scenes; it starts before the first test, and so is not left by one."""
    with hosted():
        yield


@pytest.fixture(scope="session")
def extent(request: pytest.FixtureRequest) -> Extent:
    """How much of each fault is to be played."""
    return Extent(request.config.getoption("--thorough"))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of a test's random choices: the same in each run, another for each test; shown when the test fails."""
    given = request.config.getoption("--faults-seed")
    chosen = random.Random(f"{SEED} {request.node.nodeid}").randrange(1 << 31) if given is None else given
    print(f"replay the random choices of this test with --faults-seed {chosen}")
    return int(chosen)
