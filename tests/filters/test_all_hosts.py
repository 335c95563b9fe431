# SPDX-License-Identifier: Apache-2.0
"""All hosts pass."""

from __future__ import annotations

from moorage.filters.all_hosts import AllHostsFilter

from ..conftest import batch, hosts, options, spec


def test_all_hosts_pass() -> None:
    rows = batch(*hosts("disabled", [True, False]))
    filter_ = AllHostsFilter(options())
    assert filter_.passing(rows, spec()).tolist() == [True, True]
    assert filter_.explain_rejection(rows[0], spec()) is None
