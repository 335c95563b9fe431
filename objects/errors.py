# SPDX-License-Identifier: Apache-2.0
"""The errors of objects: malformed, unsupported, too new, unset.

ValueError
  MalformedObject         a message that cannot be read
    UnsupportedObject     … because it has an object of an unknown class
    UnsupportedReportVersion  … because it is a report of another major version
  TooNewValue             a value that the requested version does not have
NotImplementedError, AttributeError
  UnsetField              a field without a value or a default
"""

from __future__ import annotations

_MAX_CHARACTERS = 60  # of an invalid value in an error message


def _abbreviated(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_CHARACTERS else text[:_MAX_CHARACTERS] + "…"


class MalformedObject(ValueError):
    """Raised when a message is not the object that its name claims.

    ``path`` is the field, starting from the outermost object
    (``RequestSpec.flavor.vcpus``), ``value`` the invalid value and ``expected`` a
    description of a valid one.
    """

    def __init__(self, expected: str, value: object, path: str = "") -> None:
        """Record what was expected at `path`, and the value there."""
        super().__init__(expected, value, path)
        self.expected = expected
        self.value = value
        self.path = path

    def prefix_path(self, step: str) -> None:
        """Prepend `step` to the path; called for each object around the value."""
        separator = "" if not self.path or self.path.startswith("[") else "."
        self.path = f"{step}{separator}{self.path}"

    def __str__(self) -> str:
        """Return path, expectation and value."""
        kind = type(self.value).__name__
        where = self.path or "object"
        return (
            f"{where}: expected {self.expected}, got {kind} {_abbreviated(self.value)}"
        )


class UnsupportedObject(MalformedObject):
    """Raised when the class of an object is not in the registry."""

    def __init__(self, name: str, path: str = "") -> None:
        """Record the name of the class."""
        super().__init__("a known object", name, path)
        self.name = name

    def __str__(self) -> str:
        """Return path and name."""
        return f"{self.path or 'message'}: unknown object {_abbreviated(self.name)}"


class UnsupportedReportVersion(MalformedObject):
    """Raised when a report has another major version than ours."""


class TooNewValue(ValueError):
    """Raised when the version that a peer requested does not have a value."""

    def __init__(self, name: str, field: str, value: object, version: str) -> None:
        """Record the value and the version that lacks it."""
        super().__init__(
            f"{name}.{field}={value!r} does not exist in {name} {version};"
            " upgrade the peer first"
        )


class UnsetField(NotImplementedError, AttributeError):
    """Raised when a field is read that has neither a value nor a default.

    nova raises NotImplementedError here, and plugins catch it.
    """

    def __init__(self, obj_name: str, field: str) -> None:
        """Record the field."""
        super().__init__(f"{obj_name}.{field} is not set and has no default")
