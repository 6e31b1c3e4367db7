"""The one check that every room with a k needs."""

import operator

LONGEST_DRAFT = 1000  # tokens: far above what anybody drafts, and below what fills a memory


def whole(name: str, value: int, least: int = 0) -> int:
    """value as an int, numpy's integers included. Raises ValueError unless it is whole and `least` or more.

    name: what the number is, for the message. A float is refused even where it is whole: 3.0 drafts would
    be the result of a division that belongs rounded.
    """
    try:
        value = operator.index(value)
    except TypeError:
        raise ValueError(f"{name} is {value!r}: it must be an integer.") from None
    if value < least:
        raise ValueError(f"{name} is {value}: it must be {least} or more.")
    return value
