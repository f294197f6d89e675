"""Several runs about the same rows: one account, held against other accountants."""

from __future__ import annotations

import pytest

from fedssca.privacy.noise.accountant import Release, epsilon_of, epsilon_replaced
from fedssca.privacy.noise.ledger import Ledger, Spending, joint_epsilon

dp = pytest.importorskip("dp_accounting")
DELTA = 1e-5
POISSON = Release(1.2, 300, 0.02)
OTHER = Release(0.9, 100, 0.01)
GAUSSIAN = Release(15.0, 7)


def spending(*releases: Release, delta: float = DELTA, unit: str = "sample") -> Spending:
    return Spending(unit, delta, releases)


def composed(accountant: object, releases: tuple[Release, ...]) -> float:
    """epsilon by an accountant of dp_accounting, release by release."""
    for each in releases:
        noise = dp.GaussianDpEvent(each.sigma)
        event = dp.PoissonSampledDpEvent(each.rate, noise) if each.rate < 1 else noise
        accountant.compose(event, each.messages)  # type: ignore[attr-defined]
    return float(accountant.get_epsilon(DELTA))  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "runs",
    [
        [(POISSON,), (POISSON,)],
        [(POISSON, GAUSSIAN), (OTHER, GAUSSIAN)],
        [(GAUSSIAN,), (POISSON,), (OTHER,)],
    ],
)
def test_runs_compose_as_other_accountants_say(runs: list[tuple[Release, ...]]) -> None:
    """Not below the loss distributions of another program, not above Renyi and the plain sum."""
    every = tuple(release for run in runs for release in run)
    fine = dp.pld.PLDAccountant(value_discretization_interval=1e-4)
    found = joint_epsilon([spending(*run) for run in runs])
    exact, renyi = composed(fine, every), composed(dp.rdp.RdpAccountant(), every)
    assert 0.999 * exact <= found <= 1.01 * exact
    assert found <= renyi
    assert found < sum(joint_epsilon([spending(*run)]) for run in runs)


def test_one_run_is_as_its_own_account_says() -> None:
    ledger = Ledger(1.0, DELTA, "sample", 0.01, 200, evaluations=4, evaluation_sigma=30.0)
    assert joint_epsilon([ledger.spending()]) == ledger.exact()
    assert joint_epsilon([]) == 0


def test_a_plain_sum_can_be_below_the_truth_and_the_joint_account_is_not() -> None:
    """Each of a thousand runs alone has epsilon 0 at this delta; all together do not."""
    faint = spending(Release(50_000.0, 1))
    assert joint_epsilon([faint]) == 0
    together = joint_epsilon([faint] * 1000)
    assert together == pytest.approx(dp.get_epsilon_gaussian(50_000 / 1000**0.5, DELTA))
    assert together > 0.001


def test_the_smallest_delta_holds_for_all() -> None:
    mixed = joint_epsilon([spending(POISSON), spending(OTHER, delta=1e-8)])
    assert mixed == joint_epsilon([spending(POISSON, OTHER, delta=1e-8)])
    assert mixed > joint_epsilon([spending(POISSON, OTHER)])


def test_batches_of_a_fixed_size_count_as_replaced_rows() -> None:
    fixed = Release(3.0, 100, 1.0, (50, 1000))
    found = joint_epsilon([spending(fixed), spending(POISSON)])
    assert found == epsilon_replaced((fixed, POISSON), DELTA)
    assert found > joint_epsilon([spending(fixed)]) + 0.1


def test_rows_and_whole_clients_are_two_accounts() -> None:
    found = joint_epsilon([spending(POISSON), spending(GAUSSIAN, unit="client")])
    assert found == epsilon_of((POISSON,), DELTA / 2) + epsilon_of((GAUSSIAN,), DELTA / 2)
