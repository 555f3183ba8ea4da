"""The ledger of a run, and what it is for: the rows of a step, and its batch again."""

from .keeping import ledger as ledger
from .listing import who as who
