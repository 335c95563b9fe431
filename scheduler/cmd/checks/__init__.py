# SPDX-License-Identifier: Apache-2.0
"""The checks of `moorage-status upgrade check`."""
