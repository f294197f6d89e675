"""`python -m fedssca.privacy.sums.table` prints how many colluders a secure sum survives."""

from __future__ import annotations

from collections.abc import Iterator

from fedssca.privacy.sums.graph import Rules

__all__ = ["lines"]

COUNTS = (3, 4, 5, 6, 8, 10, 16, 20, 30, 32, 50, 100, 1000)
HEAD = """\
| clients n | neighbours k | least in a sum | shares t | witnesses m | quorum q | colluders c |
|---|---|---|---|---|---|---|"""


def lines() -> Iterator[str]:
    """The rows of the table in docs/secure-sums.md, for the default settings."""
    yield HEAD
    for count in COUNTS:
        rules = Rules(b"", count)
        row = (
            count,
            rules.degree(count),
            rules.least,
            rules.shares(count),
            rules.witnesses(count),
            rules.quorum(count),
            rules.colluders(),
        )
        yield f"| {' | '.join(map(str, row))} |"


if __name__ == "__main__":
    print(*lines(), sep="\n")
