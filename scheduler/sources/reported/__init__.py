# SPDX-License-Identifier: Apache-2.0
"""The state of hosts as their reports have it, for the sources "push" and "kafka"."""
