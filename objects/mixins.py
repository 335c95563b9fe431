# SPDX-License-Identifier: Apache-2.0
"""Common fields of objects with a database row."""

from __future__ import annotations

from oslo_versionedobjects import fields as of

from .fields import declare


class Timestamped:
    """Mixin: when the object's row was created and last updated."""

    fields = declare(
        created_at=of.DateTimeField(nullable=True),
        updated_at=of.DateTimeField(nullable=True),
    )


class Persistent(Timestamped):
    """Mixin: the timestamps of a row with soft deletion."""

    fields = Timestamped.fields | declare(
        deleted_at=of.DateTimeField(nullable=True),
        deleted=of.BooleanField(default=False),
    )
