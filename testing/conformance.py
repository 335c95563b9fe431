# SPDX-License-Identifier: Apache-2.0
"""Check the contract of filters and weighers, Moorage's own and third-party ones.

`check_plugin` checks one plugin with many drawn hosts and requests; `check_filter` and
`check_weigher` check it with given hosts and one request. Each raises an AssertionError
that names the plugin and the violated property.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st
from oslo_config import cfg

from ..filters import BaseHostFilter
from ..objects import RequestSpec
from ..objects.base import WireObject
from ..scheduler.conf import load
from ..scheduler.drivers.instances import spec_of_instance
from ..scheduler.drivers.nova_plugins import make_filter, make_weigher
from ..scheduler.errors import SchedulerError
from ..scheduler.hosts import Consumption, HostAggregate, HostBatch, HostState
from ..weighers import BaseHostWeigher
from . import builders
from .builders import NOW
from .purity import no_io, snapshot_of
from .strategies import batches as any_batches
from .strategies import requests as any_requests

#: Columns that `hosts_code` shows in another form, or omits.
_SHOWN_APART = frozenset({"host", "nodename", "aggregates", "placement_places"})


def example_code(hosts: HostBatch, spec_obj: RequestSpec) -> str:
    """Return calls of `batch` and `spec` that create the same hosts and request."""
    return f"hosts = {hosts_code(hosts)}\nspec_obj = {request_code(spec_obj)}"


def hosts_code(hosts: HostBatch) -> str:
    """Return a call of `batch`, with the differences of each host from `host()`."""
    arguments = [_host(hosts, index) for index in range(len(hosts))]
    aggregates = {
        aggregate.id: aggregate for row in hosts for aggregate in row.aggregates
    }
    if aggregates:
        calls = ", ".join(_aggregate(aggregate) for aggregate in aggregates.values())
        arguments.append(f"aggregates=[{calls}]")
    instances = {row.host: sorted(row.instances) for row in hosts if row.instances}
    if instances:
        arguments.append(f"instances={instances}")
    return f"batch({', '.join(arguments)})"


def _host(hosts: HostBatch, index: int) -> str:
    host, node = hosts.value("host", index), hosts.value("nodename", index)
    default_host = builders.host(host=host, nodename=node)
    changes = {"host": host} if node == host else {"host": host, "nodename": node}
    for name in hosts.column_names:
        value = hosts.value(name, index)
        if name not in _SHOWN_APART and value != getattr(default_host, name, None):
            changes[name] = value
    return _call("host", changes)


def _aggregate(aggregate: HostAggregate) -> str:
    names = ", ".join(map(repr, (aggregate.id, *sorted(aggregate.hosts))))
    metadata = dict(aggregate.metadata)
    if all(key.isidentifier() for key in metadata):
        pairs = "".join(f", {key}={value!r}" for key, value in metadata.items())
    else:
        pairs = f", **{metadata!r}"
    return f"aggregate({names}{pairs})"


def request_code(spec_obj: RequestSpec) -> str:
    """Return a call of `spec`, with the differences from `spec()`."""
    default_spec = builders.spec()
    changes = dict(_changes(spec_obj, default_spec))
    flavor_changes = dict(_changes(spec_obj.flavor, default_spec.flavor))
    if flavor_changes.keys() <= builders.FLAVOR.keys():
        changes.pop("flavor", None)
        changes |= flavor_changes
    return _call("spec", changes)


def _changes(changed: WireObject, default: WireObject) -> Iterator[tuple[str, object]]:
    """Yield the fields that are set and differ."""
    for name in changed.fields:
        if name in changed:
            value = getattr(changed, name)
            has_default = name in default
            if not has_default or _code(value) != _code(getattr(default, name)):
                yield name, value


def _call(name: str, arguments: dict[str, object]) -> str:
    pairs = (f"{key}={_code(value)}" for key, value in arguments.items())
    return f"{name}({', '.join(pairs)})"


def _code(value: object) -> str:
    """Return a value as Python code, as far as possible."""
    if isinstance(value, WireObject):
        fields = {name: getattr(value, name) for name in value.fields if name in value}
        return _call(type(value).__name__, fields)
    if isinstance(value, list):
        return f"[{', '.join(map(_code, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    return repr(value)


#: What an earlier instance of the request consumes.
_CONSUMPTION = Consumption(memory_mb=512, disk_mb=1024, vcpus=1)

Plugin = BaseHostFilter | BaseHostWeigher
Answers = npt.NDArray[Any]
T = TypeVar("T")


def check_plugin(
    plugin: type | Plugin,
    *,
    batches: st.SearchStrategy[HostBatch] | None = None,
    requests: st.SearchStrategy[RequestSpec] | None = None,
    conf: cfg.ConfigOpts | None = None,
    max_examples: int = 100,
) -> None:
    """Check a plugin with hosts and requests of all kinds.

    Parameters
    ----------
    plugin : type or BaseHostFilter or BaseHostWeigher
        A class, also one that was written for nova, or an instance.
    batches, requests : hypothesis strategies, optional
        The input: by default `moorage.testing.batches` and `moorage.testing.requests`,
        which accept the values that a plugin reads.
    conf : oslo_config.cfg.ConfigOpts, optional
        The options for creating a class; by default all have their defaults.

    Raises
    ------
    AssertionError
        The contract is violated. The message names the plugin and the property; its
        note has the smallest failing hosts and request, as calls of the builders.
    """
    instance = _instance(plugin, conf or load([], config_files=[]))
    check = check_filter if isinstance(instance, BaseHostFilter) else check_weigher

    @settings(
        max_examples=max_examples,
        deadline=None,
        database=None,
        # hypothesis would show hosts by their addresses only, and every drawn value.
        verbosity=Verbosity.quiet,
        print_blob=False,
        # Explaining a failure takes minutes here, and adds little.
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(
        hosts=any_batches() if batches is None else batches,
        spec_obj=any_requests() if requests is None else requests,
    )
    def fulfills_contract(hosts: HostBatch, spec_obj: RequestSpec) -> None:
        try:
            check(instance, hosts, spec_obj)  # type: ignore[arg-type]
        except AssertionError as e:
            e.add_note(example_code(hosts, spec_obj))
            raise

    fulfills_contract()


def _instance(plugin: type | Plugin, conf: cfg.ConfigOpts) -> Plugin:
    if not isinstance(plugin, type):
        return plugin
    is_weigher = issubclass(plugin, BaseHostWeigher) or hasattr(plugin, "_weigh_object")
    make: Callable[..., Plugin] = make_weigher if is_weigher else make_filter
    return make(plugin, conf, lambda: NOW)


def check_filter(
    filter_: BaseHostFilter, hosts: HostBatch, spec_obj: RequestSpec
) -> None:
    """Check both forms of a filter with some hosts, `ROWWISE`, and its side effects.

    Raises
    ------
    AssertionError
        The contract is violated.
    """
    trial = _Trial(filter_, hosts, spec_obj)
    prepared = trial.prepared()
    trial.check(
        "passing", lambda rows: prepared.passing(rows, spec_obj), np.dtype(bool)
    )
    trial.check_rowwise("passing", prepared.passing)
    trial.check_rowwise_candidates(prepared.passing_candidates)
    trial.check_one(
        "passing",
        "host_passes",
        lambda row: prepared.host_passes(row, spec_obj),
    )
    trial.check_one(
        "passing",
        "explain_rejection",
        lambda row: prepared.explain_rejection(row, spec_obj) is None,
    )


def check_weigher(
    weigher: BaseHostWeigher, hosts: HostBatch, spec_obj: RequestSpec
) -> None:
    """Check both forms of a weigher with some hosts, `ROWWISE`, and its side effects.

    Raises
    ------
    AssertionError
        The contract is violated.
    """
    trial = _Trial(weigher, hosts, spec_obj)
    prepared = trial.prepared()
    number = np.dtype(np.float64)

    trial.check("weigh_all", lambda rows: prepared.weigh_all(rows, spec_obj), number)
    trial.check("multipliers", prepared.multipliers, number)
    trial.check_rowwise("weigh_all", prepared.weigh_all)
    trial.check_rowwise("multipliers", lambda rows, _spec: prepared.multipliers(rows))
    trial.check_one(
        "weigh_all", "weigh_host", lambda row: prepared.weigh_host(row, spec_obj)
    )


class _Trial:
    """One plugin, some hosts, one request, and the plugin's answers."""

    def __init__(self, plugin: Plugin, hosts: HostBatch, spec_obj: RequestSpec) -> None:
        self._plugin = plugin
        self._hosts = hosts
        self._spec = spec_obj
        self._answers: dict[str, Answers | None] = {}

    def prepared(self) -> Any:  # noqa: ANN401 - a filter or a weigher, as given
        inputs_before = snapshot_of(self._plugin, self._hosts, self._spec)
        prepared = self._watched("prepare", lambda: self._plugin.prepare(self._spec))
        self._expect_unchanged("prepare", self._plugin, inputs_before)
        if prepared is None:
            # The plugin refuses the request.
            return self._plugin
        self._expect(
            isinstance(prepared, type(self._plugin)),
            f"prepare returns a {type(self._plugin).__name__}, "
            f"not a {type(prepared).__name__}",
        )
        self._plugin = prepared
        return prepared

    def check(
        self, method: str, ask: Callable[[HostBatch], Answers], dtype: np.dtype[Any]
    ) -> None:
        """Check the properties of the whole-batch form."""
        inputs_before = snapshot_of(self._plugin, self._hosts, self._spec)
        answers = self._watched(method, lambda: ask(self._hosts))
        self._expect_unchanged(method, self._plugin, inputs_before)
        self._answers[method] = answers
        if answers is None:
            return
        shape = (len(self._hosts),)
        self._expect(
            isinstance(answers, np.ndarray) and answers.shape == shape,
            f"{method} answers an array of shape {shape}, "
            f"not {getattr(answers, 'shape', type(answers).__name__)}",
        )
        self._expect(
            answers.dtype == dtype, f"{method} answers {dtype}, not {answers.dtype}"
        )
        self._expect(
            bool(np.isfinite(answers).all()),
            f"{method} answers no NaN and no infinity: {answers.tolist()}",
        )
        backwards = self._watched(method, lambda: ask(self._hosts.take(self._order)))
        self._expect_same(
            backwards, answers[::-1], f"{method} answers the same in any order of rows"
        )

    def check_rowwise(
        self, method: str, ask: Callable[[HostBatch, RequestSpec], Answers]
    ) -> None:
        """Check what a plugin with `ROWWISE` promises of its answers for hosts.

        For some hosts they are the same, bit for bit, as for all; and for a later
        instance of the request they change only where an instance may have changed.
        """
        answers = self._answers[method]
        if answers is None or not self._plugin.ROWWISE:
            return
        for part in self._parts():
            few_hosts = self._hosts.take(part)
            few = self._watched(method, lambda: ask(few_hosts, self._spec))  # noqa: B023 - called at once
            self._expect(
                few is not None and np.array_equal(few, answers[part]),
                f"ROWWISE: {method} answers the same for some hosts as for all; here "
                f"they are {few} and {answers[part]}",
            )
        given = self._spec.instance_uuid if "instance_uuid" in self._spec else None
        uuids = [
            given or builders.instance_uuid("first"),
            builders.instance_uuid("next"),
        ]
        next_spec = spec_of_instance(self._spec, uuids[1])
        for index in range(len(self._hosts)):
            later = self._hosts.with_instance(index, uuids[0], _CONSUMPTION)
            changed = later.changed_for(uuids, later.instances_revision)
            if changed is None:
                return
            same = np.delete(np.arange(len(later)), changed)
            after = self._watched(method, lambda: ask(later, next_spec))  # noqa: B023 - called at once
            self._expect(
                after is not None and np.array_equal(after[same], answers[same]),
                f"ROWWISE: {method} answers the same for a host on which the request "
                f"has placed nothing; here they are {after} and {answers}",
            )

    def check_rowwise_candidates(
        self, ask: Callable[[HostBatch, RequestSpec], Answers | None]
    ) -> None:
        """Check that the answers for some hosts' candidates are those for all."""
        if not self._plugin.ROWWISE:
            return
        method = "passing_candidates"
        answers = self._watched(method, lambda: ask(self._hosts, self._spec))
        for part in self._parts():
            few_hosts = self._hosts.take(part)
            few = self._watched(method, lambda: ask(few_hosts, self._spec))  # noqa: B023 - called at once
            expected, is_same = answers, few is answers
            if answers is not None:
                expected = answers[np.isin(self._hosts.candidates.rows, part)]
                is_same = few is not None and np.array_equal(few, expected)
            self._expect(
                is_same,
                f"ROWWISE: {method} answers the same for some hosts as for all; here "
                f"they are {few} and {expected}",
            )

    def _parts(self) -> Iterator[npt.NDArray[np.intp]]:
        """Yield the indices of each host alone, and of every second host."""
        indices = np.arange(len(self._hosts))
        yield from indices[:, np.newaxis]
        yield indices[::2]
        yield indices[1::2]

    @property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.arange(len(self._hosts), dtype=np.intp)[::-1]

    def check_one(
        self,
        batch_method: str,
        host_method: str,
        ask: Callable[[HostState], bool | float],
    ) -> None:
        """Check that the per-host form agrees with the whole-batch form."""
        answers = self._answers[batch_method]
        if answers is None:
            return
        inputs_before = snapshot_of(self._plugin, self._hosts, self._spec)
        by_host = self._watched(host_method, lambda: [ask(row) for row in self._hosts])
        self._expect_unchanged(host_method, self._plugin, inputs_before)
        self._expect_same(
            by_host,
            answers,
            f"{host_method} of each host and {batch_method} of all of them agree",
        )

    def _watched(self, method: str, ask: Callable[[], T]) -> T | None:
        """Return the answer, or None if the plugin refuses the request."""
        answer = None
        with no_io() as tried:
            try:
                answer = ask()
            except SchedulerError:
                pass
            except Exception as error:
                # Third-party code may raise anything: that is a violated property,
                # reported with the plugin's name.
                if not tried:
                    self._fail(
                        f"{method} answers any request, or refuses it with an error "
                        f"of moorage.scheduler.errors; it raised "
                        f"{type(error).__name__}: {error}",
                        error,
                    )
        self._expect(not tried, f"{method} does no I/O; it tried {', '.join(tried)}")
        return answer

    def _expect_unchanged(
        self, method: str, plugin: Plugin, inputs_before: dict[str, object]
    ) -> None:
        inputs_after = snapshot_of(plugin, self._hosts, self._spec)
        changed = [
            name for name, value in inputs_after.items() if value != inputs_before[name]
        ]
        self._expect(
            not changed,
            f"{method} changes nothing; it changed {' and '.join(changed)}",
        )

    def _expect_same(
        self,
        answers: Answers | list[bool | float] | None,
        expected: Answers,
        claim: str,
    ) -> None:
        is_same = answers is not None and np.allclose(answers, expected, 1e-9, 1e-9)
        self._expect(is_same, f"{claim}; here they are {answers} and {expected}")

    def _expect(self, holds: bool, claim: str) -> None:
        if not holds:
            self._fail(claim)

    def _fail(self, claim: str, cause: BaseException | None = None) -> None:
        raise AssertionError(f"{type(self._plugin).__name__}: {claim}") from cause
