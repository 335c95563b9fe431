# SPDX-License-Identifier: Apache-2.0
"""Every bound on retries and waits of a request and of the claims that it leaves.

What one request can take at most, in seconds, where `t` is ``[placement] timeout``
(or ``[moorage] placement_timeout``) and Placement stops answering at the worst moment:

==============================  =====================================  ==============
step                            bound                                  seconds
==============================  =====================================  ==============
a question for candidates       `MAX_QUESTIONS` of them                3 t
a write and its reads           `MAX_WRITES` writes, a read each,      8 t + 3.2
                                pauses that double up to `MAX_PAUSE_S`
the same, Placement is away     the circuit opens after                10 + t
                                `CIRCUIT_MAX_LOST_S`, and each call
                                fails at once
claims of busy hosts            `MAX_CONTENDED` claims in a row        20 writes
claims that are refused         `MAX_REFUSED`, then Placement is       6 writes
                                asked for candidates again
a member of a server group      `GROUP_MAX_ROUNDS` hosts, on each      20 x (0.8 +
                                `GROUP_MAX_READS` reads                reads)
giving claims back              one write and its reads each; the      8 t + 3.2
                                first that fails leaves the others
                                to the background
==============================  =====================================  ==============

A call that is not answered counts `t`; with all bounds at once the circuit is open long
before their sum. What is still in doubt then is settled in the background: a pause
between two looks of at most `ORPHAN_MAX_PAUSE_S`, and ``[moorage]
orphan_evidence_timeout`` until an allocation is reported as a suspected orphan.
"""

from __future__ import annotations

from typing import Final

#: Writes of one change, with a read after each that was refused for a generation or got
#: no answer. nova 34 sends a claim four times.
MAX_WRITES: Final = 4
#: Longest first pause between two writes; it doubles. nova waits up to 2 s.
FIRST_PAUSE_S: Final = 0.05
#: The same where an answer was lost: Placement may need a moment to come back.
FIRST_PAUSE_AFTER_LOSS_S: Final = 0.2
MAX_PAUSE_S: Final = 1.6

#: Claims in a row that find providers changing before Placement is taken for broken: of
#: 8 schedulers on one small cloud, 1 claim in 500 does.
MAX_CONTENDED: Final = 20
#: Candidates in a row that Placement refuses before its answer is taken for stale.
MAX_REFUSED: Final = 6
#: Times that all hosts are tried for an instance while some are only busy.
MAX_ROUNDS: Final = 5
#: POSTs for several instances before they are claimed one by one.
MAX_POSTS: Final = 3
#: GETs of candidates: from the cache, afresh, and without the limit that cut them.
MAX_QUESTIONS: Final = 3

#: Rounds in which a member of a server group follows the others to their host.
GROUP_MAX_ROUNDS: Final = 20
#: The same for anti-affinity, where any other host will do: the second round is for
#: hosts that two members left at the same time.
ANTI_GROUP_MAX_ROUNDS: Final = 2
#: Reads until the other members have left, and seconds between two of them.
GROUP_MAX_READS: Final = 8
GROUP_PAUSE_S: Final = 0.1

#: Seconds until an orphan is looked at, and the longest pause between two looks.
ORPHAN_FIRST_PAUSE_S: Final = 1.0
ORPHAN_MAX_PAUSE_S: Final = 60.0
#: Seconds for which a write without an answer may still arrive.
LATE_WRITE_S: Final = 600.0
#: Times that the notes of all processes are read while one replaces its file.
JOURNAL_READS: Final = 5

#: Failures in a row after which Placement is taken to be away: one more than a write
#: and its retries can be by themselves; and seconds that they may take.
CIRCUIT_MAX_FAILURES: Final = 6
CIRCUIT_MAX_LOST_S: Final = 10.0
#: The first pause of the circuit, and the longest: what tries is mostly a GET of 7 ms,
#: and each second is one more without a scheduler.
CIRCUIT_FIRST_PAUSE_S: Final = 1.0
CIRCUIT_MAX_PAUSE_S: Final = 10.0

#: Seconds for which a claim is believed: a build takes some to begin.
UPKEEP_GRACE_S: Final = 30.0
#: Seconds between two reads of the same claim, between two rounds, and claims a round.
UPKEEP_AGAIN_S: Final = 60.0
UPKEEP_ROUND_S: Final = 5.0
UPKEEP_MAX_READS: Final = 50
#: Claims that are read before a request gets NoValidHost, and seconds for which such an
#: answer serves.
REVIEW_MAX_READS: Final = 20
REVIEW_AGAIN_S: Final = 5.0
#: Seconds that the end of a scheduler waits for a thread with a call on its way.
STOP_S: Final = 3.0
