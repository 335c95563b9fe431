# SPDX-License-Identifier: Apache-2.0
"""Names, numbers and times as text for people; control characters are escaped."""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final

#: The maximum number of characters of a name that are shown; names have any length.
MAX_SHOWN: Final = 255
#: The maximum number of characters of a part of a request, such as all extra specs, and
#: the maximum number of entries of a list.
MAX_TEXT: Final = 2000
_MAX_LISTED: Final = 10
#: Amounts of a flavor, with their units.
_SIZES: Final = {
    "vcpus": "vCPU",
    "memory_mb": "MiB RAM",
    "root_gb": "GB root disk",
    "ephemeral_gb": "GB ephemeral disk",
    "swap_mb": "MiB swap",
}
#: What each step of a decision does whose time is recorded.
STEP_MEANINGS: Final = {
    "refresh": "the state of hosts is read from its source again, if it is stale",
    "prefilters": "traits, aggregates and zones are added to the query, as options say",
    "placement": "allocation candidates are read from Placement, its cache or memory",
    "hosts": "the state of the candidates' hosts is read from the host table",
    "filters": "all filters reject hosts that do not match the request",
    "weighers": "all weighers score the hosts that are left",
    "recheck": "the selected host is read again just before its claim: it may be stale",
    "claim": "allocations are written to Placement",
    "group": "after the claim, the rules of server groups and places are checked "
    "against the claims of other requests",
    "review": "before the request fails, claims that no host has reported yet are "
    "checked: those that ended free their room",
    "release": "claims of a request that fails are taken back",
    "other steps": "what is left of the whole time: steps too short to be shown, and "
    "work between the steps",
}
#: The labels of parts of a request that are shown unchanged.
_OTHER_PARTS: Final = {
    "ports": "ports",
    "networks": "networks",
    "ignore_hosts": "ignored hosts",
    "force_hosts": "forced hosts",
    "force_nodes": "forced nodes",
    "attempted_hosts": "hosts tried before",
    "numa_cells": "NUMA cells",
    "pci_devices": "PCI devices",
}
#: Control, format (such as the direction of text), private and surrogate characters.
_HIDDEN: Final = frozenset({"Cc", "Cf", "Co", "Cs", "Zl", "Zp"})


def safe(value: object, limit: int = MAX_SHOWN) -> str:
    """Return at most `limit` characters of a value, with control characters escaped."""
    text = str(value)
    if len(text) > limit:
        text = f"{text[:limit]}…"
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN:
        return character
    return character.encode("unicode_escape").decode("ascii")


def listed(names: Sequence[str], limit: int) -> str:
    """Return names as a list: the first `limit` of them, and the number of others."""
    suffix = f" and {len(names) - limit} more" if len(names) > limit else ""
    return f"{', '.join(names[:limit])}{suffix}"


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with its sign; "-" for None, JSON's form of infinity and NaN."""
    # 0.0 is added because a zero may be negative.
    return "-" if value is None else f"{value + 0.0:+.{digits}f}"


def local_time(seconds: float) -> datetime.datetime:
    """Return a time in the local zone."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).astimezone()


def timestamp(seconds: float) -> str:
    """Return a time in the local zone, to the second."""
    return f"{local_time(seconds):%Y-%m-%d %H:%M:%S}"


def age(seconds: float | None) -> str:
    """Return the time since something, in its largest unit; an en dash for None."""
    if seconds is None or not math.isfinite(seconds):
        return "\u2013"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def why(decision: Mapping[str, Any]) -> str:
    """Return why a decision selected no host.

    The message to the caller, which has counts of hosts, is preferred; if a part of the
    scheduler failed, only the reason names the cause.
    """
    keys = ["user_message", "reason"]
    if decision["outcome"] == "failed":
        keys.reverse()
    message: str = decision[keys[0]] or decision[keys[1]]
    return message.removeprefix("No valid host was found.").strip()


def request_rows(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a described request as labels and texts, for a table of two columns.

    Parameters
    ----------
    request : mapping
        As `moorage.scheduler.explain.describe_request` returns it.
    """
    flavor, image = request.get("flavor", {}), request.get("image", {})
    sizes = ", ".join(
        f"{flavor[name]:,} {unit}" for name, unit in _SIZES.items() if flavor.get(name)
    )
    rows = {
        "flavor": f"{flavor.get('name') or ''} ({sizes})".strip(),
        "extra specs": flavor.get("extra_specs"),
        "image": image.get("name") or image.get("id"),
        "image properties": image.get("properties"),
        "boot from volume": "yes" if request.get("is_volume_backed") else "",
        "availability zone": request.get("availability_zone"),
    }
    for hint, values in request.get("hints", {}).items():
        rows[f"hint {hint}"] = values
    if group := request.get("server_group"):
        rules = "".join(
            f", {key} {text}" for key, text in group.get("rules", {}).items()
        )
        rows["server group"] = (
            f"{group.get('uuid', '')} {group.get('policy', '')}{rules}, "
            f"{group.get('n_members', 0):,} member(s)"
        )
    for name, text in request.get("destination", {}).items():
        rows[f"requested {name}"] = text
    for name, label in _OTHER_PARTS.items():
        rows[label] = request.get(name)
    texts = {label: _row_text(value) for label, value in rows.items()}
    return [(label, safe(text, MAX_TEXT)) for label, text in texts.items() if text]


def _row_text(value: Any) -> str:  # noqa: ANN401 - a text, a number, a list or pairs
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={text}" for name, text in sorted(value.items()))
    if isinstance(value, list):
        return listed([str(text) for text in value], _MAX_LISTED)
    return str(value or "")


def rank_text(then: Mapping[str, Any]) -> str:
    """Return how a host ranked at a decision.

    Parameters
    ----------
    then : mapping
        As `moorage.scheduler.explain.PastHost.to_dict` returns it.
    """
    n_ranked, selected = then["n_ranked"], safe(then["selected"])
    texts = []
    for rank in then["ranks"]:
        ranking = f"{safe(rank['node'])} ranked {rank['rank']:,} of {n_ranked:,} hosts"
        if rank["is_selected"]:
            texts.append(f"{ranking} and was selected.")
            continue
        parts = ", ".join(
            f"{safe(name)} {number(host_part - selected_part)}"
            for name, (host_part, selected_part) in rank["parts"].items()
        )
        against = f" against {selected}, which was selected" if selected else ""
        texts.append(f"{ranking}: {parts or 'an equal weight'}{against}.")
    if texts:
        return " ".join(texts)
    if not n_ranked:
        return "No host passed all filters."
    if then["is_whole"]:
        return f"It was not among the {n_ranked:,} hosts that passed all filters."
    return (
        f"It was not among the best of the {n_ranked:,} hosts that passed all filters: "
        "--then shows its checks and rank, if a view of the decision is stored."
    )
