# SPDX-License-Identifier: Apache-2.0
"""The commands of moorage, and their options."""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from click.shell_completion import get_completion_class
from rich.console import Console

from .... import __version__
from . import explaining, tables
from .client import ApiClient, find_api
from .text import safe

#: Columns of the output if it is not a terminal: files and pipes need no wrapping.
_WIDTH: Final = 160
_FOLLOW_S: Final = 2.0
#: The exit status of a dry run that finds no host.
_NO_VALID_HOST: Final = 3
_SHELLS: Final = ("bash", "zsh", "fish")


@dataclasses.dataclass(slots=True)
class _Session:
    """What all commands share."""

    url: str | None
    token_file: str | None
    config_files: Sequence[str]

    def api(self) -> ApiClient:
        """Return a client of the API."""
        return find_api(self.url, self.token_file, self.config_files)


#: A command with its --json; the options of all commands come before it.
def _json_option(command: Callable[..., None]) -> Callable[..., None]:
    text = "Print the API's answer as JSON."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


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
@click.pass_context
def cli(
    context: click.Context,
    url: str | None,
    token_file: str | None,
    config_files: Sequence[str],
) -> None:
    """Show what Moorage decided, why, and what it would decide now.

    An instance that found no host: `moorage decisions --failed` finds the request,
    `moorage explain` shows which step left no host, and `moorage why-not` shows every
    reason why a certain host was not possible.

    The commands ask the API of moorage-api.
    """
    context.obj = _Session(url, token_file, config_files)


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
    "--since", metavar="AGE", callback=lambda _c, _p, v: _age_s(v),
    help="Only decisions not older than this: 90s, 15m, 6h, 2d.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(1, 200), default=50, show_default=True,
    help="The number of decisions.",
)  # fmt: skip
@click.option("--follow", "-f", is_flag=True, help="Print new decisions until Ctrl-C.")
@_json_option
@click.pass_obj
def decisions(
    session: _Session,
    follow: bool,
    since: float | None,
    as_json: bool,
    **query: Any,  # noqa: ANN401 - the options above, which are the API's parameters
) -> None:
    """List decisions, the newest last, as a log is read."""
    api = session.api()
    if since is not None:
        query["since"] = time.time() - since
    answer = api.get("decisions", **query)
    found = list(reversed(answer["decisions"]))
    _print(as_json, {**answer, "decisions": found}, lambda c: _list(c, found))
    while follow:
        time.sleep(_FOLLOW_S)
        found = _newer(api, query, found)


def _list(console: Console, found: Sequence[tables.Answer]) -> None:
    if found:
        console.print(tables.decisions_table(found))
    else:
        console.print("No decision was stored that matches.")
