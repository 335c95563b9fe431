# SPDX-License-Identifier: Apache-2.0
"""One module a step. None is ever changed: what is to change is a step of its own."""
