# SPDX-License-Identifier: Apache-2.0
"""How long do instances live, by project, flavor and image? Learned, stored, read."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import numpy as np
import numpy.typing as npt

from ..scheduler.errors import ConfigurationError, excerpt
from ..scheduler.hosts import Group
from ..scheduler.request import Request, get_field

_OPTION: Final = "[filter_scheduler] lifetime_model"
_FORMAT: Final = 1
_DAY_S: Final = 86400.0
#: The least ages of the age classes, seconds: 0, a minute, and its doubles to 364 days.
_AGES: Final = (0, *(60 * 2**i for i in range(20)))
#: No instance is expected to live longer from any age on, seconds.
_LONGEST_S: Final = 365 * _DAY_S
#: Instances that a group must have had; smaller ones are part of the next larger group.
_LEAST_INSTANCES: Final = 10
#: A group's rate of ends in an age class counts as if it had had so many more ends, at
#: the rate of the next larger group: a few ends say little.
_PRIOR_ENDS: Final = 5.0

_Floats = npt.NDArray[np.float64]
_Times = Annotated[list[float], msgspec.Meta(min_length=1, max_length=64)]

#: A group of instances, of which None in any place stands for all.
Key = tuple[str | None, int | None, int | None, str | None]
_ALL: Final[Key] = (None, None, None, None)


def group_of(request: Request) -> Group:
    """Return the group of a request's instances."""
    spec = request.spec_obj
    image = None if get_field(spec, "is_bfv") else get_field(spec, "image")
    image_id = None if image is None else get_field(image, "id")
    project_id = get_field(spec, "project_id")
    flavor = spec.flavor
    return project_id or "", flavor.vcpus, flavor.memory_mb, image_id or ""


def _keys_of(group: Group) -> tuple[Key, ...]:
    """Return the keys under which a group may be known, from all instances on."""
    project_id, vcpus, memory_mb, _ = group
    return (
        _ALL,
        (None, vcpus, memory_mb, None),
        (project_id, None, None, None),
        (project_id, vcpus, memory_mb, None),
        group,
    )


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    """A group as the file has it, and its expected remaining lifetimes by age."""

    project_id: str | None
    vcpus: int | None
    memory_mb: int | None
    image: str | None
    instances: int
    remaining_s: _Times


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    ages_s: _Times
    groups: list[_Row]


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class LifetimeModel:
    """The expected remaining lifetime of instances, by group and age.

    Attributes
    ----------
    ages_s : ndarray of float64, shape (n_ages,), seconds
        The least age of each age class; the first is 0.
    remaining_s : ndarray of float64, shape (n_groups, n_ages), seconds
    row_of : mapping
        The row of each group in `remaining_s`.
    n_instances : sequence of int
        By row: the instances from which the group was learned.
    version : str
        Differs for models that differ.
    """

    ages_s: _Floats
    remaining_s: _Floats
    row_of: Mapping[Key, int]
    n_instances: Sequence[int]
    version: str

    @classmethod
    def of(
        cls, ages_s: _Floats, remaining_s: _Floats, counts: Mapping[Key, int]
    ) -> LifetimeModel:
        """Return the model of groups, in the order of `counts`."""
        row_of = {key: row for row, key in enumerate(counts)}
        content = repr((ages_s.tolist(), remaining_s.tolist(), list(counts)))
        return cls(
            ages_s,
            remaining_s,
            row_of,
            tuple(counts.values()),
            f"{zlib.crc32(content.encode()):08x}",
        )

    def find(self, group: Group) -> int:
        """Return the row of the smallest group that is known and has the instances."""
        return next(
            row
            for key in reversed(_keys_of(group))
            if (row := self.row_of.get(key)) is not None
        )

    def remaining(
        self, rows: npt.NDArray[np.intp] | int, ages_s: _Floats | float
    ) -> _Floats:
        """Return the expected remaining lifetimes of instances of some ages, seconds.

        An age below 0, as of a launch by a clock that is ahead, counts as 0.
        """
        classes = np.searchsorted(self.ages_s, ages_s, side="right") - 1
        remaining: _Floats = self.remaining_s[rows, np.maximum(classes, 0)]
        return remaining

    # -- the file ----------------------------------------------------------------------

    @classmethod
    def read(cls, path: Path) -> LifetimeModel:
        """Read the file that `to_json` has written.

        Raises
        ------
        ConfigurationError
            The file cannot be read, or is something else; one line names it.
        """
        try:
            stored = msgspec.json.decode(path.read_bytes(), type=_File)
            if stored.format != _FORMAT:
                raise ValueError(f"it has format {stored.format}, not {_FORMAT}")
            ages_s = np.array(stored.ages_s)
            n_ages = len(ages_s)
            if ages_s[0] != 0 or (np.diff(ages_s) <= 0).any():
                raise ValueError("ages_s do not ascend from 0")
            counts: dict[Key, int] = {}
            for row in stored.groups:
                key = row.project_id, row.vcpus, row.memory_mb, row.image
                if len(row.remaining_s) != n_ages or min(row.remaining_s) < 0:
                    raise ValueError(f"remaining_s of {key} are not {n_ages} times")
                counts[key] = row.instances
            if len(counts) != len(stored.groups) or _ALL not in counts:
                raise ValueError("a group occurs twice, or that of all is missing")
            remaining_s = np.array([row.remaining_s for row in stored.groups])
        except (OSError, ValueError) as e:  # msgspec's errors are ValueErrors
            cause = e.strerror if isinstance(e, OSError) else excerpt(str(e))
            raise ConfigurationError(
                f"{_OPTION}: {path} cannot be used: {cause}; `moorage lifetimes` "
                "prints it"
            ) from e
        return cls.of(ages_s, remaining_s, counts)

    def to_json(self) -> str:
        """Return the model as JSON, one line a group."""
        head = {"format": _FORMAT, "ages_s": self.ages_s.astype(int).tolist()}
        groups = [
            msgspec.json.encode(
                _Row(*key, n_instances, self.remaining_s[row].tolist())
            ).decode()
            for (key, row), n_instances in zip(
                self.row_of.items(), self.n_instances, strict=True
            )
        ]
        start = msgspec.json.encode(head).decode().removesuffix("}")
        return f'{start},"groups":[\n' + ",\n".join(groups) + "\n]}\n"


# -- learning --------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Life:
    """What was observed of an instance.

    Attributes
    ----------
    first_age_s, last_age_s : float
        The ages between which it was observed: an instance that was launched before the
        observation began says nothing about ends at lower ages.
    has_ended : bool
        Whether it ended at `last_age_s`; otherwise it lived on.
    """

    group: Group
    first_age_s: float
    last_age_s: float
    has_ended: bool

    @classmethod
    def observed(
        cls,
        group: Group,
        launched_at: float,
        ended_at: float,
        since: float,
        until: float,
    ) -> Life | None:
        """Return what an observation from `since` to `until` saw; None: nothing.

        Parameters
        ----------
        ended_at : float
            Infinite: the instance lives.
        """
        first_age_s = max(0.0, since - launched_at)
        last_age_s = min(ended_at, until) - launched_at
        if last_age_s <= first_age_s:
            return None
        return cls(group, first_age_s, last_age_s, ended_at <= until)


def learn(lives: Iterable[Life]) -> LifetimeModel:
    """Learn how long instances live, by project, CPUs with memory, and image.

    In each age class, a group ends at a constant rate: its ends divided by the time
    that its instances were observed there. So instances that still live count, too.
    The expected remaining lifetime follows from the rates of this age and all later
    ones; it grows with age where old instances rarely end.

    Raises
    ------
    ValueError
        There is nothing to learn from.
    """
    observed = list(lives)
    if not observed:
        raise ValueError("no instance was observed")
    ages_s = np.array(_AGES, float)
    first_ages, last_ages = (
        np.array(ages)
        for ages in zip(*((x.first_age_s, x.last_age_s) for x in observed), strict=True)
    )
    # Ends count in the class in which the observation of the age stops.
    classes = np.searchsorted(ages_s, last_ages, side="left") - 1
    times = np.clip(
        np.minimum(last_ages[:, None], np.append(ages_s[1:], np.inf))
        - np.maximum(first_ages[:, None], ages_s),
        0,
        None,
    )
    ends = np.zeros_like(times)
    ends[np.arange(len(observed)), classes] = [life.has_ended for life in observed]
    rates: dict[Key, _Floats] = {}
    counts: dict[Key, int] = {}
    keys_of = [_keys_of(life.group) for life in observed]
    for level in range(len(_keys_of(observed[0].group))):
        rows_of: dict[Key, list[int]] = {}
        for row, keys in enumerate(keys_of):
            rows_of.setdefault(keys[level], []).append(row)
        for key, rows in rows_of.items():
            if level and len(rows) < _LEAST_INSTANCES:
                continue
            larger = (rates.get(k) for k in reversed(keys_of[rows[0]][:level]))
            prior = next((r for r in larger if r is not None), None)
            n_ends, time_s = ends[rows].sum(axis=0), times[rows].sum(axis=0)
            if prior is None:  # all instances: half an end, at the rate of all ages
                rate = (n_ends.sum() + 0.5) / (time_s.sum() + _DAY_S)
                rates[key] = (n_ends + 0.5) / (time_s + 0.5 / rate)
            else:
                rates[key] = (n_ends + _PRIOR_ENDS) / (time_s + _PRIOR_ENDS / prior)
            counts[key] = len(rows)
    remaining_s = _remaining(ages_s, np.array(list(rates.values())))
    return LifetimeModel.of(ages_s, remaining_s.round(), counts)


def _remaining(ages_s: _Floats, rates: _Floats) -> _Floats:
    """Return the expected remaining lifetimes at ages, of rates between them.

    Parameters
    ----------
    rates : ndarray of float64, shape (n_groups, n_ages), ends a second
    """
    rates = np.maximum(rates, 1 / _LONGEST_S)
    remaining = np.empty_like(rates)
    remaining[:, -1] = 1 / rates[:, -1]
    for i in range(len(ages_s) - 2, -1, -1):
        survives = np.exp(-rates[:, i] * (ages_s[i + 1] - ages_s[i]))
        remaining[:, i] = (1 - survives) / rates[:, i] + survives * remaining[:, i + 1]
    return remaining
