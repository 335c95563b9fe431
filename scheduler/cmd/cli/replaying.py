# SPDX-License-Identifier: Apache-2.0
"""The command `moorage replay`."""

from __future__ import annotations

import json
import sys
import tempfile
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click
from rich.console import Console

from .answering import age_s, json_option, print_answer, stored_id
from .client import ApiClient, read_options
from .session import CommandSession
from .stored_records import read_record, stored_records
from .tables import Answer, differences_table, scores_table
from .text import names, safe

if TYPE_CHECKING:
    from oslo_config import cfg

    from ....objects import RequestSpec
    from ...decision_store import StoredDecision
    from ...drivers.record import ReplayKey
    from ...explain import PastHost, Replay, ReplaySummary
    from ...views import OfflineParts

F = TypeVar("F", bound=Callable[..., Any])

_NOT_STORED: Final = (
    "No view is stored of the decision {}: [moorage] stored_views sets how many are "
    "kept, and view_share of how many decisions that find a host"
)


class Setting(NamedTuple):
    """An option as `--set` gives it; the group "DEFAULT" has those of no group."""

    group: str
    option: str
    value: str


def _read_settings(
    _context: object, _option: object, texts: Sequence[str]
) -> list[Setting]:
    """Return the options that `--set` gives."""
    settings = []
    for text in texts:
        name, is_set, value = text.partition("=")
        group, has_group, option = name.strip().partition(".")
        if not (is_set and has_group and group and option) or not text.isprintable():
            raise click.BadParameter(
                f"{safe(text, 80)!r} is not GROUP.OPTION=VALUE, such as "
                "filter_scheduler.cpu_weight_multiplier=2"
            )
        settings.append(Setting(group, option.replace("-", "_"), value.strip()))
    return settings


def set_option(text: str) -> Callable[[F], F]:
    """Return the option --set of a command; `text` begins its help."""
    return click.option(
        "--set", "settings", metavar="GROUP.OPTION=VALUE", multiple=True,
        callback=_read_settings, help=f"{text}; may be repeated.",
    )  # fmt: skip


@click.command()
@click.argument(
    "id_", metavar="[INSTANCE|REQUEST_ID]", required=False, callback=stored_id
)
@click.option(
    "--config-file", "config_files", multiple=True, type=click.Path(),
    help="Options that replace those of the decision; may be repeated.",
)  # fmt: skip
@set_option("An option that replaces that of the decision and of files")
@click.option(
    "--since", metavar="AGE", callback=age_s,
    help="Replay all decisions not older than this that have a view, and sum them up.",
)  # fmt: skip
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=1000, show_default=True,
    help="With --since: the number of decisions, the newest.",
)  # fmt: skip
@json_option
@click.pass_obj
def replay(
    session: CommandSession,
    id_: str | None,
    config_files: Sequence[str],
    settings: Sequence[Setting],
    since: float | None,
    limit: int,
    as_json: bool,
) -> None:
    """Decide again on the stored view of a decision.

    It runs in this process. With the decision's own options, the result is the same to
    the last bit. With --set or --config-file it shows what these options, beside all
    others of the decision, would have done: which filter, which weigher, and how the
    ranking moves. Nothing is claimed.
    """
    if (id_ is None) is (since is None):
        raise click.UsageError("Pass a request id or an instance, or --since")
    replays = _Replays(session.api(), config_files, settings)
    if id_ is not None:
        replayed = replays.of(_stored(session.api(), id_))
        print_answer(as_json, replayed.to_dict(), _show)
        return
    oldest_at = max(0.0, session.api().now() - (since or 0.0))
    decisions = map(read_record, stored_records(session.api(), limit, since=oldest_at))
    answer = replays.summary(decisions)
    print_answer(as_json, answer, _show_summary)
    if answer["failed"] and answer["failed"] == answer["replayed"]:
        sys.exit(1)


def read_options_with(
    config_files: Sequence[str], settings: Sequence[Setting]
) -> cfg.ConfigOpts:
    """Return the options of files, and of settings as the last file.

    Without any, no file is read.

    Raises
    ------
    click.ClickException
        A file cannot be read, or a value is invalid.
    """
    from ...conf import load

    if not (config_files or settings):
        return load([], config_files=[])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "set.conf")
        path.write_text(
            "".join(
                f"[{group}]\n{option} = {value}\n" for group, option, value in settings
            )
        )
        try:
            conf: cfg.ConfigOpts = read_options([*config_files, str(path)])
            return conf
        except click.ClickException as e:
            text = e.message.replace(f"({path})", "(--set)")
            raise click.ClickException(text) from e


def past_host(api: ApiClient, id_: str, host: str) -> PastHost:
    """Return the checks and the rank of a host on the stored view of a decision.

    Raises
    ------
    click.ClickException
    """
    from ...errors import SchedulerError
    from ...explain import PastHost
    from ...views import UnreadableView

    stored = _stored(api, id_)
    key, request, offline = _Replays(api, (), ()).prepare(stored)
    try:
        return PastHost.of_view(offline, key, stored.record, request, host)
    except (UnreadableView, SchedulerError) as e:
        raise click.ClickException(str(e)) from e


def _stored(api: ApiClient, id_: str) -> StoredDecision:
    """Return the newest decision of a request or an instance that has a view."""
    for record in api.get("records", id=id_)["records"]:
        stored = read_record(record)
        if stored.record.replay is not None:
            return stored
    raise click.ClickException(_NOT_STORED.format(safe(id_)))


class _Replays:
    """Decides again on stored views; several decisions may share a view."""

    def __init__(
        self, api: ApiClient, config_files: Sequence[str], settings: Sequence[Setting]
    ) -> None:
        self._api = api
        self._config_files = config_files
        self._settings = settings
        self._view: str | None = None
        self._offline: OfflineParts | None = None
        # An invalid option is reported once, not for each decision.
        self._read_options()

    def of(self, stored: StoredDecision) -> Replay:
        """Decide again on the view of a decision.

        Raises
        ------
        click.ClickException
        """
        from ...explain import replay as repeat
        from ...views import UnreadableView

        key, request, offline = self.prepare(stored)
        try:
            return repeat(offline, key, stored.record, request)
        except UnreadableView as e:
            raise click.ClickException(str(e)) from e

    def prepare(
        self, stored: StoredDecision
    ) -> tuple[ReplayKey, RequestSpec, OfflineParts]:
        """Return the key, the request and the parts with which a decision is replayed.

        Raises
        ------
        click.ClickException
        """
        key, request = stored.record.replay, _request_of(stored)
        assert key is not None
        offline = self._parts(key.view)
        if offline is None:
            self._api.get("views", key.view)  # raises an error with the API's reason
            raise click.ClickException(_NOT_STORED.format(safe(stored.request_id)))
        if request is None:
            raise click.ClickException("The decision was stored without its request")
        return key, request, offline

    def _parts(self, view: str) -> OfflineParts | None:
        """Return the parts of a stored view; None: the API does not have the view."""
        from ...errors import SchedulerError
        from ...views import OfflineParts, StoredView, UnreadableView

        if self._view != view:
            answer = self._api.find("views", view)
            self._view, self._offline = view, None
            if answer is not None:
                try:
                    stored_view = StoredView.decode(b64decode(answer["data"]))
                    conf = self._read_options()
                    self._offline = OfflineParts(stored_view, conf)
                except (UnreadableView, SchedulerError) as e:
                    has_options = self._config_files or self._settings
                    options = " with the options given" if has_options else ""
                    text = f"The view {view} cannot be used{options}: {e}"
                    raise click.ClickException(text) from e
                # Plugins have registered their options by now.
                _require_known(conf, self._settings)
        return self._offline

    def _read_options(self) -> cfg.ConfigOpts:
        """Return the options of the files, and of the settings as the last file."""
        return read_options_with(self._config_files, self._settings)

    def summary(self, decisions: Iterator[StoredDecision]) -> dict[str, Any]:
        """Decide again on many views and sum up; decisions without a view are counted.

        A decision that cannot be repeated is counted as failed.
        """
        from ...explain import ReplaySummary

        summary, n_without_view = ReplaySummary(), 0
        for stored in decisions:
            try:
                n_without_view += not self._add(summary, stored)
            except click.ClickException as e:
                summary.n_replayed += 1
                summary.fail(e.message)
        return {**summary.to_dict(), "without_view": n_without_view}

    def _add(self, summary: ReplaySummary, stored: StoredDecision) -> bool:
        """Repeat a decision, and count it; return whether it has a view."""
        key, request = stored.record.replay, _request_of(stored)
        offline = None if key is None or request is None else self._parts(key.view)
        if offline is None or request is None:
            return False
        summary.add(self.of(stored), offline, int(request.flavor.memory_mb))
        return True


def _require_known(conf: cfg.ConfigOpts, settings: Sequence[Setting]) -> None:
    """Raise ClickException unless each setting is that of a registered option."""
    from ...conf import registered_opts
    from ..checks.option_table import unknown_option

    registered = {
        (group or "DEFAULT", opt.dest) for group, opt, _ in registered_opts(conf)
    }
    for group, option, _ in settings:
        if (group, option) not in registered:
            why = unknown_option((group, option), registered)
            raise click.ClickException(f"--set {group}.{option}: {why}")


def _request_of(stored: StoredDecision) -> RequestSpec | None:
    """Return the request of a decision; raise ClickException if it is unreadable."""
    from ...errors import InvalidRequest

    try:
        return stored.request
    except InvalidRequest as e:
        raise click.ClickException(str(e)) from e


# -- what is shown -----------------------------------------------------------------


def _show(screen: Console, answer: Answer) -> None:
    replayed = answer["replayed"]
    selected_hosts = names(instance["host"] for instance in replayed["instances"])
    if answer["identical"]:
        result = (
            f"selected {selected_hosts}"
            if replayed["instances"]
            else replayed["outcome"]
        )
        screen.print(
            f"Identical to the last bit: {result}; funnel, weights and alternates are "
            "those of the decision.",
            markup=False,
        )
        return
    screen.print(differences_table(answer["differences"]))
    for title in ("recorded", "replayed"):
        for instance in answer[title]["instances"][:1]:
            if any(host["parts"] for host in instance["top_hosts"]):
                text = f"Scores, {title}: {safe(instance['host'])} was selected"
                origins = answer[title]["origins"]
                screen.print(scores_table(instance["top_hosts"], text, origins=origins))
    if reason := replayed["reason"].strip():
        screen.print(f"Replayed: {safe(reason)}", markup=False)
    if answer["assumed_claims"]:
        screen.print(
            f"{answer['assumed_claims']} claim(s) were not made then; each counts as "
            "granted.",
            markup=False,
        )


def _show_summary(screen: Console, answer: Answer) -> None:
    results = ("identical", "elsewhere", "found", "lost", "failed")
    n_same_hosts = answer["replayed"] - sum(answer[name] for name in results)
    screen.print(
        f"{answer['replayed']} decision(s) replayed, {answer['without_view']} without "
        f"a view: {answer['identical']} identical, {n_same_hosts} with other weights "
        f"or alternates only, {answer['elsewhere']} on other hosts, {answer['found']} "
        f"find hosts only now, {answer['lost']} found hosts only then, "
        f"{answer['failed']} could not be repeated.",
        markup=False,
    )
    if answer["first_failure"]:
        screen.print(f"The first failure: {answer['first_failure']}", markup=False)
    for name, text in (
        ("hosts", "Hosts selected"),
        ("memory_fill", "Their memory used"),
    ):
        recorded, replayed = (answer[name][side] for side in ("recorded", "replayed"))
        if recorded is not None or replayed is not None:
            screen.print(
                f"{text}: {_side(recorded)} then, {_side(replayed)} now", markup=False
            )


def _side(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1%}" if isinstance(value, float) else json.dumps(value)
