# SPDX-License-Identifier: Apache-2.0
"""How the scheduler is seen: figures, probes, spans, log fields, reports on demand."""
