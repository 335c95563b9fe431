# SPDX-License-Identifier: Apache-2.0
"""Hosts are ordered by the sum of their weights, ties and subset at random."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from moorage.objects import RequestSpec
from moorage.scheduler.drivers.plugins import load_weighers
from moorage.scheduler.drivers.ranking import Ranking
from moorage.scheduler.drivers.weighing import rank_hosts
from moorage.scheduler.errors import PluginError
from moorage.scheduler.hosts import HostBatch
from moorage.weighers import BaseHostWeigher
from moorage.weighers.columns import RAMWeigher

from ...conftest import NOW, aggregate, batch, host, hosts, options, spec

RAM = [10, 40, 20, 30]


def _ranked(
    rows: HostBatch,
    *,
    weighers: Iterable[type[BaseHostWeigher]] = (RAMWeigher,),
    seed: int = 1,
    ties: Any = None,
    **changes: Any,
) -> Ranking:
    conf = options(**changes)
    return rank_hosts(
        [cls(conf) for cls in weighers],
        rows,
        spec(),
        conf=conf,
        ties=np.arange(len(rows)) / 100 if ties is None else np.array(ties),
        rng=np.random.default_rng(seed),
    )


def _order(ranking: Ranking) -> str:
    return "".join(ranking.hosts.host[ranking.order])


def test_heaviest_host_is_first() -> None:
    ranking = _ranked(batch(*hosts("free_ram_mb", RAM)))
    assert _order(ranking) == "bdca"
    assert ranking.total.tolist() == pytest.approx([0.25, 1, 0.5, 0.75])


def test_negative_multiplier_packs() -> None:
    ranking = _ranked(batch(*hosts("free_ram_mb", RAM)), ram_weight_multiplier=-1.0)
    assert _order(ranking) == "acdb"


def test_hosts_of_an_aggregate_have_its_multiplier() -> None:
    packs = aggregate(1, "b", ram_weight_multiplier="-1")
    ranking = _ranked(batch(*hosts("free_ram_mb", RAM), aggregates=[packs]))
    assert _order(ranking) == "dcab"


def test_failed_builds_weigh_more_than_all_else() -> None:
    rows = batch(
        host(host="a", free_ram_mb=1, failed_builds=0),
        host(host="b", free_ram_mb=9999, failed_builds=1),
        host(host="c", free_ram_mb=9999, failed_builds=50),
    )
    conf = options()
    ranking = rank_hosts(
        load_weighers(conf, lambda: NOW),
        rows,
        spec(),
        conf=conf,
        ties=np.zeros(3),
        rng=np.random.default_rng(1),
    )
    assert _order(ranking) == "abc"
    (first, second, third) = ranking.top()
    parts = [
        next(p for p in each.parts if p.name == "BuildFailureWeigher")
        for each in (first, second, third)
    ]
    assert [p.raw for p in parts] == [0, 1, 50]
    assert [p.normalized for p in parts] == pytest.approx([0, 0.02, 1])
    assert [p.weighted for p in parts] == pytest.approx([0, -20000, -1e6])


def test_equal_hosts_all_weigh_one_from_a_class_minimum() -> None:
    ranking = _ranked(batch(*hosts("free_ram_mb", [5, 5])))
    assert ranking.total.tolist() == [1, 1]


class Never(BaseHostWeigher):
    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        raise AssertionError("called")


@pytest.mark.parametrize("n_hosts", [0, 1])
def test_fewer_than_two_hosts_are_not_weighed(n_hosts: int) -> None:
    ranking = _ranked(batch(*hosts("free_ram_mb", RAM[:n_hosts])), weighers=[Never])
    assert ranking.total.tolist() == [0.0] * n_hosts
    assert len(ranking.order) == len(ranking.top()) == n_hosts


# -- chance ----------------------------------------------------------------------------


def test_ties_order_equal_hosts_only() -> None:
    rows = batch(*hosts("free_ram_mb", [5, 9, 5, 5]))
    assert _order(_ranked(rows, ties=[0.3, 0.9, 0.1, 0.2])) == "bcda"


@pytest.mark.parametrize("n_ties", [1, 3, 2000])
@pytest.mark.parametrize("n_weights", [1, 2, 40])
def test_many_equal_hosts_are_all_ordered_and_few_of_them_at_first(
    n_weights: int, n_ties: int
) -> None:
    rng = np.random.default_rng(n_weights)
    rows = batch(*hosts("free_ram_mb", rng.integers(n_weights, size=2000).tolist()))
    ties = rng.integers(n_ties, size=2000)
    ranking = _ranked(rows, ties=ties)
    expected = np.lexsort((ties, -ranking.total))
    assert ranking.order.tolist() == list(ranking) == expected.tolist()
    assert len(ranking.best) <= 256 or n_ties < 2000


def test_equal_best_hosts_are_shuffled_each_time() -> None:
    rows = batch(*hosts("free_ram_mb", [5, 9, 9, 9]))
    orders = {
        _order(_ranked(rows, seed=seed, shuffle_best_same_weighed_hosts=True))
        for seed in range(100)
    }
    assert orders == {"bcda", "bdca", "cbda", "cdba", "dbca", "dcba"}


def test_unshuffled_equal_hosts_stay_in_order() -> None:
    rows = batch(*hosts("free_ram_mb", [5, 9, 9, 9]))
    assert {_order(_ranked(rows, seed=seed)) for seed in range(20)} == {"bcda"}


@pytest.mark.parametrize(
    ("size", "orders"),
    [
        pytest.param(1, {"bdca"}, id="the best"),
        pytest.param(2, {"bdca", "dbca"}, id="one of two"),
        pytest.param(4, {"bdca", "dbca", "cbda", "abdc"}, id="one of all"),
        pytest.param(99, {"bdca", "dbca", "cbda", "abdc"}, id="more than there are"),
    ],
)
def test_one_of_the_best_moves_to_the_front_of_the_rest_in_order(
    size: int, orders: set[str]
) -> None:
    rows = batch(*hosts("free_ram_mb", RAM))
    seen = {_order(_ranked(rows, seed=s, host_subset_size=size)) for s in range(60)}
    assert seen == orders


def test_same_seed_gives_the_same_order() -> None:
    rows = batch(*hosts("free_ram_mb", [5] * 10))
    chance: dict[str, Any] = {
        "shuffle_best_same_weighed_hosts": True,
        "host_subset_size": 5,
    }
    orders = [_order(_ranked(rows, seed=7, **chance)) for _ in range(5)]
    assert len(set(orders)) == 1
    assert orders[0] != _order(_ranked(rows, seed=8, **chance))


# -- the record ------------------------------------------------------------------------


def test_top_names_the_first_hosts_and_each_weighers_part() -> None:
    ranking = _ranked(
        batch(*hosts("free_ram_mb", range(10))), ram_weight_multiplier=2.0
    )
    top = ranking.top()
    assert [w.host for w in top] == list("jihgf")
    (part,) = top[1].parts
    assert (part.name, part.raw) == ("RAMWeigher", 8.0)
    assert (part.normalized, part.weighted) == pytest.approx((8 / 9, 16 / 9))
    assert top[1].weight == part.weighted


# -- bad answers -----------------------------------------------------------------------


class Odd(BaseHostWeigher):
    answer: Any = None

    def weigh_all(self, hosts: HostBatch, spec_obj: RequestSpec) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


ANSWERS = [
    pytest.param(None, "returned an array of shape", id="none"),
    pytest.param(1.0, r"of shape \(\); it must be \(4,\)", id="one for all"),
    pytest.param([1.0], r"of shape \(1,\)", id="too short"),
    pytest.param([[1.0]] * 4, r"of shape \(4, 1\)", id="a matrix"),
    pytest.param(["x"] * 4, "failed: ValueError", id="text"),
    pytest.param([1, 2, 3, np.nan], "returned NaN or infinity", id="not a number"),
    pytest.param([1, 2, 3, -np.inf], "returned NaN or infinity", id="infinity"),
    pytest.param(KeyError("x"), "failed: KeyError: 'x'", id="failure"),
]


@pytest.mark.parametrize(("answer", "reported"), ANSWERS)
def test_bad_answer_is_an_error_that_names_the_weigher(
    answer: Any, reported: str
) -> None:
    odd = type("Odd", (Odd,), {"answer": answer})
    with pytest.raises(PluginError, match=f"weigher Odd .*{reported}"):
        _ranked(batch(*hosts("free_ram_mb", RAM)), weighers=[odd])


class OddMultiplier(RAMWeigher):
    answer: Any = None

    def multipliers(self, hosts: HostBatch) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(("answer", "reported"), ANSWERS)
def test_bad_multiplier_is_an_error_that_names_the_weigher(
    answer: Any, reported: str
) -> None:
    odd = type("Odd", (OddMultiplier,), {"answer": answer})
    with pytest.raises(PluginError, match=f"weigher Odd .*{reported}"):
        _ranked(batch(*hosts("free_ram_mb", RAM)), weighers=[odd])


@pytest.mark.parametrize("n_hosts", [4, 400], ids=["few", "many"])
def test_host_whose_weight_cannot_be_computed_is_ordered_with_the_others(
    n_hosts: int, caplog: pytest.LogCaptureFixture
) -> None:
    # The range of these values exceeds that of floats.
    odd = type("Odd", (Odd,), {"answer": [1e308, -1e308, *range(n_hosts - 2)]})
    rows = batch(*hosts("free_ram_mb", range(n_hosts)))
    ranking = _ranked(rows, weighers=[odd])
    assert np.isfinite(ranking.total).all()
    assert sorted(ranking.order.tolist()) == list(range(n_hosts))
    assert sorted(ranking) == list(range(n_hosts))
    assert f"The weight of 1 of {n_hosts} host(s) cannot be computed" in caplog.text


def test_aggregate_whose_multiplier_is_not_finite_fails_no_request() -> None:
    odd = aggregate(1, "b", ram_weight_multiplier="nan", cpu_weight_multiplier="inf")
    rows = batch(*hosts("free_ram_mb", RAM), aggregates=[odd])
    assert _order(_ranked(rows)) == "bdca"


def test_list_of_numbers_is_an_answer() -> None:
    odd = type("Odd", (Odd,), {"answer": [1, 2, 3, 4]})
    rows = batch(*hosts("free_ram_mb", RAM))
    assert _order(_ranked(rows, weighers=[odd])) == "dcba"


# -- among near-equal hosts ------------------------------------------------------------

#: Of 100 hosts, 5 weigh nearly as much as the best one, whose name is "h0".
_NEARLY = [1000, 990, 980, 960, 940, *range(94, -1, -1)]


def _chosen(n_choices: int, **changes: Any) -> set[str]:
    rows = batch(*(host(host=f"h{i}", free_ram_mb=mb) for i, mb in enumerate(_NEARLY)))
    rng = np.random.default_rng(3)
    rankings = (
        rank_hosts(
            [RAMWeigher(options(**changes))],
            rows,
            spec(),
            conf=options(**changes),
            ties=np.zeros(len(rows)),
            rng=rng,
            n_choices=n_choices,
            nearness=0.1,
        )
        for _ in range(60)
    )
    return {rows.host[next(iter(ranking))] for ranking in rankings}


@pytest.mark.parametrize(
    ("n_choices", "chosen"), [(1, {0}), (3, {0, 1, 2}), (32, {0, 1, 2, 3, 4})]
)
def test_choice_is_among_near_equal_hosts_only(
    n_choices: int, chosen: set[int]
) -> None:
    assert _chosen(n_choices) == {f"h{i}" for i in chosen}


def test_wider_choice_narrows_no_subset() -> None:
    assert len(_chosen(3, host_subset_size=20)) > 10


def test_hosts_that_weigh_the_same_are_all_near_equal() -> None:
    ranking = _ranked(batch(*hosts("free_ram_mb", [7] * 9)))
    assert [ranking.n_near_best(n, 0.0) for n in (1, 5, 32)] == [1, 5, 9]


def test_choice_among_no_host_at_all_is_none() -> None:
    assert _ranked(batch()).n_near_best(5, 0.5) == 0
