# SPDX-License-Identifier: Apache-2.0
"""The request of a conductor, read and validated once."""

from .flavor_and_image import get_field
from .request import Request

__all__ = ["Request", "get_field"]
