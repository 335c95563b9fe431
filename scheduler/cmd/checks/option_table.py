# SPDX-License-Identifier: Apache-2.0
"""How Moorage treats each nova option related to scheduling: `options.toml`, read."""

from __future__ import annotations

import difflib
import enum
import importlib.resources
import tomllib
from collections.abc import Collection, Mapping
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
    REMOVED = "Removed"


@dataclass(frozen=True, slots=True)
class OptionTreatment:
    """The treatment of an option, and who reads it or why it is not read.

    Attributes
    ----------
    source : str
        The source of hosts that alone reads the option; "": it does not depend on it.
    """

    treatment: Treatment
    why: str = ""
    source: str = ""

    def __str__(self) -> str:
        words = self.treatment.value
        return f"{words}: {self.why}" if self.why else words


#: Groups in which an option that is not in the table is reported as a mistake.
STRICT: Final = frozenset(
    {
        "scheduler", "filter_scheduler", "locality", "solver", "metrics", "moorage",
        "agent", "kafka", "relay", "telemetry", "web",
    }
)  # fmt: skip


def unknown_option(key: Key, registered: Collection[Key]) -> str:
    """Return a text that says that nothing reads an option, with a similar name."""
    group, option = key
    known_names = {
        name
        for (in_group, name), treated in TREATMENTS.items()
        if in_group == group and treated.treatment is not Treatment.REMOVED
    }
    known_names |= {name for in_group, name in registered if in_group == group}
    similar_names = difflib.get_close_matches(option, known_names, n=1)
    guess = f" Did you mean {similar_names[0]}?" if similar_names else ""
    return f"Neither nova 34 nor Moorage has such an option.{guess}"


def unread_options(
    keys: Collection[Key], registered: Collection[Key]
) -> Mapping[Key, str]:
    """Return why each unknown or removed option of the groups `STRICT` is not read.

    Parameters
    ----------
    keys : collection of Key
        The options that are set.
    registered : collection of Key
        The options that a part of the service, or one of its plugins, reads.
    """
    unread = {}
    for key in keys:
        treated = treatment_of(*key)
        if key in registered or key[0] not in STRICT:
            continue
        if treated is None:
            unread[key] = unknown_option(key, registered)
        elif treated.treatment is Treatment.REMOVED:
            unread[key] = f"{treated}."
    return unread


def treatment_of(group: str, name: str) -> OptionTreatment | None:
    """Return the treatment of an option; None: it is unrelated to schedulers."""
    return TREATMENTS.get((group, name)) or TREATMENTS.get((group, "*"))


def _read() -> dict[Key, OptionTreatment]:
    file = importlib.resources.files(__package__) / "options.toml"
    return {
        (entry["group"], name): OptionTreatment(
            Treatment(entry["treatment"]),
            entry.get("why", ""),
            entry.get("source", ""),
        )
        for entry in tomllib.loads(file.read_text())["options"]
        for name in entry["names"].split()
    }


#: Every option related to scheduling, and its treatment.
TREATMENTS: Final[Mapping[Key, OptionTreatment]] = MappingProxyType(_read())
