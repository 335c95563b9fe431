# SPDX-License-Identifier: Apache-2.0
"""The state of hosts, built from their reports, for the sources "push" and "kafka"."""
