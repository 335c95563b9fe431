# SPDX-License-Identifier: Apache-2.0
"""The commands of moorage, and their options."""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class
from rich.console import Console

from .... import __version__
from . import explaining, replaying, snapshotting, tables, what_if
from .answering import (
    age_s,
    json_option,
    print_answer,
    print_notes,
    stored_id,
)
from .client import ApiClient
from .hosts import hosts
from .locality.commands import locality
from .session import CommandSession
from .tables import Answer
from .text import safe

_FOLLOW_S: Final = 2.0
#: Seconds by which a decision may be stored later than a newer one.
_LATE_S: Final = 10.0
#: The exit status of a dry run that finds no host.
_NO_VALID_HOST: Final = 3
#: Options of which `schedule` makes a request.
_REQUEST_OPTIONS: Final = {
    "vcpus": "--vcpus",
    "ram": "--ram",
    "disk": "--disk",
    "ephemeral": "--ephemeral",
    "swap": "--swap",
    "extra_specs": "--property",
    "image_properties": "--image-property",
    "hints": "--hint",
    "availability_zone": "--availability-zone",
    "project": "--project",
}
_SHELLS: Final = ("bash", "zsh", "fish")


def main() -> None:
    """Run with the process's arguments; exit."""
    cli(prog_name="moorage", windows_expand_args=False)


def _pairs(
    _context: object, _option: object, values: Sequence[str]
) -> list[tuple[str, str]]:
    """Return the parts of KEY=VALUE options."""
    pairs = [value.partition("=") for value in values]
    for text, (key, sign, _) in zip(values, pairs, strict=True):
        if not key or not sign:
            raise click.BadParameter(f"{safe(text, 50)!r} is not KEY=VALUE")
    return [(key, value) for key, _, value in pairs]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="moorage")
@click.option(
    "--url",
    envvar="MOORAGE_URL",
    show_envvar=True,
    help="The URL of the API, such as http://127.0.0.1:8790.",
)
@click.option(
    "--token-file",
    envvar="MOORAGE_TOKEN_FILE",
    show_envvar=True,
    type=click.Path(),
    help="A file with the token for [web] auth = token, or a token of Keystone.",
)
@click.option(
    "--config-file",
    "config_files",
    multiple=True,
    type=click.Path(),
    help="Moorage's configuration file, which names the API if --url does not.",
)
@click.option(
    "--snapshot",
    type=click.Path(path_type=Path),
    help="Ask a file that `moorage snapshot` wrote, instead of the API.",
)
@click.pass_context
def cli(
    context: click.Context,
    url: str | None,
    token_file: str | None,
    config_files: Sequence[str],
    snapshot: Path | None,
) -> None:
    """Show what Moorage decided, why, and what it would decide now.

    An instance found no host: `moorage decisions --failed` finds the request, `moorage
    explain` shows which step left no host, and `moorage why-not` shows every reason why
    a certain host was not possible.

    The commands ask the API of moorage-api.
    """
    context.obj = CommandSession(url, token_file, config_files, snapshot)


for _command in (
    explaining.explain,
    explaining.why_not,
    what_if.closest,
    what_if.capacity,
    hosts,
    replaying.replay,
    snapshotting.snapshot,
    locality,
):
    cli.add_command(_command)


@cli.command()
@click.option("--instance", metavar="UUID", help="Only decisions on this instance.")
@click.option("--project", metavar="ID", help="Only decisions for this project.")
@click.option("--host", help="Only decisions that selected, or tried, this host.")
@click.option(
    "--failed/--selected",
    default=None,
    help="Only decisions that found no host or failed, or only the others.",
)
@click.option(
    "--since",
    metavar="AGE",
    callback=age_s,
    help="Only decisions not older than this: 90s, 15m, 6h, 2d.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 200),
    default=20,
    show_default=True,
    help="The number of decisions.",
)
@click.option("--follow", "-f", is_flag=True, help="Print new decisions until Ctrl-C.")
@json_option
@click.pass_obj
def decisions(
    session: CommandSession,
    /,
    follow: bool,
    since: float | None,
    as_json: bool,
    **query: Any,
) -> None:
    """List decisions, the newest last.

    Use it to find the request id of an instance or of a failure.
    """
    if follow and session.snapshot is not None:
        raise click.UsageError("--follow: a snapshot gets no new decisions")
    api = session.api()
    if since is not None:
        query["since"] = max(0.0, api.now() - since)
    answer = api.get("decisions", **query)
    listed = list(reversed(answer["decisions"]))
    if not follow:
        print_answer(as_json, {**answer, "decisions": listed}, _list)
        return
    with contextlib.suppress(KeyboardInterrupt):
        _follow(api, query, listed, as_json=as_json)


def _list(console: Console, answer: Answer) -> None:
    if answer["decisions"]:
        console.print(tables.decisions_table(answer["decisions"]))
    else:
        console.print("No stored decision matches.")


def _follow(
    api: ApiClient, query: dict[str, Any], listed: Sequence[Answer], *, as_json: bool
) -> None:
    """Print decisions, then those that are stored later, until the output is closed."""
    printed: set[str] = set()
    first_at = listed[0]["decided_at"] if listed else 0.0
    query = {**query, "limit": 200}
    while True:
        new = [
            decision
            for decision in listed
            if decision["id"] not in printed and decision["decided_at"] >= first_at
        ]
        if as_json:
            for decision in new:
                click.echo(json.dumps(decision))
        elif new:
            print_answer(False, {"decisions": new}, _list)
        printed = {decision["id"] for decision in listed}
        # A worker may store a decision late: read the last seconds again.
        newest = max((decision["decided_at"] for decision in listed), default=0.0)
        query["since"] = max(query.get("since") or 0.0, newest - _LATE_S)
        if _output_closes(_FOLLOW_S):
            return
        listed = list(reversed(api.get("decisions", **query)["decisions"]))


def _output_closes(seconds: float) -> bool:
    """Wait; return whether the reader of the output, such as head, has closed it.

    Without new decisions, no write would notice that.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return bool(poll.poll(seconds * 1000))


@cli.command()
@click.option(
    "--dry-run", is_flag=True, help="Claim nothing; required, as nothing else is done."
)
@click.option(
    "--request", "id_", metavar="ID", callback=stored_id,
    help="Use the stored request of this id or instance, as it is.",
)  # fmt: skip
@click.option("--vcpus", type=click.IntRange(1), help="The flavor's vCPUs.")
@click.option("--ram", type=click.IntRange(1), help="The flavor's memory, MiB.")
@click.option("--disk", type=click.IntRange(0), default=0, help="Its root disk, GB.")
@click.option(
    "--ephemeral", type=click.IntRange(0), default=0, help="Its ephemeral disk, GB."
)
@click.option("--swap", type=click.IntRange(0), default=0, help="Its swap, MiB.")
@click.option(
    "--property", "extra_specs", multiple=True, callback=_pairs,
    metavar="KEY=VALUE", help="An extra spec of the flavor; may be repeated.",
)  # fmt: skip
@click.option(
    "--image-property", "image_properties", multiple=True, callback=_pairs,
    metavar="KEY=VALUE", help="A property of the image; may be repeated.",
)  # fmt: skip
@click.option(
    "--hint", "hints", multiple=True, callback=_pairs,
    metavar="KEY=VALUE", help="A scheduler hint; may be repeated.",
)  # fmt: skip
@click.option("--availability-zone", metavar="ZONE", help="The availability zone.")
@click.option("--project", metavar="ID", help="The project of the request.")
@click.option(
    "--count", type=click.IntRange(1, 100), default=1, show_default=True,
    help="The number of instances.",
)  # fmt: skip
@json_option
@click.pass_obj
def schedule(
    session: CommandSession, /, dry_run: bool, count: int, as_json: bool, **options: Any
) -> None:
    """Show where instances would go now, without claiming anything.

    The request is that of a stored decision (--request), or is made of --vcpus, --ram
    and the other options. The exit status is 3 if no host was found.
    """
    if not dry_run:
        raise click.UsageError("moorage schedules nothing by itself: add --dry-run")
    body = {"count": count, **_request_body(options)}
    answer = session.api().post("dry-run", body)
    print_answer(as_json, answer, _dry)
    if answer["decision"]["outcome"] != "selected":
        sys.exit(_NO_VALID_HOST)


def _dry(console: Console, answer: Answer) -> None:
    explaining.show(console, answer["decision"])
    print_notes(console, answer["notes"])


def _request_body(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a body that has the request, from the command's options."""
    if options["id_"] is not None:
        if given := [name for name in _REQUEST_OPTIONS if options[name]]:
            option = _REQUEST_OPTIONS[given[0]]
            raise click.UsageError(f"Pass --request or {option}, not both")
        return {"stored": options["id_"]}
    if options["vcpus"] is None or options["ram"] is None:
        raise click.UsageError("Pass --request, or --vcpus and --ram")
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
    return {"request": {k: v for k, v in request.items() if v is not None}}


@cli.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the script with which a shell completes this command.

    For bash: moorage completion bash > /etc/bash_completion.d/moorage
    """
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    script = completion_class(cli, {}, "moorage", "_MOORAGE_COMPLETE").source()
    click.echo(script)
