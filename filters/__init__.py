# SPDX-License-Identifier: Apache-2.0
"""Host filters: each returns which hosts of a batch may run a request's instances."""

from .base import BaseHostFilter
from .rejection import Rejection

__all__ = ["BaseHostFilter", "Rejection"]
