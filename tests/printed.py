"""Compares what was printed once with what is printed now: same words, and numbers equal but for their last digit."""

import re
from collections.abc import Iterator

NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*(?:\.\d+)?(?![\w-])")


def differences(shown: str, fresh: str) -> Iterator[str]:
    """In words, every line of `fresh` that is not as `shown` says; blanks do not matter.

    Whole numbers must be equal; a number with decimals may differ by one unit of its last digit.
    """
    old, new = shown.strip().splitlines(), fresh.strip().splitlines()
    if len(old) != len(new):
        yield f"{len(new)} lines are printed and {len(old)} are shown"
    for one, other in zip(old, new, strict=False):
        if _words(one) != _words(other) or any(map(_apart, NUMBER.findall(one), NUMBER.findall(other))):
            yield f"{other.strip()!r} is printed, and shown is {one.strip()!r}"


def _words(line: str) -> list[str]:
    return NUMBER.sub(" # ", line).split()


def _apart(one: str, other: str) -> bool:
    decimals = len(one.partition(".")[2])
    unit = 10.0**-decimals if decimals else 0.0
    return abs(float(one.replace(",", "")) - float(other.replace(",", ""))) > 1.01 * unit
