# SPDX-License-Identifier: Apache-2.0
"""Claimed and refused candidates are not offered again, and all others are."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import HealthCheck
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    multiple,
    rule,
)

from moorage.scheduler.candidates import Offer
from moorage.scheduler.placement.cache import CachedOffer
from moorage.scheduler.placement.candidates_source import CountedClaim

from ....fixtures.allocations import request_of
from ....fixtures.property_tests import examples
from ..watched import HOSTS, N_VCPUS, SHARE, Cloud, hosts_of, open_hosts, vcpu_query


def _index(offer: CachedOffer, host: str) -> int:
    return offer.candidates.by_host[host][0]


# -- claims ----------------------------------------------------------------------------


def test_claim_closes_what_no_longer_fits_in_every_answer(cloud: Cloud) -> None:
    cache = cloud.cache
    one, four = cache.get(vcpu_query(1)), cache.get(vcpu_query(4))
    cloud.claim(one, _index(one, HOSTS[0]))
    assert open_hosts(cache.get(vcpu_query(1))) == set(HOSTS)
    assert open_hosts(cache.get(vcpu_query(4))) == set(HOSTS[1:])
    assert open_hosts(four) == set(HOSTS)  # what a decision reads does not change
    assert cache.get(vcpu_query(1)).free(HOSTS[0], "VCPU") == N_VCPUS - 1
    assert one.free(HOSTS[0], "VCPU") == N_VCPUS
    assert cloud.n_gets == 2


def test_give_back_opens_again(cloud: Cloud) -> None:
    offer = cloud.cache.get(vcpu_query(3))
    consumer, claim = cloud.claim(offer, _index(offer, HOSTS[0]))
    assert open_hosts(cloud.cache.get(vcpu_query(3))) == set(HOSTS[1:])
    for _ in range(2):  # twice is once
        cloud.release(consumer, claim)
        assert open_hosts(cloud.cache.get(vcpu_query(3))) == set(HOSTS)
        assert cloud.cache.get(vcpu_query(3)).free(HOSTS[0], "VCPU") == N_VCPUS


def test_claims_of_a_multi_create_count_together(cloud: Cloud) -> None:
    offer = cloud.cache.get(vcpu_query(2))
    request = offer.request(_index(offer, HOSTS[1]))
    cloud.cache.count_claim([request, request])
    assert open_hosts(cloud.cache.get(vcpu_query(2))) == {HOSTS[0], HOSTS[2]}


def test_full_shared_disk_closes_every_host(cloud: Cloud) -> None:
    offer = cloud.cache.get(vcpu_query(1, disk_gb=60))
    assert open_hosts(offer) == set(HOSTS)
    cloud.claim(offer, _index(offer, HOSTS[0]))
    after = cloud.cache.get(vcpu_query(1, disk_gb=60))
    assert after.n_open == 0
    assert after.free(SHARE, "DISK_GB") == 40


def test_claim_before_the_query_is_not_counted_twice(cloud: Cloud) -> None:
    cloud.claim_request(request_of(HOSTS[0], VCPU=2))
    assert open_hosts(cloud.cache.get(vcpu_query(2))) == set(HOSTS)
    assert cloud.cache.get(vcpu_query(2)).free(HOSTS[0], "VCPU") == 2


def test_get_executed_before_a_claim_and_answered_after_it_lacks_it(
    cloud: Cloud,
) -> None:
    cloud.watched.after.append(
        lambda: cloud.claim_request(request_of(HOSTS[0], VCPU=2))
    )
    offer = cloud.cache.get(vcpu_query(3))
    assert (
        offer.candidates.free(HOSTS[0], "VCPU") == N_VCPUS
    )  # Placement did not see it
    assert open_hosts(offer) == set(HOSTS[1:])


def test_claim_before_the_answer_counts_except_for_a_fresh_query(
    cloud: Cloud,
) -> None:
    cloud.watched.before.append(
        lambda: cloud.claim_request(request_of(HOSTS[0], VCPU=2))
    )
    sequence = cloud.cache.next_sequence()
    offer = cloud.cache.get(vcpu_query(2))
    assert open_hosts(offer) == set(HOSTS[1:])  # counted by Placement and by us
    again = cloud.cache.get(vcpu_query(2), since=sequence)
    assert open_hosts(again) == set(HOSTS)
    assert again.has_more_than(offer)
    assert not again.has_more_than(again)
    assert cloud.n_gets == 1  # and no further GET was needed to find out
    assert cloud.claim(again, _index(again, HOSTS[0]))[1] is not None


def test_claim_that_was_sent_before_a_get_and_answered_after_it_is_unsure(
    cloud: Cloud,
) -> None:
    began = cloud.cache.next_sequence()
    assert cloud.claim_unseen(HOSTS[1], request_of(HOSTS[0], VCPU=2))
    sequence = cloud.cache.next_sequence()
    cloud.cache.get(vcpu_query(2))
    cloud.cache.count_claim([request_of(HOSTS[0], VCPU=2)], began=began)
    assert open_hosts(cloud.cache.get(vcpu_query(2))) == set(HOSTS[1:])
    assert open_hosts(cloud.cache.get(vcpu_query(2), since=sequence)) == set(HOSTS)


def test_claim_after_the_answer_counts_for_a_fresh_query_too(cloud: Cloud) -> None:
    sequence = cloud.cache.next_sequence()
    offer = cloud.cache.get(vcpu_query(3))
    cloud.claim(offer, _index(offer, HOSTS[0]))
    assert open_hosts(cloud.cache.get(vcpu_query(3), since=sequence)) == set(HOSTS[1:])
    assert cloud.n_gets == 1


def test_claim_that_was_given_back_during_a_get_is_not_counted(cloud: Cloud) -> None:
    def claim_and_release() -> None:
        cloud.release(*cloud.claim_request(request_of(HOSTS[0], VCPU=2)))

    cloud.watched.after.append(claim_and_release)
    assert open_hosts(cloud.cache.get(vcpu_query(3))) == set(HOSTS)


def test_release_of_an_unsure_claim_counts_once(cloud: Cloud) -> None:
    made: list[tuple[str, CountedClaim | None]] = []
    cloud.watched.after.append(
        lambda: made.append(cloud.claim_request(request_of(HOSTS[0], VCPU=2)))
    )
    sequence = cloud.cache.next_sequence()
    cloud.cache.get(vcpu_query(2))
    cloud.release(*made[0])
    for offer in (
        cloud.cache.get(vcpu_query(2)),
        cloud.cache.get(vcpu_query(2), since=sequence),
    ):
        assert offer.free(HOSTS[0], "VCPU") == N_VCPUS


def test_release_of_a_claim_in_the_answer_frees_no_more_than_the_answer(
    cloud: Cloud,
) -> None:
    consumer, claim = cloud.claim_request(request_of(HOSTS[0], VCPU=2))
    cloud.cache.get(vcpu_query(2))
    cloud.release(consumer, claim)
    assert cloud.cache.get(vcpu_query(2)).free(HOSTS[0], "VCPU") == 2


# -- refusals --------------------------------------------------------------------------


def test_refused_candidate_is_left_out_until_a_fresh_query(cloud: Cloud) -> None:
    cache = cloud.cache
    offer = cache.get(vcpu_query())
    cache.exclude(offer, _index(offer, HOSTS[2]))
    cache.exclude(offer, _index(offer, HOSTS[2]))
    assert open_hosts(offer) == set(HOSTS)
    assert open_hosts(cache.get(vcpu_query())) == set(HOSTS[:2])
    assert open_hosts(cache.get(vcpu_query(2))) == set(HOSTS)
    assert open_hosts(cache.get(vcpu_query(), since=cache.next_sequence())) == set(
        HOSTS
    )


def test_give_back_does_not_open_what_was_refused(cloud: Cloud) -> None:
    offer = cloud.cache.get(vcpu_query(3))
    consumer, claim = cloud.claim(offer, _index(offer, HOSTS[0]))
    cloud.cache.exclude(offer, _index(offer, HOSTS[0]))
    cloud.release(consumer, claim)
    assert open_hosts(cloud.cache.get(vcpu_query(3))) == set(HOSTS[1:])


@pytest.mark.parametrize("index", [-1, 3])
def test_refusal_of_an_unknown_candidate_is_an_error(cloud: Cloud, index: int) -> None:
    offer = cloud.cache.get(vcpu_query())
    with pytest.raises(IndexError, match=f"candidate {index} of an offer that has 3"):
        cloud.cache.exclude(offer, index)


# -- offers ----------------------------------------------------------------------------


def test_offer_cannot_be_written_to(cloud: Cloud) -> None:
    offer = cloud.cache.get(vcpu_query())
    with pytest.raises(ValueError, match="read-only"):
        offer.is_open[0] = False


def test_unchanged_answer_is_offered_as_the_very_same_thing(cloud: Cloud) -> None:
    first = cloud.cache.get(vcpu_query())
    assert cloud.cache.get(vcpu_query()) is first


def test_joined_offers_keep_both_accounts(cloud: Cloud) -> None:
    cache = cloud.cache
    first, second = cache.get(vcpu_query(3)), cache.get(vcpu_query(1))
    joined = Offer([first, second])
    refused = joined.numbers_of(HOSTS[1])[1]
    cache.exclude(*joined.locate(refused))
    cloud.claim(first, _index(first, HOSTS[0]))
    joined = Offer([cache.get(vcpu_query(3)), cache.get(vcpu_query(1))])
    are_open = [[joined.is_open(n) for n in joined.numbers_of(host)] for host in HOSTS]
    assert are_open == [[False, True], [True, False], [True, True]]
    assert joined.n_open == 4
    assert set(joined.roots) == {*HOSTS}
    assert joined.free(HOSTS[0], "VCPU") == N_VCPUS - 3
    assert joined.began == first.began
    amounts = [
        joined.request(n)["allocations"][HOSTS[2]]["resources"]
        for n in joined.numbers_of(HOSTS[2])
    ]
    assert amounts == [{"VCPU": 3}, {"VCPU": 1}]


def test_joined_offer_has_the_free_amounts_of_its_newer_answer(
    cloud: Cloud,
) -> None:
    first = cloud.cache.get(vcpu_query(3))
    cloud.claim(first, _index(first, HOSTS[0]))
    joined = Offer([cloud.cache.get(vcpu_query(n)) for n in (3, 1)])
    assert joined.free(HOSTS[0], "VCPU") == 1
    assert joined.free("elsewhere", "VCPU") == 0


@pytest.mark.parametrize("number", [-1, 1 << 50])
def test_unknown_candidate_is_refused(cloud: Cloud, number: int) -> None:
    joined = Offer([cloud.cache.get(vcpu_query(3))])
    with pytest.raises(IndexError, match="was not offered"):
        joined.request(number)


# -- everything at once ----------------------------------------------------------------


class Claiming(RuleBasedStateMachine):
    """Claims, releases and refusals around GETs, against Placement and a plain model.

    The model: an answer, the claims counted against it, the candidates refused.
    """

    claims = Bundle("claims")
    amounts = st.sampled_from([1, 2, 3])
    hosts = st.sampled_from(HOSTS)

    def __init__(self) -> None:
        super().__init__()
        self.cloud = Cloud()
        self.cloud.setUp()
        #: amount -> (the first offer, counted claims, refused)
        self.model: dict[int, tuple[CachedOffer, list[CountedClaim], set[int]]] = {}
        self.in_air: list[CountedClaim] = []
        self.counted: dict[str, CountedClaim] = {}

    def teardown(self) -> None:
        self.cloud.cleanUp()

    def _claim(self, host: str, amount: int) -> None:
        consumer, claim = self.cloud.claim_request(request_of(host, VCPU=amount))
        if claim is not None:
            self.counted[consumer] = claim
            self.in_air.append(claim)
            for _, claims, _ in self.model.values():
                claims.append(claim)

    def _new_claims(self, known: set[str]) -> object:
        # In the order of the claims: a set's order would differ between runs.
        return multiple(*(each for each in self.counted if each not in known))

    @rule(target=claims, host=hosts, amount=amounts)
    def claim(self, host: str, amount: int) -> object:
        known = set(self.counted)
        self._claim(host, amount)
        return self._new_claims(known)

    @rule(consumer=consumes(claims))
    def release(self, consumer: str) -> None:
        claim = self.counted.pop(consumer)
        self.cloud.release(consumer, claim)
        for _, claims, _ in self.model.values():
            if claim in claims:
                claims.remove(claim)

    @rule(
        target=claims,
        amount=amounts,
        before=st.lists(st.tuples(hosts, amounts), max_size=1),
        after=st.lists(st.tuples(hosts, amounts), max_size=1),
    )
    def query_again(
        self,
        amount: int,
        before: list[tuple[str, int]],
        after: list[tuple[str, int]],
    ) -> object:
        known, sequence = set(self.counted), self.cloud.cache.next_sequence()
        self.in_air.clear()
        watched = self.cloud.watched
        watched.before += [functools.partial(self._claim, *c) for c in before]
        watched.after += [functools.partial(self._claim, *c) for c in after]
        whole = self.cloud.cache.get(vcpu_query(amount), since=sequence)
        assert whole.is_open.all()  # what ended by now may be in it already
        self.model[amount] = whole, list(self.in_air), set()
        return self._new_claims(known)

    @rule(amount=amounts, choice=st.integers(0, 2))
    def refuse(self, amount: int, choice: int) -> None:
        if amount in self.model:
            offer = self.cloud.cache.get(vcpu_query(amount))
            if choice < len(offer.is_open):
                self.cloud.cache.exclude(offer, choice)
                self.model[amount][2].add(choice)

    @rule(target=claims, amount=amounts)
    def claim_what_is_offered(self, amount: int) -> object:
        """No other client claims, so everything that is offered is granted."""
        known = set(self.counted)
        offer = self.cloud.cache.get(vcpu_query(amount))
        self.model.setdefault(amount, (offer, [], set()))
        for index in np.flatnonzero(offer.is_open)[:1].tolist():
            request = offer.candidates.allocation_requests[index]
            self._claim(next(iter(request["allocations"])), amount)
            assert len(self.counted) == len(known) + 1
        return self._new_claims(known)

    @invariant()
    def offers_are_the_models(self) -> None:
        for amount, (first, claims, refused) in self.model.items():
            offer = self.cloud.cache.get(vcpu_query(amount))
            assert offer.candidates is first.candidates
            for index, host in enumerate(hosts_of(offer.candidates)):
                claim = sum(t.amounts.get((host, "VCPU"), 0) for t in claims)
                free = offer.candidates.free(host, "VCPU") - claim
                assert offer.free(host, "VCPU") == free
                is_open = free >= amount and index not in refused
                assert offer.is_open[index] == is_open


Claiming.TestCase.settings = examples(
    0.3, stateful_step_count=20, suppress_health_check=[HealthCheck.too_slow]
)
TestClaiming = Claiming.TestCase
