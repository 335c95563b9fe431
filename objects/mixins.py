# SPDX-License-Identifier: Apache-2.0
"""Fields that objects with a row in a database have in common."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .fields import declare


class Timestamped:
    """Mixin: when the row behind the object was made and last changed."""

    fields = declare(
        created_at=of.DateTimeField(nullable=True),
        updated_at=of.DateTimeField(nullable=True),
    )


class Persistent(Timestamped):
    """Mixin: the same for rows that are deleted softly."""

    fields = Timestamped.fields | declare(
        deleted_at=of.DateTimeField(nullable=True),
        deleted=of.BooleanField(default=False),
    )
