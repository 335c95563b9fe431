# SPDX-License-Identifier: Apache-2.0
"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass

from oslo_upgradecheck.upgradecheck import Code


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What was checked, its state, and what to do about it."""

    name: str
    code: Code
    details: str

    @classmethod
    def success(cls, name: str, details: str) -> CheckResult:
        """Return a result without problems."""
        return cls(name, Code.SUCCESS, details)

    @classmethod
    def warning(cls, name: str, details: str) -> CheckResult:
        """Return a result of which Moorage runs, but behaves differently."""
        return cls(name, Code.WARNING, details)

    @classmethod
    def failure(cls, name: str, details: str) -> CheckResult:
        """Return a result of which Moorage does not run, or finds no host."""
        return cls(name, Code.FAILURE, details)
