# SPDX-License-Identifier: Apache-2.0
"""All limits on retries and waits of a request, and of the claims that it leaves.

The longest time one request can take, in seconds, where `t` is ``[placement] timeout``
(by default `PLACEMENT_TIMEOUT_S`) and Placement stops answering at the worst moment:

==============================  =====================================  ==============
step                            bound                                  seconds
==============================  =====================================  ==============
a query for candidates          `MAX_QUERIES` of them                  3 t
a write and its reads           `MAX_WRITES` writes, a read each,      8 t + 3.2
                                pauses that double up to `MAX_PAUSE_S`
what uses up late writes'       `MAX_FENCES` reads and writes, and     8 t + 1.6
generations                     `MAX_WRITES` writes
the same if Placement is down   the circuit opens after                10 + t
                                `CIRCUIT_MAX_LOST_S`, and each call
                                fails at once
claims of busy hosts            `MAX_CONTENDED` claims in a row        20 writes
claims that are refused         `MAX_REFUSED`, then Placement is       6 writes
                                queried for candidates again
a member of a server group      `GROUP_MAX_ROUNDS` hosts, on each      20 x (0.8 +
                                `GROUP_MAX_READS` reads and            reads)
                                `GROUP_MAX_RELEASES` releases
a member of a group that must   `len(GROUP_SPLIT_PAUSES_S)` reads      3.1 + reads
be together and is not
CPUs and devices that           `MAX_COLLISIONS` releases              10 x 2 writes
another instance got first
releasing claims                one write and its reads each; the      8 t + 3.2
                                first that fails leaves the others
                                to the background
==============================  =====================================  ==============

An unanswered call counts `t`; if all limits were reached at once, the circuit would
open long before their sum. Claims in doubt are then resolved in the background: at most
`ORPHAN_MAX_PAUSE_S` between two checks. ``[moorage] orphan_evidence_timeout`` bounds
one step only: how long evidence is awaited before an allocation is reported as a
suspected orphan. It is checked further, and no bound releases it.
"""

from __future__ import annotations

from typing import Final

#: Seconds until a call to Placement fails, unless ``[placement] timeout`` is set.
PLACEMENT_TIMEOUT_S: Final = 30.0
#: Writes of one change, with a read after each that was refused for its generation or
#: got no answer. nova 34 sends a claim four times if a provider's generation changed,
#: and once if the consumer's did.
MAX_WRITES: Final = 4
#: Writes sent to make Placement refuse a late write. The second one is sent if the
#: consumer changed after it was read; the late write may have changed it.
MAX_FENCES: Final = 2
#: Limit of the first pause between two writes; it doubles each time. nova waits up to
#: 2 s.
FIRST_PAUSE_S: Final = 0.05
#: The same limit after a lost answer: Placement may need a moment to recover.
FIRST_PAUSE_AFTER_LOSS_S: Final = 0.2
MAX_PAUSE_S: Final = 1.6

#: Consecutive claims that find providers changing before Placement is considered
#: broken: of 8 schedulers on one small cloud, 1 claim in 500 does.
MAX_CONTENDED: Final = 20
#: Consecutive candidates that Placement refuses before its answer is considered stale.
MAX_REFUSED: Final = 6
#: Rounds over all hosts for an instance while some hosts are only busy.
MAX_ROUNDS: Final = 5
#: Instances that one POST claims: Placement needs 10 ms or more for each.
MAX_CLAIMED_TOGETHER: Final = 100
#: Rounds of POSTs for several instances before they are claimed one by one.
MAX_POSTS: Final = 3
#: GETs of candidates: cached, refreshed, and without the limit that truncated them.
MAX_QUERIES: Final = 3

#: Candidates that are computed from the providers in memory for the hosts that a filter
#: judges by candidates, in all and of one host; of more, an even sample is judged:
#: 10,000 hosts of two groups over eight devices have 56 each, and 104 are allowed.
MAX_EXPANDED: Final = 1 << 20
MAX_EXPANDED_OF_HOST: Final = 1000
#: Providers that lack only room and are read again before a request fails.
MAX_REREAD: Final = 2000
#: Trees that are read again if they have room, but not for all instances of a request.
MAX_REREAD_TREES: Final = 200
#: Remembered queries whose candidates Placement has confirmed, and remembered projects
#: for which it was queried to confirm candidates.
MAX_CONFIRMED: Final = 1000
#: Providers of one candidate that are compared with Placement because it refused a
#: candidate that fits in memory, or has one that does not; and how often they are
#: compared if they differ.
MAX_COMPARED: Final = 4
MAX_COMPARISONS: Final = 2

#: Rounds in which a member of a server group follows the others to their host.
GROUP_MAX_ROUNDS: Final = 20
#: Rounds for anti-affinity, where any other host is allowed: the second round is for
#: hosts that two members left at the same time.
ANTI_GROUP_MAX_ROUNDS: Final = 2
#: Readings of where other instances are until two agree, for rules that compare places.
GROUP_MAX_READINGS: Final = 4
#: Seconds before each further reading of a group whose members have to be together and
#: are not. Claims of members that were requested at the same time are released by the
#: last one; no host is right for a member of a group that is still split.
GROUP_SPLIT_PAUSES_S: Final = (0.1, 0.2, 0.4, 0.8, 1.6)
#: Releases of a claim that rules about other instances do not allow, each of
#: `MAX_WRITES` writes: many members that leave a host at once refuse each other.
GROUP_MAX_RELEASES: Final = 3
#: Reads until the other members have left, and seconds between two of them.
GROUP_MAX_READS: Final = 8
GROUP_PAUSE_S: Final = 0.1
#: Claims that a pass of a request releases because another instance got the CPUs or
#: devices first; the next such claim is kept, and its compute decides.
MAX_COLLISIONS: Final = 10

#: Seconds until an orphan is first checked, and the longest pause between two checks.
ORPHAN_FIRST_PAUSE_S: Final = 1.0
ORPHAN_MAX_PAUSE_S: Final = 60.0
#: Seconds for which an unanswered write may still arrive.
LATE_WRITE_S: Final = 600.0
#: Reads of all journals, repeated while a process replaces its file.
JOURNAL_MAX_READS: Final = 5

#: Consecutive failures after which Placement is considered unavailable: one more than a
#: single write and its retries can cause; and the seconds that they may take.
CIRCUIT_MAX_FAILURES: Final = 6
CIRCUIT_MAX_LOST_S: Final = 10.0
#: The first and the longest pause of the circuit: a probe is mostly a GET of 7 ms, and
#: each second of a pause is one without scheduling.
CIRCUIT_FIRST_PAUSE_S: Final = 1.0
CIRCUIT_MAX_PAUSE_S: Final = 10.0

#: Seconds before a new claim is checked: a build takes some seconds to begin.
RECONCILE_GRACE_S: Final = 30.0
#: Seconds before a reservation is checked: it is granted or withdrawn once Placement
#: answers.
RESERVATION_GRACE_S: Final = 3.0
#: Seconds between two reads of one claim, and between two rounds; reads in a round.
RECONCILE_INTERVAL_S: Final = 60.0
RECONCILE_ROUND_S: Final = 5.0
RECONCILE_MAX_READS: Final = 50
#: Claims that are read before a request gets NoValidHost, and seconds before the same
#: claim is read again for that.
REVIEW_MAX_READS: Final = 20
REVIEW_INTERVAL_S: Final = 5.0
#: Seconds that stopping a scheduler waits for a thread with a call in progress.
STOP_S: Final = 3.0

#: Volumes and ports of one request that are looked up: a request whose hints name more
#: is refused, and requested ports beyond it do not count.
MAX_LOOKUPS: Final = 10

#: Requests that the HTTP API answers at the same time; others wait.
WEB_THREADS: Final = 4
