# SPDX-License-Identifier: Apache-2.0
"""How Moorage treats each nova option related to scheduling: `options.toml`, read."""

from __future__ import annotations

import enum
import importlib.resources
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

#: Group and name of an option; "_" where oslo.config also takes "-".
Key = tuple[str, str]


class Treatment(enum.Enum):
    """The treatment of an option, in the words of the report."""

    HONOURED = "Honoured"
    ELSEWHERE = "Honoured elsewhere"
    NEEDLESS = "Not needed"
    IGNORED = "Ignored"


@dataclass(frozen=True, slots=True)
class OptionTreatment:
    """The treatment of an option, and who reads it or why it is not read."""

    treatment: Treatment
    why: str = ""

    def __str__(self) -> str:
        words = self.treatment.value
        return f"{words}: {self.why}" if self.why else words


def treatment_of(group: str, name: str) -> OptionTreatment | None:
    """Return the treatment of an option; None: it is unrelated to schedulers."""
    return TREATMENTS.get((group, name)) or TREATMENTS.get((group, "*"))


def _read() -> dict[Key, OptionTreatment]:
    file = importlib.resources.files(__package__) / "options.toml"
    return {
        (entry["group"], name): OptionTreatment(
            Treatment(entry["treatment"]), entry.get("why", "")
        )
        for entry in tomllib.loads(file.read_text())["options"]
        for name in entry["names"].split()
    }


#: Every option related to scheduling, and its treatment.
TREATMENTS: Final[Mapping[Key, OptionTreatment]] = MappingProxyType(_read())
