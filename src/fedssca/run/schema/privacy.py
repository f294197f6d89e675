"""The section [privacy] of a run."""

from __future__ import annotations

from typing import Literal

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from fedssca.run.schema.types import MODEL, Flag, Real, Whole, invalid, key

__all__ = ["PrivacySettings"]


@dataclass(frozen=True, config=MODEL)
class PrivacySettings:
    """What is hidden from the server and from other clients."""

    secure_sum: Flag = key(
        "The server sees only the sum of the clients' messages, which are masked. Parties with "
        "columns learn the sum of the h_i, and the server learns nothing of them.",
        title="Secure sums (masks)",
        default=False,
    )
    neighbours: Whole = key(
        "The number of other clients with whom a client shares masks. 0 means all of up to 32 "
        "clients, and 6 log2(n) of more.",
        title="Mask partners per client",
        default=0,
        ge=0,
    )
    threshold: Real = key(
        "The share of the asked clients that must answer before a sum is opened, above 0.5; 0 "
        "means two thirds. Of a client's neighbours two thirds are needed in any case.",
        title="Share of clients that must answer",
        default=0.0,
        ge=0,
        le=1,
    )
    homomorphic: Flag = key(
        "Messages are encrypted with CKKS in place of masks, for clients that hold rows.",
        title="Homomorphic encryption (CKKS)",
        default=False,
    )
    key_holder: Whole = key(
        "The number of the client that holds the key and decrypts the sum.",
        title="Client with the key",
        default=0,
        ge=0,
    )
    unit: Literal["sample", "client"] = key(
        "What the noise protects: one row (sample), or all rows of a client (client).",
        title="What the noise protects",
        default="sample",
    )
    clip: Real = key(
        "The length to which the gradient of one unit is clipped; 0 means no clipping and no "
        "noise.",
        title="Clip gradients at",
        default=0.0,
        ge=0,
    )
    value_clip: Real = key(
        "The bound to which values of constrained terms are clipped; 0 means the value of clip.",
        title="Clip constraint values at",
        default=0.0,
        ge=0,
    )
    noise_multiplier: Real = key(
        "The standard deviation of the noise, as a multiple of what one unit can change. Give "
        "this or epsilon.",
        default=0.0,
        ge=0,
    )
    epsilon: Real = key(
        "The privacy budget of the whole run, from which the noise is computed.",
        title="Privacy budget (ε)",
        default=0.0,
        ge=0,
    )
    sampling: Literal["poisson", "fixed"] = key(
        "How batches are drawn in runs with noise that protects samples: every row independently "
        "(poisson), or batches of one size (fixed), whose epsilon is many times larger.",
        title="How batches are drawn",
        default="poisson",
    )
    evaluation: Literal["noise", "exact"] = key(
        "In runs with noise: evaluations with noise, which epsilon covers (noise), or exact ones, "
        "which it does not (exact; in simulations only).",
        title="Evaluations",
        default="noise",
    )
    delta: Real = key(
        "The probability with which the guarantee of epsilon may fail. It should be well below "
        "1 / (number of rows).",
        title="Failure probability (δ)",
        default=1e-5,
        gt=0,
        lt=1,
    )

    @model_validator(mode="after")
    def _threshold_is_a_majority(self) -> PrivacySettings:
        if 0 < self.threshold <= 0.5:
            words = "it must lie above 0.5 and not above 1; 0 leaves the choice to the run"
            raise invalid(words, "threshold", self.threshold)
        return self
