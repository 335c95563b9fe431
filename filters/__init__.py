# SPDX-License-Identifier: Apache-2.0
"""Host filters: each answers which hosts of a batch may take a request."""

from .base import BaseHostFilter
from .rejection import Rejection

__all__ = ["BaseHostFilter", "Rejection"]
