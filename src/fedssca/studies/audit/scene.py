"""A run set up without training: its first batches, and what an observer knows of the method.

All ready-made networks begin with a linear layer, h = W_1 x. With delta_n the gradient of sample
n's terms with respect to h, and t_n that with respect to w_0, what a client sends is, but for parts
that the server knows anyway, linear in the gradients of its samples:

    sum_n a_n (t_n, delta_n x_n'),        a_n = N_i / (B N),

so an observer, who knows w, the problem and the method, can compute it for any rows that he
guesses. `Scene.gradients` is that guess for single rows; `Scene.message` is the method's own code.
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
from fedssca.methods.algorithm import Algorithm, Message, Request
from fedssca.problem.problem import Array, Batch, Problem
from fedssca.run.build import build, load_dataset, plan, problem_of, share_out
from fedssca.run.config import Config
from fedssca.run.schema import PrivacySettings

__all__ = ["Gradients", "Group", "Noise", "Scene", "set_up"]

KINDS = 64
"""At most so many combinations of label and further columns are told apart."""


class Noise(NamedTuple):
    """Clipping, and noise in units of what is clipped to; `multiplier` 0: clipping only."""

    clip: float
    multiplier: float
    unit: str = "sample"


class Group(NamedTuple):
    """Rows behind one message: x as the network takes it, label and the like as a number."""

    x: np.ndarray
    """(n, P), scaled."""
    kind: np.ndarray
    """(n,) which of `Scene.kinds`."""
    weight: np.ndarray
    """(n,) a_n."""
    batch: Batch
    """The same as the method takes it."""


class Gradients(NamedTuple):
    """Of single rows, for each of the m gradients in a message, each weighing 1."""

    top: Array
    """t_n, (n, m, d_0)."""
    delta: Array
    """delta_n, (n, m, J)."""


@dataclasses.dataclass(frozen=True, eq=False)
class Scene:
    """All that views are computed from; `request` is what the server publishes in round 1."""

    config: Config
    dataset: Dataset
    clients: Rows | Columns
    problem: Problem
    algorithm: Algorithm
    request: Request
    whole: Problem
    """The same problem for one party with all columns: its head is the network above h."""
    mix: np.ndarray
    """(m, K): which mixtures of the K terms' gradients a message holds, per unit of weight."""
    leaf: str
    """The name of the gradients in a message: "gradient", or "change" where w moves."""
    kinds: dict[str, np.ndarray]
    """The combinations of label and further columns that occur."""
    noise: Noise | None
    """What the config asks for."""

    @property
    def horizontal(self) -> bool:
        """Clients hold rows."""
        return isinstance(self.clients, Rows)

    @property
    def first(self) -> np.ndarray:
        """W_1, (J, P)."""
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
        """What a gradient of length 1 comes to in a message: the rate, where w's change is sent."""
        return float(np.abs(self.mix).max()) if self.leaf == "change" else 1.0

    @cached_property
    def scalars(self) -> int:
        """Numbers in a message beside its vectors."""
        batch = {name: jnp.asarray(column) for name, column in self.group([0]).batch.items()}
        sent = jax.eval_shape(
            lambda b: self.algorithm.reply(self.problem.terms, self.request, b), batch
        )
        return sum(leaf.size for leaf in jax.tree.leaves(sent.scalars))

    @property
    def boxed(self) -> bool:
        """Features lie between 0 and 1 (images): an observer knows that too."""
        x = self.dataset.train["x"]
        return self.dataset.scale != 1 and bool(x.min() >= 0)

    def group(self, clients: list[int], round_: int = 1) -> Group:
        """The rows that these clients use in a round, E B of each."""
        parts = [self._own(number, round_) for number in clients]
        batch = {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}
        return self.rows(batch)

    def rows(self, batch: Batch) -> Group:
        """Any rows (with "weight") as a group."""
        x = np.asarray(batch["x"], float) * self.dataset.scale
        return Group(x, self._kind(batch), np.asarray(batch["weight"], float), batch)

    def strangers(self, count: int) -> Group:
        """Test rows: drawn alike, but in no batch."""
        test = self.dataset.test
        keep = np.random.default_rng(self.config.run.seed).permutation(len(test["y"]))[:count]
        batch: Batch = {name: column[np.sort(keep)] for name, column in test.items()}
        rows = len(batch["y"])
        return self.rows(batch | {"client": np.zeros(rows, np.int32), "weight": np.full(rows, 1.0)})

    def message(self, batch: Batch, method: Algorithm | None = None) -> Message:
        """What the method sends for a batch, less what the server could have said itself."""
        columns = {name: jnp.asarray(column) for name, column in batch.items()}
        return self._message((method or self.algorithm).reply, self.request, columns)

    @partial(jax.jit, static_argnums=(0, 1))
    def _message(self, reply: Any, request: Request, batch: Batch) -> Message:
        terms = self.problem.terms
        said = reply(terms, request, batch)
        still = reply(lambda w, b: 0 * terms(w, b) + 0 * w[0], request, batch)
        return jax.tree.map(jnp.subtract, said, still)

    def blocks(self, message: Message) -> tuple[np.ndarray, np.ndarray]:
        """The gradients in a message: above the first layer (m, d_0), and of it (m J, P)."""
        leaf = np.atleast_2d(np.asarray(message.vectors[self.leaf]))
        top, first = (leaf[:, positions] for positions in self._split.blocks[:2])
        return top, first.reshape(-1, self.dataset.train["x"].shape[1])

    def gradients(self, h: Array, belief: Array) -> Gradients:
        """Of rows with hidden sums h (n, J) that are of kind k with probability belief[:, k]."""
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
        """The rows that each client (or all parties together) use in a round."""
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


def set_up(config: Config) -> Scene:
    """Build a run in double precision, with nothing hidden and nothing trained."""
    bare = dataclasses.replace(
        config, privacy=PrivacySettings(), run=dataclasses.replace(config.run, precision="float64")
    )
    dataset = load_dataset(bare)
    clients = share_out(bare.data, dataset, bare.run.seed)
    # Step sizes leave the message of one step as it is; local steps have to be the run's own.
    probed = bare.algorithm.local_steps > 1
    job = build(bare, dataset, clients) if probed else plan(bare, dataset, clients)
    width = dataset.train["x"].shape[1]
    whole = problem_of(bare, dataset, clients, [np.arange(width)])
    request = job.algorithm.request(job.algorithm.init(_point(job.problem)))
    leaf, mix = _mix(job.problem, job.algorithm, request._replace(turnout=()))
    return Scene(
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


def _noise(config: Config, dataset: Dataset, clients: Rows | Columns) -> Noise | None:
    """What [privacy] comes to for this run; what cannot be is a UserError."""
    asked = plan(config, dataset, clients).noise
    said = config.privacy
    if not said.clip:
        return None
    return Noise(said.clip, asked.ledger.sigma if asked and asked.ledger else 0.0, said.unit)


def _point(problem: Problem) -> Array:
    """Where the run starts; models that start at 0 are looked at where they will be later.

    At 0 all samples of a class have the same delta and only their sum shows: a false comfort.
    """
    if np.any(np.asarray(problem.start)):
        return problem.start
    drawn = np.random.default_rng(0).standard_normal(problem.dimension)
    return jnp.asarray(drawn / np.sqrt(problem.dimension), problem.start.dtype)


def _mix(problem: Problem, algorithm: Algorithm, request: Request) -> tuple[str, np.ndarray]:
    """Which mixtures of the terms' gradients are sent: read off from terms with known ones."""
    count = problem.combine.shape[1]
    rows = algorithm.batch * algorithm.steps
    batch: Batch = {"weight": jnp.full(rows, 1 / algorithm.batch, request.w.dtype)}

    def response(slopes: np.ndarray) -> dict[str, Array]:
        def terms(w: Array, batch: Batch) -> Array:
            values = jnp.asarray(slopes, w.dtype) * w.sum()
            return jnp.broadcast_to(values[:, None], (count, len(batch["weight"])))

        return algorithm.reply(terms, request, batch).vectors

    still = response(np.zeros(count))
    # Every local step adds as much: the rows of all of them weigh `steps` together.
    leaf = next(name for name in ("gradient", "change") if name in still)
    moved = [response(row)[leaf] - still[leaf] for row in np.eye(count)]
    columns = [np.atleast_2d(np.asarray(each))[:, 0] / algorithm.steps for each in moved]
    return leaf, np.stack(columns, axis=1)


def _kinds(train: dict[str, Any]) -> dict[str, np.ndarray]:
    """Distinct labels, with the further columns of a sample where there are any."""
    names = ["y", *(name for name in train if name not in ("x", "y"))]
    table = np.stack([np.asarray(train[name], float) for name in names], axis=1)
    found, counts = np.unique(table, axis=0, return_counts=True)
    found = found[np.sort(np.argsort(-counts)[:KINDS])]
    kinds = {n: found[:, i].astype(train[n].dtype) for i, n in enumerate(names)}
    return kinds | {"client": np.zeros(len(found), np.int32)}
