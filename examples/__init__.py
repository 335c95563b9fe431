# SPDX-License-Identifier: Apache-2.0
"""Examples: a cloud in one process, a conductor, a third-party plugin."""
