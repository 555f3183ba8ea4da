"""Properties of sources whose names a user's class may have given to its attributes."""

from __future__ import annotations

from typing import Any


class replaceable(property):
    """A property that an attribute of the same name replaces, as in ``self.labels = labels``."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        own = {} if instance is None else vars(instance)
        return own[self._name] if self._name in own else super().__get__(instance, owner)

    def __set__(self, instance: Any, value: Any) -> None:
        vars(instance)[self._name] = value

    @property
    def _name(self) -> str:
        return self.fget.__name__  # type: ignore[union-attr]  # a decorated function
