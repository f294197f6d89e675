"""A submitter asks for more than a site wants to give: tiny batches, few sites, endless jobs.

Until now a site had one switch, `hidden`. Batches of one row, sums over two sites, masks with two
neighbours, any epsilon and any number of jobs could not be refused. Now its [limits] do that, with
defaults that stop the worst, and its ledger counts across jobs, also when processes are killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedssca.deploy.site.ledger import DataLedger, ledger_of
from fedssca.deploy.site.limits import refusals
from fedssca.deploy.site.raw_table import read_source
from fedssca.deploy.site.refusal import LimitRefused
from fedssca.privacy.noise.accountant import Release
from fedssca.privacy.noise.ledger import Spending
from fedssca.run.config import parse
from tests.attacks.clinic import BASE, HIDDEN, ask_census, clinics, seen

NAMES = [f"site-{i}" for i in range(1, 11)]
RATES = "problem.constraint=[{kind = 'recall', limit = 0.2, positive = 'ill'}]"
GREED = {
    "batch": (["algorithm.batch=1"], "", "limits.least_batch = 10"),
    "one site": (["algorithm.cohort=1"], "", "limits.least_sites = 2"),
    "cohort": (["algorithm.cohort=2"], "least_sites = 3", "limits.least_sites = 3"),
    "small sums": (
        [HIDDEN, "algorithm.cohort=3", "privacy.threshold=0.6"],
        "least_sites = 3",
        "limits.least_sites = 3",
    ),
    "neighbours": ([HIDDEN, "privacy.neighbours=2"], "", "limits.least_neighbours = 3"),
    "rounds": (["algorithm.rounds=20000"], "", "limits.most_rounds = 10000"),
    "constraint": ([RATES], 'constraints = ["loss"]', 'limits.constraints = ["loss"]'),
    "no secure sum": ([], "secure_sum = true", "limits.secure_sum = true"),
    "no noise": ([], "noise = true", "limits.noise = true"),
    "no epsilon": ([], "most_epsilon = 2", "limits.most_epsilon = 2.0"),
    "epsilon": (
        ["privacy.clip=1.0", "privacy.epsilon=8.0"],
        "most_epsilon = 2",
        "limits.most_epsilon = 2.0",
    ),
}


@pytest.mark.parametrize("greed", GREED)
def test_a_greedy_config_is_refused_by_its_limit(greed: str, tmp_path: Path) -> None:
    settings, limits, said = GREED[greed]
    source = read_source(clinics(tmp_path, f"[limits]\n{limits}\n")[0])
    lines = [str(each) for each in refusals(parse(BASE, settings), NAMES, source)]
    assert any(line.startswith(f"refused by {said} in its site.toml: ") for line in lines), lines
    honest = parse(BASE, [HIDDEN, "privacy.clip=1.0", "privacy.epsilon=1.0"])
    assert not list(refusals(honest, NAMES, source))


def test_a_refusal_comes_before_the_data_are_read(tmp_path: Path) -> None:
    """It names the limit; the only bytes that leave are this line."""
    files = clinics(tmp_path)
    (tmp_path / "0.csv").unlink()
    with pytest.raises(Exception, match=r"site-1: refused by limits\.least_batch = 10 in its site"):
        ask_census(files, ["algorithm.batch=1"], tmp_path / "run")
    assert len(seen(tmp_path / "run")) < 3 * 300


def test_jobs_are_counted_across_processes(tmp_path: Path) -> None:
    files = clinics(tmp_path, "[limits]\nmost_jobs = 2\n")
    for run in (b"1" * 16, b"2" * 16, b"2" * 16):
        ask_census(files, [], tmp_path / run.hex(), run)
    with pytest.raises(Exception, match=r"refused by limits\.most_jobs = 2"):
        ask_census(files, [], tmp_path / "third", b"3" * 16)


def test_epsilon_of_jobs_is_that_of_all_their_messages(tmp_path: Path) -> None:
    """Those of a job that is resumed count again: it may send all of its messages once more."""
    dp = pytest.importorskip("dp_accounting")
    spent = Spending("sample", 1e-5, (Release(10.0, 4),))

    def together(jobs: int) -> float:
        return float(dp.get_epsilon_gaussian(10.0 / (4 * jobs) ** 0.5, 1e-5))

    file = clinics(tmp_path, f"[limits]\nmost_epsilon = {together(3) + 0.001}\n")[0]
    for job in ("one", "two", "two"):
        ledger = DataLedger(ledger_of(file), read_source(file))  # of another process
        ledger.add_job(job)
        ledger.spend(job, spent)
        ledger.spend(job, spent)  # the next message of the same job in the same process
    ledger.add_job("three")
    with pytest.raises(LimitRefused, match="most_epsilon"):
        ledger.spend("three", spent)
    (tmp_path / "0.csv").write_text((tmp_path / "1.csv").read_text())
    again = DataLedger(ledger_of(file), read_source(file))  # other rows of the same source
    assert again.entry()["epsilon"] == pytest.approx(together(3))
    assert again.entry()["jobs"]["one"]["epsilon"] == pytest.approx(together(1))


KILLED = """
import os, signal, sys
from pathlib import Path
from fedssca.privacy.noise.accountant import Release
from fedssca.privacy.noise.ledger import Spending
from fedssca.deploy.site.ledger import DataLedger, ledger_of
from fedssca.deploy.site.raw_table import read_source
file = Path(sys.argv[1])
ledger = DataLedger(ledger_of(file), read_source(file))
ledger.add_job("job")
ledger.spend("job", Spending("sample", 1e-5, (Release(4.0, 1),)))
for sent in range(1, 6):
    ledger.add_round("job")
    print(sent, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_process_has_counted_what_it_sent(tmp_path: Path) -> None:
    """And what its successor may send is counted together with it."""
    dp = pytest.importorskip("dp_accounting")
    file = clinics(tmp_path, "[limits]\nmost_rounds = 20\nmost_epsilon = 2\n")[0]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(file)], capture_output=True, env=environment, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    ledger = DataLedger(ledger_of(file), read_source(file))
    job = ledger.entry()["jobs"]["job"]
    assert job["rounds"] >= int(done.stdout.split()[-1])
    assert job["epsilon"] == pytest.approx(dp.get_epsilon_gaussian(4.0, 1e-5))
    for _ in range(20 - job["rounds"]):
        ledger.add_round("job")
    with pytest.raises(LimitRefused, match=r"limits\.most_rounds = 20"):
        ledger.add_round("job")
    assert json.loads(ledger_of(file).read_text())


def test_without_a_ledger_nothing_is_sent(tmp_path: Path) -> None:
    """What cannot be counted does not leave; the line tells no path of the site."""
    files = clinics(tmp_path)
    ledger_of(files[0]).mkdir()
    with pytest.raises(Exception, match="site-1: the ledger of this site cannot be read") as error:
        ask_census(files, [], tmp_path / "run")
    assert str(tmp_path) not in str(error.value)
