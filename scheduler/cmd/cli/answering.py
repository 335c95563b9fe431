# SPDX-License-Identifier: Apache-2.0
"""Options and output of the commands that print an answer of the API."""

from __future__ import annotations

import datetime
import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final

import click
from rich.console import Console
from rich.text import Text

from .tables import Answer
from .text import MAX_TEXT, cell, safe

#: Characters of an id.
_MAX_ID: Final = 255
#: The latest time that the API takes, in the year 5138.
_MAX_TIME_S: Final = 1e11
#: Columns of the output to a file or a pipe, whose lines are not wrapped.
_WIDTH: Final = 100_000
#: Columns of output that a pager scrolls: the first width at which no word is broken.
_SCROLLED: Final = (120, 160, 240, _WIDTH)


class FiniteNumber(click.FloatRange):
    """The type of an option that is a number, neither infinite nor NaN."""

    def convert(
        self, value: float, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; fail if it is not finite, or outside the range."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number", param, ctx)
        return number


def json_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add the option --json to a command."""
    text = "Print the answer as JSON."
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
    as_json: bool,
    answer: Answer,
    show: Callable[[Console, Answer], None],
    *,
    uses_pager: bool = True,
) -> None:
    """Print an answer as JSON, or as `show` does.

    A file or a pipe gets whole lines. On a terminal on which a table would break words,
    a pager scrolls, unless `uses_pager` is false.
    """
    if as_json:
        click.echo(json.dumps(answer, indent=2))
        return
    whole_text = _rendered(show, answer, _WIDTH)
    if not sys.stdout.isatty():
        click.echo(whole_text, nl=False)
        return
    n_columns = Console().width
    words = _words(whole_text)
    for width in (n_columns, *(wider for wider in _SCROLLED if wider > n_columns)):
        text = _rendered(show, answer, width)
        if not uses_pager or _words(text) >= words:
            break
    if width > n_columns and (os.environ.get("PAGER") or shutil.which("less")):
        # Colors, no wrapping, and the text stays on the screen.
        os.environ.setdefault("LESS", "-RSX")
        click.echo_via_pager(text, color=True)
    else:
        click.echo(_rendered(show, answer, n_columns), nl=False, color=True)


def _rendered(
    show: Callable[[Console, Answer], None], answer: Answer, width: int
) -> str:
    """Return what `show` prints on so many columns of stdout."""
    console = Console(width=width, highlight=False)
    with console.capture() as captured:
        show(console, answer)
    # Tables are padded to their width.
    return "\n".join(map(str.rstrip, captured.get().split("\n")))


def _words(rendered_text: str) -> set[str]:
    """Return the words of a text without its colors and lines."""
    return {
        word for word in Text.from_ansi(rendered_text).plain.split() if "─" not in word
    }


def print_notes(console: Console, notes: Iterable[str]) -> None:
    """Print the notes of an answer: what limits it."""
    for note in notes:
        console.print(cell(f"Note: {note}", "yellow", MAX_TEXT))
