# SPDX-License-Identifier: Apache-2.0
"""The expression language of extra specs, and the base of filters that evaluate it.

An expression is an operator, then its operands.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from ..objects import RequestSpec
from ..scheduler.hosts import HostBatch, HostState
from .base import BaseHostFilter, Mask, all_hosts
from .rejection import Mismatch
from .remedy import Remedy, without_extra_spec

_NUMERIC: dict[str, Callable[[float, float], bool]] = {
    # "=" has always meant "at least".
    "=": operator.ge,
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
}
_TEXT: dict[str, Callable[[str, str], bool]] = {
    "s==": operator.eq,
    "s!=": operator.ne,
    "s<": operator.lt,
    "s<=": operator.le,
    "s>": operator.gt,
    "s>=": operator.ge,
    "<in>": operator.contains,
}


def match(value: str | None, required: str) -> bool:
    """Return whether `value` satisfies `required`, the expression of an extra spec.

    The first word of `required` is the operator; without an operator, `value` must
    equal `required`. The rules are those of nova's ``extra_specs_ops.match``, with one
    exception: a numeric comparison with text that is not a number, and a comparison
    without an operand, are false here, while nova fails the request.
    """
    if value is None:
        return False
    name, *operands = required.split() or [""]
    if name == "<or>":
        return value in operands[::2]  # every second word is a further "<or>"
    if name == "<all-in>":
        return bool(operands) and all(word in value for word in operands)
    if name in _TEXT:
        return bool(operands) and _TEXT[name](value, operands[0])
    if name in _NUMERIC:
        return bool(operands) and _compare(name, value, operands[0])
    return value == required


def match_numbers(values: npt.NDArray[Any], required: str) -> npt.NDArray[np.bool_]:
    """Return `match` of the text of every number, without a loop over all numbers.

    Parameters
    ----------
    values : ndarray of int64, float64 or bool, shape (n,)
        The numbers.
    required : str
        The expression.

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    name, *operands = required.split() or [""]
    operand = _number(operands[0]) if operands else None
    if name in _NUMERIC and operand is not None and values.dtype != bool:
        numeric = _NUMERIC[name](values.astype(float), operand)  # type: ignore[arg-type]
        return np.asarray(numeric, dtype=bool)
    distinct, inverse = np.unique(values, return_inverse=True)
    answers = [match(str(value), required) for value in distinct.tolist()]
    return np.array(answers, dtype=bool)[inverse]


def _compare(name: str, value: str, operand: str) -> bool:
    left, right = _number(value), _number(operand)
    return left is not None and right is not None and _NUMERIC[name](left, right)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class Requirement(NamedTuple):
    """What an extra spec of the flavor requires.

    Attributes
    ----------
    key : str
        The key of the host's value, without the scope of the extra spec.
    required : str
        The expression.
    name : str
        The name of the extra spec.
    """

    key: str
    required: str
    name: str


class ExtraSpecsFilter(BaseHostFilter):
    """Pass hosts that satisfy every extra spec that applies to the filter."""

    run_filter_once_per_request: ClassVar[bool] = True

    def passing(self, hosts: HostBatch, spec_obj: RequestSpec) -> Mask:
        """Return which hosts satisfy all extra specs that apply, shape (n_hosts,)."""
        passing = all_hosts(hosts)
        for key, required, _ in self._requirements(spec_obj):
            passing &= self._satisfying(hosts, key, required)
        return passing

    def mismatch(self, host_state: HostState, spec_obj: RequestSpec) -> Mismatch:
        """Return the first extra spec that is not satisfied, and the host's value."""
        host = host_state.as_batch()
        key, required = next(
            (key, required)
            for key, required, _ in self._requirements(spec_obj)
            if not self._satisfying(host, key, required)[0]
        )
        attribute, available = self._available(host_state, key)
        return attribute, required, available

    def remedies(
        self, hosts: HostBatch, spec_obj: RequestSpec, rejected: Mask
    ) -> Iterator[Remedy]:
        """Yield the change of each extra spec that applies."""
        for key, required, name in self._requirements(spec_obj):
            fails = ~self._satisfying(hosts, key, required)
            values = functools.partial(self._values, key=key)
            alternative = self._alternative(key, required)
            yield without_extra_spec(name, required, fails, values, alternative)

    def _requirements(self, spec_obj: RequestSpec) -> Iterator[Requirement]:
        """Yield what each extra spec that applies requires."""
        raise NotImplementedError

    def _satisfying(self, hosts: HostBatch, key: str, required: str) -> Mask:
        """Return which hosts satisfy an expression for a key, shape (n_hosts,)."""
        raise NotImplementedError

    def _available(self, host_state: HostState, key: str) -> tuple[str, object]:
        """Return the name and the value of the host's attribute under a key."""
        raise NotImplementedError

    def _values(self, hosts: HostBatch, key: str) -> npt.NDArray[Any]:
        """Return the hosts' values under a key, shape (n_hosts,)."""
        raise NotImplementedError

    def _alternative(self, key: str, required: str) -> str:
        """Return what an operator can change so that hosts satisfy an expression."""
        return ""
