# SPDX-License-Identifier: Apache-2.0
"""Whether a guest fits into hosts' NUMA cells and PCI devices, and what it takes."""
