# SPDX-License-Identifier: Apache-2.0
"""What can be wrong with an object: malformed, unsupported, too new, unset.

ValueError
  MalformedObject         a message that cannot be read
    UnsupportedObject     … because it names an object nobody here knows
  TooNewValue             a value that the version asked for does not have
NotImplementedError, AttributeError
  UnsetField              a field that was never given a value
"""

from __future__ import annotations

_SHOWN = 60  # characters of a bad value that a message repeats


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


class MalformedObject(ValueError):
    """A message that is not the object it claims to be.

    ``path`` names the field from the outermost object inwards
    (``RequestSpec.flavor.vcpus``), ``value`` is what stood there and ``expected``
    says what would have been right.
    """

    def __init__(self, expected: str, value: object, path: str = "") -> None:
        """Tell what was needed at `path` and what stood there."""
        super().__init__(expected, value, path)
        self.expected = expected
        self.value = value
        self.path = path

    def under(self, step: str) -> None:
        """Put `step` before the path; called on the way out of each level."""
        glue = "" if not self.path or self.path.startswith("[") else "."
        self.path = f"{step}{glue}{self.path}"

    def __str__(self) -> str:
        """Say where, what came and what would be right."""
        kind = type(self.value).__name__
        where = self.path or "object"
        return f"{where}: {kind} {_shown(self.value)} where {self.expected} is needed"


class UnsupportedObject(MalformedObject):
    """An object whose name is not in the registry."""

    def __init__(self, name: str, path: str = "") -> None:
        """Tell the name."""
        super().__init__("an object known here", name, path)
        self.name = name

    def __str__(self) -> str:
        """Name the object."""
        return f"{self.path or 'message'}: object {_shown(self.name)} is not known here"


class TooNewValue(ValueError):
    """A value that did not exist yet in the version a peer asked for."""

    def __init__(self, name: str, field: str, value: object, version: str) -> None:
        """Tell the value and the version that lacks it."""
        super().__init__(
            f"{name}.{field}={value!r} did not exist in {name} {version};"
            " the peer has to be upgraded first"
        )


class UnsetField(NotImplementedError, AttributeError):
    """A field that was read though it never had a value.

    nova raises NotImplementedError here and plugins catch that.
    """

    def __init__(self, obj_name: str, field: str) -> None:
        """Tell the field."""
        super().__init__(f"{obj_name}.{field} is not set and has no default")
