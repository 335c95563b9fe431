# SPDX-License-Identifier: Apache-2.0
"""Things to copy: a demo of the whole way of a request, and a third-party plugin."""
