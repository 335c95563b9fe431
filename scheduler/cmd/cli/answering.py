# SPDX-License-Identifier: Apache-2.0
"""Options and output of the commands that print an answer of the API."""

from __future__ import annotations

import datetime
import json
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

import click
from rich.console import Console

from .tables import Answer
from .text import cell, safe

#: Characters of an id.
_MAX_ID: Final = 255
#: The latest time that the API takes, in the year 5138.
_MAX_TIME_S: Final = 1e11
#: Columns of the output to a file or a pipe, whose lines are not wrapped.
_WIDTH: Final = 100_000


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option --json to a command."""
    text = "Print the API's answer as JSON."
    return click.option("--json", "as_json", is_flag=True, help=text)(command)


def age_s(_context: object, _option: object, text: str | None) -> float | None:
    """Return the seconds of an age such as 90s, 15m, 6h or 2d, at most since 1970."""
    units = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
    if text is None:
        return None
    if text[-1:] not in units or not text[:-1].isascii() or not text[:-1].isdigit():
        raise click.BadParameter(f"{text!r} is not an age such as 90s, 15m, 6h or 2d")
    return min(float(text[:-1]) * units[text[-1]], time.time())


def seconds_of_time(
    _context: object, _option: object, text: str | None
) -> float | None:
    """Return a local time, of today if it has no date, in seconds since the epoch.

    A time before 1970 or after all times is the first or the last one.
    """
    if text is None:
        return None
    try:
        if len(text) <= len("hh:mm:ss") and ":" in text:
            time_ = datetime.time.fromisoformat(text)
            moment = datetime.datetime.combine(datetime.date.today(), time_)
        else:
            moment = datetime.datetime.fromisoformat(text)
        return min(max(0.0, moment.timestamp()), _MAX_TIME_S)
    except (ValueError, OverflowError):
        raise click.BadParameter(
            f"{safe(text, 50)!r} is not a time such as 14:03 or 2026-11-26T14:03"
        ) from None


def stored_id(_context: object, _option: object, text: str | None) -> str | None:
    """Return the id of a request or an instance, as a store may have it."""
    if text is not None and not 0 < len(text) <= _MAX_ID:
        raise click.BadParameter(
            f"{safe(text, 50)!r} is no id of a request or an instance: it must have 1 "
            f"to {_MAX_ID} characters"
        )
    return text


def print_answer(
    as_json: bool, answer: Answer, show: Callable[[Console, Answer], None]
) -> None:
    """Print an answer as JSON, or as `show` does."""
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    elif sys.stdout.isatty():
        show(console(), answer)
    else:
        screen = console()
        with screen.capture() as captured:
            show(screen, answer)
        # Tables are padded to their width, which only a terminal needs.
        click.echo("\n".join(map(str.rstrip, captured.get().split("\n"))), nl=False)


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print the notes of an answer: what limits it."""
    for note in notes:
        console.print(cell(f"Note: {note}", "yellow"))


def console() -> Console:
    """Return the console that writes to stdout: a terminal, a file or a pipe."""
    # Without a width, rich would wrap the lines of a file at that of the terminal.
    return Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False)
