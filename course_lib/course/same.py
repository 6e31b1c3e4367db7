"""Are two answers the same? One comparison for numbers, arrays, tensors, tables and nests of them."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def same(got: Any, want: Any, rtol: float = 1e-6) -> bool:
    """True if `got` is `want`, numbers compared to a relative `rtol` (and 1e-9 absolute).

    Lists, tuples and arrays of the same shape compare alike, so an answer may be any of them;
    a table is compared column by column, a mapping key by key, a set as a set.
    """
    got, want = _plain(got), _plain(want)
    if isinstance(want, Mapping):
        return (
            isinstance(got, Mapping)
            and got.keys() == want.keys()
            and all(same(got[key], want[key], rtol) for key in want)
        )
    if want is None or want is ... or isinstance(want, str | bytes | set | frozenset):
        return type(got) is type(want) and got == want
    if isinstance(want, list | tuple) and isinstance(got, list | tuple):
        return len(got) == len(want) and all(same(g, w, rtol) for g, w in zip(got, want, strict=True))
    if got is None or got is ... or isinstance(got, str | bytes | set | frozenset | Mapping):
        return False
    got, want = np.asarray(got), np.asarray(want)
    if got.shape != want.shape:
        return False
    if got.dtype == object or want.dtype == object:
        return bool(np.all(got == want))
    return bool(np.allclose(got, want, rtol=rtol, atol=1e-9, equal_nan=True))


def _plain(value: Any) -> Any:
    """Tensors as arrays (without importing torch) and tables as mappings of columns."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        return (value.float() if value.is_floating_point() else value).numpy()  # bfloat16 has no numpy
    if hasattr(value, "columns") and hasattr(value, "to_dict"):
        return {column: value[column].to_numpy() for column in value.columns}
    return value
