"""The programs of a problem are made once, however many clients use them."""

from __future__ import annotations

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

import fedssca
from fedssca.evaluate.passes import full_passes
from fedssca.rounds.in_process import Local


def test_clients_of_different_sizes_share_one_program() -> None:
    traced = []

    def terms(w, batch):
        traced.append(batch["x"].shape)
        return jnp.square(batch["x"] @ w - batch["y"])[None]

    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(90, 3)), "y": rng.normal(size=90)}
    problem = fedssca.custom_problem(terms, jnp.zeros(3))
    algorithm = fedssca.sgd(problem, rate=fedssca.power(0.1, 0.1), batch=5)
    counts = []
    for sizes in ((90,), (20, 30, 40)):
        traced.clear()
        clients = fedssca.by_sample(data, len(sizes), sizes=list(sizes))
        local = Local(problem, clients, algorithm, seed=1)
        shapes_too = len(traced)
        local.advance(algorithm.init(problem.start), 2)
        counts.append(len(traced) - shapes_too)
    assert counts == [1, 0]


def test_another_problem_has_programs_of_its_own() -> None:
    problem = fedssca.custom_problem(lambda w, batch: batch["x"] @ w[None].T, jnp.zeros(3))
    assert full_passes(problem) is full_passes(problem)
    assert full_passes(replace(problem, notes=("another",))) is not full_passes(problem)
