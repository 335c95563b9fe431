# SPDX-License-Identifier: Apache-2.0
"""One module a migration. A released one is never edited: add another one."""
