"""Finding the rows that all parties with columns have: what the server and the sites agree on.

    ids          every site tells a digest of its ids; if all are equal, nothing else is needed
    align/open   every site multiplies its own points and sends them to the next site
    align/turn   every site multiplies the points it received and sends them on; after the last
                 site they go to the server
    align/keep   the server tells each site which of its points all sites have, and the sites send
                 each other a digest of the ids they keep
    align/agree  every site compares these digests, and keeps the rows only if they are equal

The points are those of `privacy.psi`. The server sees points that all parties have multiplied. It
can count the ids that all, or some, of the parties share. It cannot test an id that it guesses,
not even together with one of the parties.
"""

from __future__ import annotations

__all__ = ["PEER", "ROWS_OF"]

PEER = "align"
"""The kind of an envelope from one site to another during the alignment."""

ROWS_OF = {"rows": "its rows", "test": "its test rows", "new": "its new rows"}
"""What messages call the parts of a site's data."""
