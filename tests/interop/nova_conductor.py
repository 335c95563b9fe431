# SPDX-License-Identifier: Apache-2.0
"""How nova 34's conductor ends an operation whose scheduling failed.

It runs inside nova's environment. The conductor's own code decides; what it would call
of databases, other services and message buses is stood in for; a rebuild
has a migration here, too.
"""

import contextlib
from unittest import mock

from nova import context, objects, rpc
from nova.conductor import manager
from nova.conductor.tasks import live_migrate
from oslo_messaging._drivers import common as messaging


def fail_operation(message):
    """Return the states in which a failure leaves an instance and its migration.

    Keys: "operation" ("rebuild", "evacuate", "live migration"), "data" (the failure,
    as oslo.messaging writes it).
    """
    error = messaging.deserialize_remote_exception(
        message["data"], rpc.get_allowed_exmods()
    )
    return states_after(error, message["operation"])


def states_after(error, operation):
    """Return the same of an error as a conductor's RPC client raises it."""
    ended = {"vm_state": "active", "task_state": "rebuilding", "migration": "accepted"}
    migration = mock.Mock(status="accepted")

    def set_state(ctxt, uuid, service, method, updates, ex, request_spec):
        ended.update({k: updates[k] for k in ("vm_state", "task_state")})

    operate = _live_migrate if operation == "live migration" else _rebuild
    patched = mock.patch.object(
        manager.scheduler_utils, "set_vm_state_and_notify", set_state
    )
    with patched, contextlib.suppress(Exception):
        operate(error, migration, is_evacuated=operation == "evacuate")
    ended["migration"] = migration.status
    return ended


def _conductor():
    conductor = mock.Mock()
    for name in ("_set_vm_state_and_notify", "_schedule_instances"):
        method = getattr(manager.ComputeTaskManager, name)
        setattr(conductor, name, method.__get__(conductor))
    return conductor


def _rebuild(error, migration, *, is_evacuated):
    conductor = _conductor()
    conductor.network_api.get_requested_resource_for_instance.return_value = ([], None)
    conductor.query_client.select_destinations.side_effect = error
    instance = mock.Mock(uuid="uuid", vm_state="active", task_state="rebuilding")
    spec = mock.Mock()
    spec.flavor.extra_specs = {}
    with (
        mock.patch.object(manager.compute_utils, "EventReporter"),
        mock.patch.object(manager.compute_utils, "heal_reqspec_is_bfv"),
        mock.patch.object(manager.scheduler_utils, "setup_instance_group"),
        mock.patch.object(
            objects.Migration, "get_by_instance_and_status", return_value=migration
        ),
    ):
        manager.ComputeTaskManager.rebuild_instance.__wrapped__(
            conductor,
            context.get_admin_context(),
            instance,
            orig_image_ref="image",
            image_ref="image",
            injected_files=[],
            new_pass=None,
            orig_sys_metadata={},
            bdms=[],
            recreate=is_evacuated,
            on_shared_storage=False,
            request_spec=spec,
        )


def _live_migrate(error, migration, *, is_evacuated):
    conductor = _conductor()
    task = conductor._build_live_migrate_task.return_value
    task.query_client.select_destinations.side_effect = error
    task.source = "source"
    task.execute = lambda: live_migrate.LiveMigrationTask._find_destination(task)
    instance = mock.Mock(uuid="uuid", vm_state="active", task_state="migrating")
    with mock.patch.object(objects, "Migration", return_value=migration):
        manager.ComputeTaskManager._live_migrate(
            conductor,
            context.get_admin_context(),
            instance,
            {"host": None},
            block_migration=False,
            disk_over_commit=False,
            request_spec=mock.Mock(),
        )
