# SPDX-License-Identifier: Apache-2.0
"""Things to copy: a request's whole way, a conductor, a third-party plugin."""
