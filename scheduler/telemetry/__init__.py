# SPDX-License-Identifier: Apache-2.0
"""How the scheduler is seen: figures, probes, reports on demand."""
