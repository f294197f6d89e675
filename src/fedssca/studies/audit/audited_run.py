"""A run that is built but not trained: its first batches, and what an observer can compute.

The networks mlp, without bottoms, and linear begin with a linear layer h = W_1 x. Let delta_n be
the gradient of the terms of sample n with respect to h, and t_n the gradient with respect to w_0.
Apart from parts that the server knows anyway, the message of a client is linear in the gradients of
its samples:

    sum_n a_n (t_n, delta_n x_n'),        a_n = N_i / (B N).

An observer knows w, the problem and the method, and can compute this message for any guessed rows.
`AuditedRun.gradients` computes (t_n, delta_n) of single rows; `AuditedRun.message` calls the code
of the method itself.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from fedssca.data import Columns, Dataset, Rows
from fedssca.data.sampling import batch_indices
from fedssca.errors import UserError
from fedssca.methods.algorithm import Algorithm, Message, Request
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.run.build import build, load_dataset, plan, problem_of, share_out
from fedssca.run.config import Config
from fedssca.run.schema import PrivacySettings

__all__ = ["AuditedRun", "BatchRows", "Gradients", "NoiseSetting", "set_up"]

KINDS = 64
"""The largest number of combinations of the label and further columns that are distinguished."""


class NoiseSetting(NamedTuple):
    """Clipping, and Gaussian noise relative to the clipping norm."""

    clip: float
    """The clipping norm C."""
    multiplier: float
    """The noise standard deviation in units of C; 0 means clipping without noise."""
    unit: str = "sample"
    """What is clipped: the gradient of a "sample", or the message of a "client"."""


class BatchRows(NamedTuple):
    """The rows behind one message."""

    x: np.ndarray
    """The features as the network receives them, scaled, of shape (n, P)."""
    kind: np.ndarray
    """The index into `AuditedRun.kinds` of each row, of shape (n,)."""
    weight: np.ndarray
    """The weights a_n, of shape (n,)."""
    batch: Batch
    """The same rows in the form that the method receives."""


class Gradients(NamedTuple):
    """The gradients of single rows with weight 1, for each of the m gradients in a message."""

    top: Array
    """The gradients t_n with respect to w_0, of shape (n, m, d_0)."""
    delta: Array
    """The gradients delta_n with respect to h, of shape (n, m, J)."""


@dataclasses.dataclass(frozen=True, eq=False)
class AuditedRun:
    """Everything from which the messages of a run are computed."""

    config: Config
    dataset: Dataset
    clients: Rows | Columns
    problem: Problem
    algorithm: Algorithm
    request: Request
    """What the server publishes in round 1."""
    whole: Problem
    """The same problem for one party with all columns: its head is the network above h."""
    mix: np.ndarray
    """The (m, K) matrix of the mixtures of the K terms' gradients in a message of weight 1."""
    leaf: str
    """The name of the gradients in a message: "gradient", or "change" if clients update w."""
    kinds: dict[str, np.ndarray]
    """The combinations of label and further columns that occur in the data."""
    noise: NoiseSetting | None
    """The clipping and noise of the configuration."""

    @property
    def horizontal(self) -> bool:
        """Whether clients hold rows."""
        return isinstance(self.clients, Rows)

    @property
    def first(self) -> np.ndarray:
        """The weights W_1 of the first layer, of shape (J, P)."""
        width = self.dataset.train["x"].shape[1]
        return np.asarray(self.request.w[self._split.blocks[1]], float).reshape(-1, width)

    @property
    def w0(self) -> Array:
        """The parameters above the first layer."""
        return self.request.w[self._split.blocks[0]]

    @property
    def _split(self) -> Any:
        assert self.whole.vertical is not None
        return self.whole.vertical

    @property
    def unit(self) -> float:
        """The norm in a message of a gradient of norm 1: the step size if changes of w are sent."""
        return float(np.abs(self.mix).max()) if self.leaf == "change" else 1.0

    @cached_property
    def scalars(self) -> int:
        """The count of numbers in a message besides its vectors."""
        batch = {name: jnp.asarray(column) for name, column in self.batch_rows([0]).batch.items()}
        sent = jax.eval_shape(
            lambda b: self.algorithm.reply(self.problem.terms, self.request, b), batch
        )
        return sum(leaf.size for leaf in jax.tree.leaves(sent.scalars))

    @property
    def boxed(self) -> bool:
        """Whether features lie between 0 and 1, as in images; an observer knows that."""
        x = self.dataset.train["x"]
        return self.dataset.scale != 1 and bool(x.min() >= 0)

    def batch_rows(self, clients: list[int], round_: int = 1) -> BatchRows:
        """Return the rows that these clients use in a round, E B of each."""
        parts = [self._own(number, round_) for number in clients]
        batch = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        return self.rows(batch)

    def rows(self, batch: Batch) -> BatchRows:
        """Return any rows of a batch with the column "weight"."""
        x = np.asarray(batch["x"], float) * self.dataset.scale
        return BatchRows(x, self._kind(batch), np.asarray(batch["weight"], float), batch)

    def nonmembers(self, count: int) -> BatchRows:
        """Return test rows: from the same distribution, but in no batch."""
        test = self.dataset.test
        keep = np.random.default_rng(self.config.run.seed).permutation(len(test["y"]))[:count]
        batch: Batch = {name: column[np.sort(keep)] for name, column in test.items()}
        rows = len(batch["y"])
        return self.rows(batch | {"client": np.zeros(rows, np.int32), "weight": np.full(rows, 1.0)})

    def message(self, batch: Batch, method: Algorithm | None = None) -> Message:
        """Return what the method sends for a batch, without what the server already knows."""
        columns = {name: jnp.asarray(column) for name, column in batch.items()}
        return self._message((method or self.algorithm).reply, self.request, columns)

    @partial(jax.jit, static_argnums=(0, 1))
    def _message(self, reply: Any, request: Request, batch: Batch) -> Message:
        terms = self.problem.terms
        sent = reply(terms, request, batch)
        still = reply(lambda w, b: 0 * terms(w, b) + 0 * w[0], request, batch)
        return jax.tree.map(jnp.subtract, sent, still)

    def blocks(self, message: Message) -> tuple[np.ndarray, np.ndarray]:
        """Return the gradients in a message: of w_0, (m, d_0), and of W_1, (m J, P)."""
        leaf = np.atleast_2d(np.asarray(message.vectors[self.leaf]))
        top, first = (leaf[:, positions] for positions in self._split.blocks[:2])
        return top, first.reshape(-1, self.dataset.train["x"].shape[1])

    def gradients(self, h: Array, belief: Array) -> Gradients:
        """Return the gradients of rows with h (n, J) and the probability belief[:, k] of kind k."""
        return self._gradients(self.w0, h, belief)

    @partial(jax.jit, static_argnums=0)
    def _gradients(self, w0: Array, h: Array, belief: Array) -> Gradients:
        table = {name: jnp.asarray(column) for name, column in self.kinds.items()}
        mix, count = jnp.asarray(self.mix), len(self.kinds["y"])

        def of(w0: Array, one: Array, odds: Array) -> Array:
            alike = jnp.broadcast_to(one, (count, one.size))
            return mix @ (self._split.head(w0, [alike], table) @ odds)

        top, delta = jax.vmap(jax.jacrev(of, (0, 1)), (None, 0, 0))(w0, h, belief)
        return Gradients(top, delta)

    def _own(self, number: int, round_: int) -> Batch:
        if isinstance(self.clients, Columns):
            (rows,) = self._indices(round_)
            held, share = self.clients.columns, 1.0
        else:
            rows = self._indices(round_)[number]
            held = self.clients.client(number)
            share = self.clients.sizes[number] / self.clients.total
        batch: Batch = {name: column[rows] for name, column in held.items()}
        batch["client"] = np.full(len(rows), number, np.int32)
        batch["weight"] = np.full(len(rows), share / self.algorithm.batch)
        return batch

    def _indices(self, round_: int) -> np.ndarray:
        """Return the indices of the rows that each client, or all parties, use in a round."""
        return np.asarray(self._draw(jnp.asarray(round_, jnp.int32)))

    @partial(jax.jit, static_argnums=0)
    def _draw(self, round_: Array) -> Array:
        seed, batch, steps = self.config.run.seed, self.algorithm.batch, self.algorithm.steps
        if isinstance(self.clients, Columns):
            everybody = np.zeros(1, np.int32), np.array([self.clients.total])
            return batch_indices(seed, round_, *everybody, batch)
        sizes = np.array(self.clients.sizes)
        return batch_indices(seed, round_, np.arange(len(sizes)), sizes, batch, steps)

    def _kind(self, batch: Batch) -> np.ndarray:
        names = list(self.kinds)
        codes = np.stack([np.asarray(batch[name], float) for name in names], axis=1)
        known = np.stack([self.kinds[name].astype(float) for name in names], axis=1)
        return np.abs(codes[:, None] - known[None]).sum(-1).argmin(1)


def set_up(config: Config) -> AuditedRun:
    """Build a run in double precision without protection; nothing is trained."""
    if config.model.joins or config.model.own:
        raise UserError(
            "an audit needs a network that begins with a layer linear in the features: mlp without "
            "bottom, or linear"
        )
    bare = dataclasses.replace(
        config, privacy=PrivacySettings(), run=dataclasses.replace(config.run, precision="float64")
    )
    dataset = load_dataset(bare)
    clients = share_out(bare.data, dataset, bare.run.seed)
    # The message of one step does not depend on step sizes. With local steps it does, so they
    # must be those of the run.
    probed = bare.algorithm.local_steps > 1
    job = build(bare, dataset, clients) if probed else plan(bare, dataset, clients)
    width = dataset.train["x"].shape[1]
    whole = problem_of(bare, dataset, clients, [np.arange(width)])
    request = job.algorithm.request(job.algorithm.init(_point(job.problem)))
    leaf, mix = _mix(job.problem, job.algorithm, request._replace(turnout=()))
    return AuditedRun(
        config=dataclasses.replace(job.config, privacy=config.privacy),
        dataset=dataset,
        clients=clients,
        problem=job.problem,
        algorithm=job.algorithm,
        request=request._replace(turnout=()),
        whole=whole,
        mix=mix,
        leaf=leaf,
        kinds=_kinds(dataset.train),
        noise=_noise(config, dataset, clients),
    )


def _noise(config: Config, dataset: Dataset, clients: Rows | Columns) -> NoiseSetting | None:
    """Return the clipping and noise of the section [privacy]; invalid settings are UserErrors."""
    asked = plan(config, dataset, clients).noise
    said = config.privacy
    if not said.clip:
        return None
    return NoiseSetting(said.clip, asked.ledger.sigma if asked and asked.ledger else 0.0, said.unit)


def _point(problem: Problem) -> Array:
    """Return the start of the run, or a random point for models that start at 0.

    At 0 all samples of a class have the same delta, and a message shows only their sum. A verdict
    at that point would be too good for later rounds.
    """
    if np.any(np.asarray(problem.start)):
        return problem.start
    drawn = np.random.default_rng(0).standard_normal(problem.dimension)
    return jnp.asarray(drawn / np.sqrt(problem.dimension), problem.start.dtype)


def _mix(problem: Problem, algorithm: Algorithm, request: Request) -> tuple[str, np.ndarray]:
    """Return which mixtures of the terms' gradients are sent, found with terms of known slopes."""
    count = problem.combine.shape[1]
    rows = algorithm.batch * algorithm.steps
    batch: Batch = {"weight": jnp.full(rows, 1 / algorithm.batch, request.w.dtype)}

    def response(slopes: np.ndarray) -> dict[str, Array]:
        def terms(w: Array, batch: Batch) -> Array:
            values = jnp.asarray(slopes, w.dtype) * w.sum()
            return jnp.broadcast_to(values[:, None], (count, len(batch["weight"])))

        return algorithm.reply(terms, request, batch).vectors

    still = response(np.zeros(count))
    # Every local step adds the same, so the rows of all steps have the total weight `steps`.
    leaf = next(name for name in ("gradient", "change") if name in still)
    moved = [response(row)[leaf] - still[leaf] for row in np.eye(count)]
    columns = [np.atleast_2d(np.asarray(each))[:, 0] / algorithm.steps for each in moved]
    return leaf, np.stack(columns, axis=1)


def _kinds(train: dict[str, Any]) -> dict[str, np.ndarray]:
    """Return the distinct combinations of the label and the further columns."""
    names = ["y", *(name for name in train if name not in ("x", "y"))]
    table = np.stack([np.asarray(train[name], float) for name in names], axis=1)
    found, counts = np.unique(table, axis=0, return_counts=True)
    found = found[np.sort(np.argsort(-counts)[:KINDS])]
    kinds = {n: found[:, i].astype(train[n].dtype) for i, n in enumerate(names)}
    return kinds | {"client": np.zeros(len(found), np.int32)}
