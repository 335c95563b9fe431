# SPDX-License-Identifier: Apache-2.0
"""The command `moorage tune`."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console

from ...errors import SchedulerError
from .answering import json_option, print_answer
from .replaying import Setting, set_option
from .session import CommandSession
from .simulation_input import (
    SimulationInput,
    options_of,
    print_scale,
    progress_bar,
    requested_flavors,
    simulation_input,
)
from .tables import Answer, make_table
from .text import cell, safe

if TYPE_CHECKING:  # NumPy is slow to import
    from oslo_config import cfg

    from ....simulator.simulation import Result
    from ....simulator.traces import Trace
    from ....simulator.tuning import Goal, SearchedOption, Settings, Tuning

#: What is searched if no --option is passed. In units of the multipliers of CPUs and
#: memory, a builder of instances weighs at most as with nova's default.
_DEFAULTS: Final = (
    "filter_scheduler.cpu_weight_multiplier=-2..2",
    "filter_scheduler.ram_weight_multiplier=-2..2",
    "filter_scheduler.io_ops_weight_multiplier=-1..0",
    "filter_scheduler.fragmentation_weight_multiplier=0..16",
)
#: It is searched, too, if instances have disks.
_DISK: Final = "filter_scheduler.disk_weight_multiplier=-2..2"
_FLAVORS: Final = "filter_scheduler.fragmentation_flavors"
_FRAGMENTATION: Final = "filter_scheduler.fragmentation_weight_multiplier"
_N_FLAVORS: Final = 24
_IS_IDLE: Final = (
    "present: FragmentationWeigher is idle, as fragmentation_flavors is not set; the "
    "others have the flavors of the trace"
)


@click.command()
@simulation_input
@set_option("An option that replaces that of the configuration")
@click.option(
    "--option", "searched", metavar="GROUP.OPTION=LOW..HIGH", multiple=True,
    help="Search these values of an option, or VALUE|VALUE…; may be repeated. By "
    "default, the multipliers of CPUs, memory, I/O operations, fragmentation and, if "
    "instances have disks, disk.",
)  # fmt: skip
@click.option(
    "--trials", "n_trials", type=click.IntRange(1), default=60, show_default=True,
    metavar="N", help="Try N settings.",
)  # fmt: skip
@click.option(
    "--seeds", "n_seeds", type=click.IntRange(2), default=4, show_default=True,
    metavar="N", help="Run the best ones N times again, with arrivals moved by up to 5 "
    "minutes; the differences get intervals.",
)  # fmt: skip
@click.option(
    "--goal", default="refused,empty_hosts", show_default=True, metavar="FIGURE,…",
    help="What to improve, the most important figure first.",
)  # fmt: skip
@click.option(
    "--at-most", metavar="FIGURE=VALUE", multiple=True,
    help="Prefer settings within this bound, such as stranded_memory=20%; may be "
    "repeated.",
)  # fmt: skip
@click.option(
    "--at-least", metavar="FIGURE=VALUE", multiple=True, help="A bound from below.",
)  # fmt: skip
@json_option
@click.pass_obj
def tune(  # noqa: PLR0913 - one for each option
    session: CommandSession,
    given: SimulationInput,
    settings: Sequence[Setting],
    searched: Sequence[str],
    n_trials: int,
    n_seeds: int,
    goal: str,
    at_most: Sequence[str],
    at_least: Sequence[str],
    as_json: bool,
) -> None:
    """Search the settings that reach a goal best on a trace.

    Each trial is a simulation of the traces, as `moorage simulate` runs it; the values
    of a trial follow from the results of earlier ones. Those that no other trial beats
    are run again beside the present settings. With equal arguments the results are
    equal.
    """
    from ....simulator.events import EventsError
    from ....simulator.simulation import simulate
    from ....simulator.traces import TraceError
    from ....simulator.tuning import MAX_FRONT
    from ....simulator.tuning import tune as search
    from ...conf.presets import PRESETS

    wanted = _goal(goal, at_most, at_least)
    view = given.view(session)
    make_hosts, events = given.hosts(view), given.events()
    try:
        files = session.config_files
        conf, tried = (options_of(files, settings, view) for _ in range(2))
        traces = given.traces(session)
        texts = searched or _defaults(traces)
        options = [_searched_option(conf, text) for text in texts]
        names = [option.name for option in options]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise click.BadParameter(
                f"{min(repeated)} is named twice", param_hint="--option"
            )
        flavors: list[str] = []
        if any(option.name == _FRAGMENTATION for option in options):
            flavors = conf.filter_scheduler.fragmentation_flavors
            flavors = flavors or requested_flavors(traces, _N_FLAVORS)
            _set(tried, {_FLAVORS: ",".join(flavors)})
        n_runs = n_trials + (1 + MAX_FRONT) * n_seeds
        with progress_bar(sum(map(len, traces)) * n_runs) as progress:
            hosts = [make_hosts(trace) for trace in traces]

            def run(values: Settings, moved_by: int | None) -> list[Result]:
                if values:
                    _set(tried, values)
                return [
                    simulate(
                        tried if values else conf,
                        of_trace,
                        trace if moved_by is None else trace.jittered(moved_by),
                        seed=given.seed if moved_by is None else moved_by,
                        events=events,
                        progress=progress,
                    )
                    for trace, of_trace in zip(traces, hosts, strict=True)
                ]

            present = _present(conf, names)
            if not conf.filter_scheduler.fragmentation_flavors:
                present.pop(_FRAGMENTATION, None)  # the weigher is idle
            tuning = search(
                options,
                wanted,
                run,
                present,
                starts=[_of_preset(conf, names, preset) for preset in PRESETS],
                n_trials=n_trials,
                n_seeds=n_seeds,
                seed=given.seed,
            )
    except (TraceError, EventsError, SchedulerError) as e:
        raise click.ClickException(safe(str(e), 400)) from e
    except ImportError as e:
        raise click.ClickException(
            f"`moorage tune` needs the extra simulator: pip install "
            f"'moorage[simulator]' ({e})"
        ) from e
    answer = tuning.to_dict()
    answer["configuration"] = _configuration(tuning, flavors)
    answer["skipped"] = {trace.name: dict(trace.skipped) for trace in traces}
    print_answer(as_json, answer, lambda console, a: _show(console, a, tuning))


def _defaults(traces: Sequence[Trace]) -> Sequence[str]:
    has_disks = any(trace.peak()[2] for trace in traces)
    return (*_DEFAULTS, _DISK) if has_disks else _DEFAULTS


def _goal(figures: str, at_most: Sequence[str], at_least: Sequence[str]) -> Goal:
    """Return the goal of the options.

    Raises
    ------
    click.BadParameter
        A figure does not exist, or a bound is no number.
    """
    from ....simulator.comparison import FIGURES
    from ....simulator.tuning import Goal

    rankable = [name for name, f in FIGURES.items() if f.more_is_better is not None]
    names = [name.strip() for name in figures.split(",")]
    unknown = [name for name in names if name not in rankable]
    if unknown or len(set(names)) < len(names):
        raise click.BadParameter(
            f"{safe(figures, 80)!r} does not name each of its figures once; they are "
            f"{', '.join(rankable)}",
            param_hint="--goal",
        )

    def bounds(hint: str, texts: Sequence[str]) -> dict[str, float]:
        read = {}
        for text in texts:
            name, _, number = text.partition("=")
            try:
                percent = number.endswith("%")
                value = float(number.rstrip("%")) / (100 if percent else 1)
            except ValueError:
                value = math.nan
            if name not in FIGURES or not math.isfinite(value):
                raise click.BadParameter(
                    f"{safe(text, 80)!r} is not FIGURE=VALUE, such as refused=2 or "
                    f"stranded_memory=20%; the figures are {', '.join(FIGURES)}",
                    param_hint=hint,
                )
            read[name] = value
        return read

    return Goal(names, bounds("--at-most", at_most), bounds("--at-least", at_least))


def _searched_option(conf: cfg.ConfigOpts, text: str) -> SearchedOption:
    """Return what --option names.

    Raises
    ------
    click.BadParameter
        The option does not exist, or cannot have the values.
    """
    from oslo_config import types

    from ....simulator.tuning import SearchedOption
    from ...conf import registered_opts
    from ..checks.option_table import unknown_option

    def wrong(why: object) -> click.BadParameter:
        return click.BadParameter(
            f"{safe(text, 80)}: {safe(str(why), 200)}", param_hint="--option"
        )

    name, _, values = text.partition("=")
    group, _, option = name.strip().replace("-", "_").partition(".")
    low, is_range, high = values.partition("..")
    choices = [value.strip() for value in values.split("|")]
    if not (group and option) or not (is_range or len(choices) > 1):
        raise wrong("write GROUP.OPTION=LOW..HIGH or GROUP.OPTION=VALUE|VALUE")
    opts = {(group, opt.dest): opt for group, opt, _ in registered_opts(conf)}
    opt = opts.get((None if group == "DEFAULT" else group, option))
    if opt is None:
        known = {(group or "DEFAULT", name) for group, name in opts}
        raise wrong(unknown_option((group, option), known))
    name = f"{group}.{option}"
    try:
        for value in [low, high] if is_range else choices:
            opt.type(value)
        if not is_range:
            return SearchedOption(name, choices=tuple(dict.fromkeys(choices)))
        if not isinstance(opt.type, types.Number):
            raise wrong("a range needs an option that is a number: write VALUE|VALUE")
        low_number, high_number = float(low), float(high)
    except (ValueError, TypeError) as e:
        raise wrong(e) from e
    if not low_number < high_number or not math.isfinite(high_number - low_number):
        raise wrong("the range is empty or infinite: write LOW..HIGH, such as -2..2")
    is_integer = isinstance(opt.type, types.Integer)
    return SearchedOption(name, low_number, high_number, is_integer=is_integer)


def _set(conf: cfg.ConfigOpts, values: Settings) -> None:
    for name, value in values.items():
        group, _, option = name.partition(".")
        conf.set_override(option, value, None if group == "DEFAULT" else group)


def _present(conf: cfg.ConfigOpts, names: Sequence[str]) -> dict[str, str]:
    """Return the values of options that a configuration has, presets included."""
    from ...conf.presets import PRESETS, multiplier

    presettable = {key for preset in PRESETS.values() for key in preset.multipliers}
    values: dict[str, Any] = {}
    for name in names:
        group, _, option = name.partition(".")
        if (group, option) in presettable:
            values[name] = multiplier(conf, group, option)[0]
        else:
            values[name] = (conf if group == "DEFAULT" else conf[group])[option]
    return {name: _text(value) for name, value in values.items()}


def _of_preset(
    conf: cfg.ConfigOpts, names: Sequence[str], preset: str
) -> dict[str, str]:
    """Return the values of options with a preset, otherwise those of `conf`."""
    from ...conf.presets import PRESETS

    values = {
        f"{group}.{option}": _text(value)
        for (group, option), value in PRESETS[preset].multipliers.items()
    }
    return {**_present(conf, names), **{n: v for n, v in values.items() if n in names}}


def _text(value: Any) -> str:  # noqa: ANN401 - of any option
    """Return a value as a file has it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def _configuration(tuning: Tuning, flavors: Sequence[str]) -> str:
    """Return the best settings as lines of a file; empty: they are the present ones."""
    from ....simulator.tuning import PRESENT

    if tuning.best == PRESENT:
        return ""
    values = dict(tuning.settings[tuning.best])
    if float(values.get(_FRAGMENTATION, 0)):
        values[_FLAVORS] = ", ".join(flavors)
    by_group = defaultdict[str, list[str]](list)
    for name, value in values.items():
        group, _, option = name.partition(".")
        by_group[group].append(f"{option} = {value}\n")
    return "".join(f"[{group}]\n{''.join(by_group[group])}" for group in by_group)


def _show(console: Console, answer: Answer, tuning: Tuning) -> None:
    from ....simulator.comparison import FIGURES
    from ....simulator.tuning import PRESENT

    comparison, columns, best = tuning.comparison, tuning.shown, tuning.best
    print_scale(console, answer["skipped"], comparison.runs[PRESENT][0])
    goal = ", then ".join(
        f"{'most' if FIGURES[name].more_is_better else 'fewest'}: {FIGURES[name].text}"
        for name in tuning.goal.figures
    )
    console.print(cell(f"{len(tuning.trials):,} settings tried; {goal}"))
    table = make_table("", "", *columns, right=columns)
    for option in tuning.options:
        values = [tuning.settings[name].get(option.name, "idle") for name in columns]
        table.add_row(cell(option.name.partition(".")[2]), *map(cell, values))
    table.add_section()
    for name, figure in comparison.figures.items():
        shown = [comparison.shown(settings, name) for settings in columns]
        table.add_row(figure.text, *shown)
    console.print(table)
    if any(o.name not in tuning.settings[PRESENT] for o in tuning.options):
        console.print(cell(_IS_IDLE))
    if best == PRESENT:
        console.print("The present settings reach the goal best.")
    else:
        console.print(f"{best} reaches the goal best:\n")
        for line in answer["configuration"].splitlines():
            console.print(cell(line, limit=len(line)), soft_wrap=True)
        console.print()
    ranges = [
        f"{name.partition('.')[2]} from {least} to {most}"
        for name, (least, most) in answer["equal_ranges"].items()
        if least != most
    ]
    if ranges:
        text = f"Trials that differ from {best} by less than its interval have "
        text += ", ".join(ranges)
        console.print(cell(text, limit=len(text)))
    for doubt in answer["doubts"]:
        console.print(cell(doubt, "yellow"))
