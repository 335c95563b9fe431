# SPDX-License-Identifier: Apache-2.0
"""The scheduler: from a request to the hosts that its instances go to."""
