"""What a site of a deployment draws for itself: noise on a grid, and which rows are in a batch.

Both come from a cryptographic generator with a key of the operating system, never from the seed of
the run, which the server knows. A site releases what was accounted for and nothing else: each round
that is its own once. The same request gets the same answer again, because a second draw of noise
would be a second message; a different request for an answered round is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from fedssca.data.sampling import Drawn
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request
from fedssca.privacy.noise.discrete import FEW_STEPS, Entropy, Grid
from fedssca.privacy.noise.messages import MessageNoise
from fedssca.rounds.perturb import Perturb, Perturbation, unperturbed

__all__ = ["SecretNoise"]


class SecretNoise:
    """The randomness of one site of a deployment, for all stages of a run."""

    def __init__(self) -> None:
        self._entropy: Entropy | None = None
        self._answered: set[tuple[int, int]] = set()
        """(number of the client or block, round) of the messages that were released."""
        self._last: dict[int, tuple[bytes, Message]] = {}
        """For each number, the last request and its answer."""
        self._evaluated: dict[Any, int] = {}

    @property
    def entropy(self) -> Entropy:
        """The generator, which exists once noise or batches are drawn."""
        if self._entropy is None:
            self._entropy = Entropy()
        return self._entropy

    def perturbation(self, noise: MessageNoise | None, finest: float = 0.0) -> Perturbation:
        """What a client does to its messages; nothing where there is no noise.

        `finest` is the step of the numbers in which sums are added up, 0 where they are floats.
        """
        if noise is None or noise.ledger is None:
            return unperturbed
        return unperturbed._replace(client=partial(self._client, noise, finest))

    def _client(self, noise: MessageNoise, finest: float, number: int, share: float) -> Perturb:
        def perturb(message: Message, request: Request) -> Message:
            round_, asked = int(request.round), _fingerprint(request)
            if self._last.get(number, (b"", None))[0] == asked:
                return self._last[number][1]
            if (number, round_) in self._answered or not noise.due(number, round_):
                raise UserError(
                    f"privacy: a message of round {round_} was answered before, or is none that "
                    "this site's account has; start another run"
                )
            self._answered.add((number, round_))
            sent = self._noised(noise, message, request, float(noise.weight(share)), finest)
            self._last[number] = asked, sent
            return sent

        return perturb

    def _noised(
        self, noise: MessageNoise, message: Message, request: Request, factor: float, finest: float
    ) -> Message:
        assert noise.ledger is not None
        scalar, vector = noise.spread(request)

        def add(spread: float, tree: Any) -> Any:
            return jax.tree.map(
                lambda leaf: self._on_grid(leaf, factor * spread, noise.ratio, finest, noise),
                tree,
            )

        return Message(add(scalar, message.scalars), add(float(vector), message.vectors))

    def _on_grid(
        self, leaf: Any, spread: float, ratio: float, finest: float, noise: MessageNoise
    ) -> np.ndarray:
        """An array with noise of this standard deviation.

        Where the server sees sums only, every number stays on the grid, in double precision: sums
        of such numbers say no more than the sum of the noises. Otherwise they are rounded as the
        array was.
        """
        values = np.asarray(leaf)
        if not values.size:
            return values
        found = Grid.of(spread, ratio, values.size, finest).noised(values, self.entropy)
        return found if noise.sums_only else found.astype(values.dtype)

    def evaluated(self, sums: Any, spreads: Any, ratio: float, finest: float) -> Any:
        """Sums with noise, each number with a standard deviation of its own; 0 adds none.

        `ratio` is that of `EvaluationNoise`.
        """

        def one(leaf: Any, spread: Any) -> np.ndarray:
            values = np.array(leaf, np.float64)
            flat = values.reshape(-1)
            for place, each in enumerate(np.broadcast_to(spread, values.shape).ravel().tolist()):
                if each:
                    grid = Grid.of(each, ratio, 1, finest, FEW_STEPS)
                    flat[place] = grid.noised(flat[place], self.entropy)
            return values if finest else values.astype(np.asarray(leaf).dtype)

        return jax.tree.map(one, sums, spreads)

    def count_evaluation(self, key: Any, most: int) -> None:
        """Take note of an evaluation; refuse more of them than were accounted for."""
        if self._evaluated.get(key, 0) >= most:
            raise UserError(
                f"privacy: {most} evaluations were accounted for and have been sent, no more of "
                "them in this job: start another run"
            )
        self._evaluated[key] = self._evaluated.get(key, 0) + 1

    def batches(self, algorithm: Algorithm, rows: int) -> Callable[[Request], Drawn]:
        """Batches that nobody else can know: a Poisson sample, or `batch` rows per step."""
        return self._poisson(algorithm, rows) if algorithm.places else self._fixed(algorithm, rows)

    def _poisson(self, algorithm: Algorithm, rows: int) -> Callable[[Request], Drawn]:
        places = algorithm.places

        def draw(request: Request) -> Drawn:
            del request
            chosen = self.entropy.chosen(rows, algorithm.batch)[:places]
            index = np.zeros((1, places), np.int32)
            index[0, : len(chosen)] = chosen
            return Drawn(index, np.arange(places)[None] < len(chosen))

        return draw

    def _fixed(self, algorithm: Algorithm, rows: int) -> Callable[[Request], Drawn]:
        in_pass = rows // algorithm.batch

        def draw(request: Request) -> Drawn:
            del request
            passes = -(-algorithm.steps // in_pass)
            used = in_pass * algorithm.batch
            order = np.concatenate([self.entropy.permutation(rows)[:used] for _ in range(passes)])
            return Drawn(order[None, : algorithm.steps * algorithm.batch].astype(np.int32))

        return draw


def _fingerprint(request: Request) -> bytes:
    """A digest of all that the server asked for."""
    found = hashlib.sha256()
    for leaf in jax.tree.leaves((request.round, request.w, request.weights, request.average)):
        found.update(np.asarray(leaf).tobytes())
    return found.digest()
