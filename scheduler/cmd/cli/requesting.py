# SPDX-License-Identifier: Apache-2.0
"""The commands schedule and request, for requests that are made of options."""

from __future__ import annotations

import getpass
import os
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from rich.console import Console

from ...errors import NoValidHost, SchedulerError
from ...failures import without_secrets
from . import explaining
from .answering import json_option, print_answer, print_notes, stored_id
from .client import read_options
from .session import CommandSession
from .tables import Answer, make_table
from .text import cell, names, safe

if TYPE_CHECKING:
    import oslo_messaging
    from oslo_config import cfg

#: The exit status of a request for which there is no host.
_NO_VALID_HOST: Final = 3
#: Seconds within which the broker has to accept a message.
_BROKER_S: Final = 10.0
#: The project, and the name of the flavor, of requests.
_PROJECT: Final = "moorage-request"

_T = TypeVar("_T")


def _pairs(
    _context: object, _option: object, values: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the parts of KEY=VALUE options."""
    pairs = [value.partition("=") for value in values]
    for text, (key, sign, _) in zip(values, pairs, strict=True):
        if not key or not sign:
            raise click.BadParameter(f"{safe(text, 50)!r} is not KEY=VALUE")
    return [(key, value) for key, _, value in pairs]


#: The options of which a request is made, by the names of their arguments.
REQUEST_OPTIONS: Final[dict[str, Callable[[Any], Any]]] = {
    "vcpus": click.option(
        "--vcpus", type=click.IntRange(1), help="The flavor's vCPUs."
    ),
    "ram": click.option(
        "--ram", type=click.IntRange(1), help="The flavor's memory, MiB."
    ),
    "disk": click.option(
        "--disk", type=click.IntRange(0), default=0, help="Its root disk, GB."
    ),
    "ephemeral": click.option(
        "--ephemeral", type=click.IntRange(0), default=0, help="Its ephemeral disk, GB."
    ),
    "swap": click.option(
        "--swap", type=click.IntRange(0), default=0, help="Its swap, MiB."
    ),
    "extra_specs": click.option(
        "--property", "extra_specs", multiple=True, callback=_pairs,
        metavar="KEY=VALUE", help="An extra spec of the flavor; may be repeated.",
    ),
    "image_properties": click.option(
        "--image-property", "image_properties", multiple=True, callback=_pairs,
        metavar="KEY=VALUE", help="A property of the image; may be repeated.",
    ),
    "hints": click.option(
        "--hint", "hints", multiple=True, callback=_pairs,
        metavar="KEY=VALUE", help="A scheduler hint; may be repeated.",
    ),
    "availability_zone": click.option(
        "--availability-zone", metavar="ZONE", help="The availability zone."
    ),
    "project": click.option(
        "--project", metavar="ID", help="The project of the request."
    ),
}  # fmt: skip


def request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of which a request is made, in order, to a command."""
    for option in reversed(REQUEST_OPTIONS.values()):
        command = option(command)
    return command


def request_document(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request that options describe, in the form of the HTTP API.

    Raises
    ------
    click.UsageError
        The flavor lacks its vCPUs or its memory.
    """
    if options["vcpus"] is None or options["ram"] is None:
        takes_stored = "id_" in {
            parameter.name for parameter in click.get_current_context().command.params
        }
        or_stored = "--request, or " if takes_stored else ""
        raise click.UsageError(f"Pass {or_stored}--vcpus and --ram")
    hints: dict[str, list[str]] = {}
    for key, value in options["hints"]:
        hints.setdefault(key, []).append(value)
    request = {
        "flavor": {
            "vcpus": options["vcpus"],
            "memory_mb": options["ram"],
            "root_gb": options["disk"],
            "ephemeral_gb": options["ephemeral"],
            "swap_mb": options["swap"],
            "extra_specs": dict(options["extra_specs"]),
        },
        "image_properties": dict(options["image_properties"]),
        "hints": hints,
        "availability_zone": options["availability_zone"],
        "project_id": options["project"],
    }
    return {name: part for name, part in request.items() if part is not None}


_count_option = click.option(
    "--count", type=click.IntRange(1, 100), default=1, show_default=True,
    help="The number of instances.",
)  # fmt: skip


@click.command()
@click.option(
    "--dry-run", is_flag=True, help="Claim nothing; required, as nothing else is done."
)
@click.option(
    "--request", "id_", metavar="ID", callback=stored_id,
    help="Use the stored request of this id or instance, as it is.",
)  # fmt: skip
@request_options
@_count_option
@json_option
@click.pass_obj
def schedule(
    session: CommandSession,
    /,
    dry_run: bool,
    id_: str | None,
    count: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Show where instances would go now, without claiming anything.

    The request is that of a stored decision (--request), or is made of --vcpus, --ram
    and the other options. The exit status is 3 if no host was found.
    """
    if not dry_run:
        raise click.UsageError("moorage schedules nothing by itself: add --dry-run")
    if id_ is None:
        body = {"count": count, "request": request_document(options)}
    else:
        for option in click.get_current_context().command.params:
            if option.name in REQUEST_OPTIONS and options[option.name]:
                raise click.UsageError(f"Pass --request or {option.opts[0]}, not both")
        body = {"count": count, "stored": id_}
    answer = session.api().post("dry-run", body)
    print_answer(as_json, answer, _show_dry_run)
    if answer["decision"]["outcome"] != "selected":
        sys.exit(_NO_VALID_HOST)


def _show_dry_run(console: Console, answer: Answer) -> None:
    # A dry run has neither a request id nor instances: the numbers are enough.
    instances = [
        {**instance, "instance_uuid": number}
        for number, instance in enumerate(answer["decision"]["instances"], 1)
    ]
    decision = {**answer["decision"], "request_id": "Dry run", "instances": instances}
    explaining.show(console, decision)
    print_notes(console, answer["notes"])


@click.command()
@request_options
@_count_option
@click.option(
    "--release", is_flag=True,
    help="Delete the allocations again, also if there is no answer.",
)  # fmt: skip
@click.option(
    "--timeout", "timeout_s", type=click.IntRange(1, 86_400), default=60,
    show_default=True,
    help="Seconds to wait for an answer.",
)  # fmt: skip
@json_option
@click.pass_obj
def request(
    session: CommandSession,
    /,
    count: int,
    release: bool,
    timeout_s: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Request hosts over the message bus, as a conductor does.

    THIS CLAIMS: the scheduler allocates the instances in Placement. No instance is
    built, so nobody else deletes the allocations: pass --release, or delete them with
    the commands that are printed. `schedule --dry-run` claims nothing.

    --config-file (before the command) names transport_url and, for --release,
    [placement]. The exit status is 3 if there is no valid host.
    """
    document = request_document(options)
    document["flavor"]["name"] = _PROJECT
    session.refuse_snapshot()
    conf = read_options(session.config_files)
    uuids = [str(uuid.uuid4()) for _ in range(count)]
    request_id = f"req-{uuid.uuid4()}"
    placement = _Placement(conf) if release else None
    transport = _connected(conf)
    try:
        click.echo(f"{request_id} claims for {', '.join(uuids)}", err=True)
        hosts = _select(transport, document, uuids, request_id, timeout_s)
    except NoValidHost as e:
        click.echo(f"{request_id}: {e}", err=True)
        sys.exit(_NO_VALID_HOST)
    except KeyboardInterrupt:
        click.echo(f"{request_id}: interrupted; a scheduler may still claim", err=True)
        raise
    finally:
        if placement is not None:
            placement.delete(uuids)
    answer = {"request_id": request_id, "released": release, "instances": hosts}
    print_answer(as_json, answer, _show)


def _show(console: Console, answer: Answer) -> None:
    table = make_table("", "instance", "host", "alternates")
    for instance in answer["instances"]:
        table.add_row(
            cell(instance["uuid"]),
            cell(instance["host"]),
            cell(names(instance["alternates"])),
        )
    console.print(table)
    console.print(cell(f"Why there: moorage explain {answer['request_id']}"))
    if answer["released"]:
        console.print("Their allocations are deleted.")
        return
    console.print("Placement has their allocations. They are deleted by:")
    for instance in answer["instances"]:
        command = "openstack resource provider allocation delete"
        console.print(cell(f"{command} {instance['uuid']}"))


def _connected(conf: cfg.ConfigOpts) -> oslo_messaging.Transport:
    """Return the transport to schedulers, once its broker has accepted a message.

    Raises
    ------
    click.ClickException
        The broker cannot be used: nothing is requested.
    """
    # These imports take a second.
    from ...rpc import get_transport
    from ...rpc.broker import BrokerWatch

    try:
        transport = get_transport(conf)
        problem = _bounded(BrokerWatch(transport).try_broker, _BROKER_S)
    except SchedulerError as e:
        raise click.ClickException(str(e)) from e
    except TimeoutError:
        url = without_secrets(conf.transport_url)
        problem = (
            f"[DEFAULT] transport_url = {url}: no answer within "
            f"{_BROKER_S:.0f} s. Check that the server runs, and its host and port"
        )
    if problem:
        raise click.ClickException(problem)
    return transport


def _select(
    transport: oslo_messaging.Transport,
    document: Mapping[str, Any],
    uuids: Sequence[str],
    request_id: str,
    timeout_s: int,
) -> list[dict[str, Any]]:
    """Return the host and the alternates of each instance, from a scheduler.

    Raises
    ------
    NoValidHost
    click.ClickException
        The request is invalid, no scheduler answers, or it failed.
    """
    import oslo_messaging

    from ...rpc import SchedulerAPI
    from ...web.specs import read_request

    context = {
        "request_id": request_id,
        "project_id": document.get("project_id", _PROJECT),
        "user_id": _user(),
    }
    try:
        spec = read_request(document)
        spec.num_instances, spec.instance_uuid = len(uuids), uuids[0]
        spec.project_id, spec.user_id = context["project_id"], context["user_id"]
        api = SchedulerAPI(transport, timeout_s=timeout_s)
        selections = _bounded(
            lambda: api.select_destinations(
                context, spec, uuids, return_alternates=True
            ),
            timeout_s + 1,
        )
    except NoValidHost:
        raise
    except (oslo_messaging.MessagingTimeout, TimeoutError) as e:
        url = without_secrets(transport.conf.transport_url)
        raise click.ClickException(
            f"No scheduler answered within {timeout_s} s: does moorage-scheduler run, "
            f"with the same [DEFAULT] transport_url = {url}? It may claim later"
        ) from e
    except (SchedulerError, oslo_messaging.MessagingException) as e:
        raise click.ClickException(f"{type(e).__name__}: {e}") from e
    return [
        {
            "uuid": instance_uuid,
            "host": selected.service_host,
            "node": selected.nodename,
            "alternates": [alternate.service_host for alternate in alternates],
        }
        for instance_uuid, (selected, *alternates) in zip(
            uuids, selections, strict=True
        )
    ]


def _user() -> str:
    """Return the name of this user; their number if it has no name, as in a container.

    Only records and logs have it.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _bounded(call: Callable[[], _T], seconds: float) -> _T:
    """Return the result of a call that may never end, such as while a broker is down.

    Raises
    ------
    TimeoutError
        The call has not ended after so many seconds.
    """
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as e:
            future.set_exception(e)

    threading.Thread(target=run, name="request", daemon=True).start()
    return future.result(seconds)


class _Placement:
    """The Placement that the options name, from which allocations are deleted.

    Raises
    ------
    click.ClickException
        No option names a Placement that answers and accepts the credentials.
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        from ...placement.adapter import make_adapter
        from ...placement.client import PlacementClient
        from ...placement.from_conf import needs_embedded

        if needs_embedded(conf):
            raise click.ClickException(
                "--release needs [placement] in the configuration file: the Placement "
                "that is embedded in a scheduler cannot be reached from here"
            )
        try:
            self._client = PlacementClient(make_adapter(conf))
            self._client.probe()
        except SchedulerError as e:
            raise click.ClickException(str(e)) from e

    def delete(self, uuids: Sequence[str]) -> None:
        """Delete the allocations of instances.

        Raises
        ------
        click.ClickException
            Some could not be deleted; the message names their instances.
        """
        failed: dict[str, str] = {}
        for instance_uuid in uuids:
            try:
                self._client.delete_allocations(instance_uuid)
            except SchedulerError as e:
                failed[instance_uuid] = str(e)
        if failed:
            raise click.ClickException(
                f"The allocations of {', '.join(failed)} could not be deleted: "
                f"{next(iter(failed.values()))}"
            )
