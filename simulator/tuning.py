# SPDX-License-Identifier: Apache-2.0
"""A search of the settings that reach a goal best, and how certain the result is."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from .comparison import FIGURES, Comparison
from .simulation import Result

if TYPE_CHECKING:  # it is part of the extra simulator
    import optuna

#: Settings that are run again with moved arrivals, beside the present ones.
MAX_FRONT: Final = 4
#: The name of the present settings among the runs.
PRESENT: Final = "present"
#: Runs of settings whose figures differ less than this are equal.
_EPSILON: Final = 1e-9

#: Values by the name of the option, as a configuration file has them.
Settings = Mapping[str, str]
#: Runs settings on all traces: with the arrivals of the traces, if the seed is None,
#: otherwise with arrivals that this seed moves. Without settings, the present ones run.
Run = Callable[[Settings, int | None], Sequence[Result]]


@dataclasses.dataclass(frozen=True, slots=True)
class SearchedOption:
    """An option, and the values that are searched.

    Attributes
    ----------
    name : str
        ``GROUP.OPTION``.
    low, high : float
        The range, both included, if there are no choices.
    choices : tuple of str
        The values, if they are no range.
    """

    name: str
    low: float = 0.0
    high: float = 0.0
    is_integer: bool = False
    choices: tuple[str, ...] = ()

    def suggest(self, trial: optuna.Trial) -> str:
        """Return the value of a trial; fractions have three digits."""
        if self.choices:
            return str(trial.suggest_categorical(self.name, self.choices))
        if self.is_integer:
            return str(trial.suggest_int(self.name, int(self.low), int(self.high)))
        value = trial.suggest_float(self.name, self.low, self.high)
        return f"{min(self.high, max(self.low, float(f'{value:.3g}'))):g}"

    def start(self, value: str) -> Any | None:  # noqa: ANN401 - as optuna has it
        """Return a value for a trial that is to begin with it; None: it is outside."""
        if self.choices:
            return value if value in self.choices else None
        try:
            number = float(value)
        except ValueError:  # None, as an option's default
            return None
        if not self.low <= number <= self.high:
            return None
        return int(number) if self.is_integer else number

    def is_at_edge(self, value: str) -> bool:
        """Return whether a wider range might have a better value.

        A range that ends at 0 is complete: there the option has no effect.
        """
        if self.choices:
            return False
        return bool(float(value)) and float(value) in (self.low, self.high)


@dataclasses.dataclass(frozen=True, slots=True)
class Goal:
    """What settings are to reach.

    Attributes
    ----------
    figures : sequence of str
        Those of `FIGURES` to improve, the most important one first.
    at_most, at_least : mapping
        Bounds of figures. Settings within them are better than all others.
    """

    figures: Sequence[str]
    at_most: Mapping[str, float]
    at_least: Mapping[str, float]

    def excess(self, summary: Mapping[str, float]) -> float:
        """Return by how much a run is outside the bounds; 0: it is within them."""
        over = [
            *((summary[name] - bound, bound) for name, bound in self.at_most.items()),
            *((bound - summary[name], bound) for name, bound in self.at_least.items()),
        ]
        return sum(max(0.0, amount) / (abs(bound) or 1.0) for amount, bound in over)

    def costs(self, summary: Mapping[str, float]) -> tuple[float, ...]:
        """Return the figures in their order, with signs so that less is better."""
        return tuple(
            -summary[name] if FIGURES[name].more_is_better else summary[name]
            for name in self.figures
        )

    def rank(self, summary: Mapping[str, float]) -> tuple[float, ...]:
        """Return the key by which the best settings come first."""
        return (self.excess(summary), *self.costs(summary))

    def front(self, summaries: Mapping[str, Mapping[str, float]]) -> list[str]:
        """Return the names that no other one beats in all figures, the best first.

        Of those within the bounds; of all, if none is.
        """
        least = min(map(self.excess, summaries.values()))
        costs = {
            name: self.costs(summary)
            for name, summary in summaries.items()
            if self.excess(summary) <= least
        }
        kept: list[str] = []
        for name in sorted(costs, key=costs.__getitem__):
            if not any(_is_no_worse(costs[other], costs[name]) for other in kept):
                kept.append(name)
        return kept


def _is_no_worse(costs: Sequence[float], others: Sequence[float]) -> bool:
    pairs = zip(costs, others, strict=True)
    return all(cost <= other + _EPSILON for cost, other in pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """Settings that were tried, with the means of their figures."""

    settings: Settings
    summary: Mapping[str, float]


def search(
    options: Sequence[SearchedOption],
    goal: Goal,
    run: Run,
    *,
    starts: Sequence[Settings] = (),
    n_trials: int,
    seed: int,
) -> list[Trial]:
    """Try settings, each on the traces as they are; return them in their order.

    The settings of a trial follow from all earlier ones: a tree-structured Parzen
    estimator of several objectives (Ozaki et al., GECCO 2020), that of optuna.

    Parameters
    ----------
    starts : sequence of Settings
        What is tried first; those with a value outside its range are left out.

    Raises
    ------
    ImportError
        optuna is not installed.
    """
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        directions=["minimize"] * len(goal.figures),
        sampler=optuna.samplers.TPESampler(seed=seed),
    )
    for settings in starts:
        point = {option.name: option.start(settings[option.name]) for option in options}
        if None not in point.values():
            study.enqueue_trial(point, skip_if_exists=True)
    trials: dict[tuple[str, ...], Trial] = {}
    for _ in range(n_trials):
        asked = study.ask()
        settings = {option.name: option.suggest(asked) for option in options}
        key = tuple(settings.values())
        if key not in trials:
            trials[key] = Trial(settings, mean_summary(run(settings, None)))
        summary = trials[key].summary
        asked.set_constraint("bounds", goal.excess(summary))
        study.tell(asked, list(goal.costs(summary)))
    return list(trials.values())


def mean_summary(results: Sequence[Result]) -> dict[str, float]:
    """Return the means of the figures of several runs."""
    summaries = [result.summary() for result in results]
    return {
        name: sum(summary[name] for summary in summaries) / len(summaries)
        for name in FIGURES
    }


@dataclasses.dataclass(frozen=True, slots=True)
class Tuning:
    """What a search has found.

    Attributes
    ----------
    trials : sequence of Trial
    settings : mapping
        By name, those that were run again: the present ones, `PRESENT`, and the best
        trials, "A", "B", …
    comparison : Comparison
        Their runs with moved arrivals, which no trial has seen.
    front : sequence of str
        The names of those that no other one beats in all figures, the best first.
    """

    options: Sequence[SearchedOption]
    goal: Goal
    trials: Sequence[Trial]
    settings: Mapping[str, Settings]
    comparison: Comparison
    front: Sequence[str]

    @property
    def best(self) -> str:
        """The name of the settings that reach the goal best."""
        return self.front[0]

    @property
    def shown(self) -> Sequence[str]:
        """The names of the present settings and of those of the front."""
        return [PRESENT, *(name for name in self.front if name != PRESENT)]

    def doubts(self) -> Iterator[str]:
        """Yield what the runs do not show, one line each."""
        best, goal = self.best, self.goal
        if goal.excess(self._means(best)):
            yield "No settings that were tried are within the bounds"
        n_runs = len(self.comparison.runs[best])
        for other in self.shown:
            if other == best:
                continue
            pair = Comparison(
                {name: self.comparison.runs[name] for name in (other, best)}
            )
            for name in goal.figures:
                difference = pair.difference(best, name)
                if difference.mean and not difference.is_certain:
                    figure = FIGURES[name]
                    yield (
                        f"{n_runs} run(s) do not show that {best} differs from {other} "
                        f"in {figure.text}: "
                        f"{figure.shown(difference.mean, '+,.1f')} ± "
                        f"{figure.shown(difference.margin)}"
                    )
        for option in self.options:
            value = self.settings[best].get(option.name)
            if best != PRESENT and value is not None and option.is_at_edge(value):
                yield (
                    f"{option.name} = {value} is at the edge of its range: a wider one "
                    "may have better values"
                )

    def equal_ranges(self) -> dict[str, tuple[str, str]]:
        """Return by option the least and the largest value that does as well.

        Of the trials whose figures of the goal are no worse than those of the best one
        by more than the margins of its runs. Empty: the present settings are the best.
        """
        if self.best == PRESENT:
            return {}
        settings = self.settings[self.best]
        best = next(trial for trial in self.trials if trial.settings == settings)
        margins = [
            self.comparison.margin(self.best, name) for name in self.goal.figures
        ]
        allowed = [
            cost + margin
            for cost, margin in zip(self.goal.costs(best.summary), margins, strict=True)
        ]
        equal = [
            trial.settings
            for trial in self.trials
            if _is_no_worse(self.goal.costs(trial.summary), allowed)
            and self.goal.excess(trial.summary) <= self.goal.excess(best.summary)
        ]
        return {
            option.name: (
                min((one[option.name] for one in equal), key=float),
                max((one[option.name] for one in equal), key=float),
            )
            for option in self.options
            if not option.choices
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as plain data."""
        return {
            "best": self.best,
            "front": list(self.front),
            "settings": {name: dict(s) for name, s in self.settings.items()},
            "doubts": list(self.doubts()),
            "equal_ranges": self.equal_ranges(),
            "trials": [
                {"settings": dict(t.settings), "summary": dict(t.summary)}
                for t in self.trials
            ],
            **self.comparison.to_dict(),
        }

    def _means(self, name: str) -> dict[str, float]:
        return mean_summary(self.comparison.runs[name])


def tune(  # noqa: PLR0913 - what a search has
    options: Sequence[SearchedOption],
    goal: Goal,
    run: Run,
    present: Settings,
    *,
    starts: Sequence[Settings] = (),
    n_trials: int,
    n_seeds: int,
    seed: int,
) -> Tuning:
    """Search settings, and run the best ones again beside the present ones.

    The arrivals of these runs are moved, so that settings that were good by chance in
    the search are no longer.

    Parameters
    ----------
    n_seeds : int
        How many times each of them runs on each trace, two or more.

    Raises
    ------
    ImportError
        optuna is not installed.
    SchedulerError
        An option or a plugin is invalid, or a plugin failed.
    """
    trials = search(
        options, goal, run, starts=starts, n_trials=n_trials, seed=seed
    )  # fmt: skip
    named = {str(number): trial for number, trial in enumerate(trials)}
    front = goal.front({name: trial.summary for name, trial in named.items()})
    settings: dict[str, Settings] = {PRESENT: present}
    for letter, name in zip("ABCDEFGH"[:MAX_FRONT], front, strict=False):
        settings[letter] = named[name].settings
    runs = {
        name: [
            dataclasses.replace(result, settings=name)
            for number in range(seed + 1, seed + 1 + n_seeds)
            for result in run({} if name == PRESENT else values, number)
        ]
        for name, values in settings.items()
    }
    means = {name: mean_summary(results) for name, results in runs.items()}
    return Tuning(
        options, goal, trials, settings, Comparison(runs), goal.front(means)
    )  # fmt: skip
