# SPDX-License-Identifier: Apache-2.0
"""Where the state of hosts comes from."""
