# SPDX-License-Identifier: Apache-2.0
"""The request of a conductor, read and validated once."""

from .flavor_and_image import set_field
from .request import Request

__all__ = ["Request", "set_field"]
