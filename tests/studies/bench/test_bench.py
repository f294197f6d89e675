"""`fedssca bench`: what it promises to print, and what peers may do wrong without stopping it."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest

from fedssca.cli import main as cli
from fedssca.deploy.engines import nvflare
from fedssca.errors import UserError
from fedssca.problem import models as classifier_models
from fedssca.studies.bench import (
    align,
    costs,
    deep,
    extras,
    growth,
    limit,
    measure,
    noise,
    peers,
    report,
    sent_bytes,
    sites,
    sums,
    task,
    timing,
)
from fedssca.studies.bench.child import MARK, last_line, run_child
from fedssca.studies.bench.venv import environment_folder, prepare

SMALL = peers.Plan(clients=2, rows=20, batch=5, rounds=12, warmup=2, loss_rows=40, seconds=0.0)


def quiet(text: str) -> None:
    del text


@pytest.fixture(scope="module")
def data() -> task.Images:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (200, task.FEATURES), dtype=np.uint8)
    return task.Images("random", x, np.arange(200, dtype=np.int32) % 10)


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["fedssca", "bench", *map(str, arguments)])
    with pytest.raises(SystemExit) as end:
        cli.main()
    seen = capsys.readouterr()
    return int(end.value.code or 0), seen.out, seen.err


# The command.


def test_help_has_an_example(monkeypatch, capsys) -> None:
    code, out, _ = run(monkeypatch, capsys, "--help")
    assert code == 0
    assert "Example: fedssca bench" in out


def test_an_unknown_section_is_one_line(monkeypatch, capsys) -> None:
    code, out, err = run(monkeypatch, capsys, "--only", "limits")
    assert (code, out) == (2, "")
    assert err == "fedssca: --only limits: did you mean 'limit'?\n"


def test_limit_as_json(monkeypatch, capsys, tmp_path: Path, data: task.Images) -> None:
    monkeypatch.setattr(measure, "images", lambda: data)
    monkeypatch.setattr(limit, "BATCHES", (2, 10))
    few = {"costs": {"a": 1.5}, "costs_seconds": {}, "compile": {"failed": "no"}}
    monkeypatch.setattr(measure, "measure_costs", lambda *_: few)
    code, out, _ = run(
        monkeypatch, capsys, "--only", "limit", "--quick", "--json", "--out", tmp_path / "deep/out"
    )
    assert code == 0
    found = json.loads(out)
    assert list(found["limit"]) == ["2", "10"]
    assert all(ratio > 0 for ratio in found["limit"].values())
    for row in found["seconds"].values():
        assert row["best"] <= row["median"]
        assert len(row["runs"]) == 2
    assert found["machine"]["versions"]["jax"]
    names = {path.name for path in (tmp_path / "deep/out").iterdir()}
    assert names == {"bench.json", "limit.csv", "limit.png"}
    report.print_found(found)
    assert "a round / its two matrix products" in capsys.readouterr().out


def test_noise_and_start_as_json(monkeypatch, capsys, tmp_path: Path, data: task.Images) -> None:
    monkeypatch.setattr(measure, "images", lambda: data)
    small = {name: lambda: classifier_models.mlp(task.FEATURES, 4, 10) for name in deep.DEEP}
    monkeypatch.setattr(noise, "DEEP", small)
    monkeypatch.setattr(noise, "BATCH", 5)
    for section in ("noise", "start"):
        code, out, _ = run(
            monkeypatch, capsys, "--only", section, "--quick", "--json", "--out", tmp_path
        )
        assert code == 0
        found = json.loads(out)
        ratios = found[section] if section == "noise" else {"start": found[section]}
        assert list(ratios) == (["mlp", "cnn"] if section == "noise" else ["start"])
        assert all(ratio > 0 for ratio in ratios.values())
        report.print_found(found)
        assert report.RATIOS[section] in capsys.readouterr().out
        assert (tmp_path / f"{section}.csv").is_file()


def test_bytes_to_an_accuracy(monkeypatch, capsys, tmp_path: Path) -> None:
    """The whole path on a small task: bytes of 8 bits are less than half of those of 32 bits."""
    small = sent_bytes.TASK.replace('"mnist"', '"digits"').replace("hidden = 128", "hidden = 8")
    runs = {name: sent_bytes.RUNS[name] for name in (sent_bytes.BASE, "momentum SGD, 8 bits")}
    monkeypatch.setattr(sent_bytes, "TASK", small)
    monkeypatch.setattr(sent_bytes, "RUNS", runs)
    present = SimpleNamespace(name="mnist", state="present")
    monkeypatch.setattr(sent_bytes, "status", lambda: [present])
    found = sent_bytes.measure_bytes(True, quiet)
    assert found["bytes"][sent_bytes.BASE] == 1
    assert found["bytes"]["momentum SGD, 8 bits"] < 0.7
    assert {path.name for path in report.save(found, tmp_path)} == {
        "bench.json",
        "bytes.csv",
        "bytes.png",
    }
    report.print_found(found)
    assert report.RATIOS["bytes"] in capsys.readouterr().out
    monkeypatch.setattr(sent_bytes, "status", list)
    with pytest.raises(UserError, match="fedssca data get mnist"):
        sent_bytes.measure_bytes(True, quiet)


def test_deep_networks_are_compared_with_pytorch(monkeypatch, data: task.Images) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed")
    monkeypatch.setattr(deep, "BATCH", 2)
    found = deep.measure_deep(data, 1, 0.0, quiet)
    assert list(found["deep"]) == list(found["deep_loop"]) == ["cnn", "mlp3"]


def test_the_promised_batches() -> None:
    assert limit.BATCHES == (10, 100, 6000)


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write to"):
        report.save({"machine": {}}, tmp_path / "file" / "out")


def test_without_a_clone_peers_are_refused_in_one_line(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr(peers, "SCRIPTS", tmp_path)
    with pytest.raises(UserError, match="needs a clone of the repository"):
        measure.measure_all(("peers",), None, True, quiet, quiet)


# What is measured.


def test_the_products_do_not_fade() -> None:
    for way in limit.products(100, 16):
        way(3)
    compiled = limit.products(100, 16)[0](3000)
    assert 1e-3 < float(np.abs(compiled).max()) < 1e3


def test_costs_compare_what_is_timed(data: task.Images) -> None:
    ways, pairs = costs._limits(data)
    assert all(name in ways for pair in pairs.values() for name in pair)
    assert len(pairs) == 5


def test_a_round_with_several_limits_runs(data: task.Images) -> None:
    for kind in ("exact", "steered"):
        shape = task.Shape(clients=2, rows=20, batch=2, hidden=4, limits=3, multipliers=kind)
        state = task.rounds(data, shape)(3)
        assert np.isfinite(state.w).all()
        assert state.multipliers.shape == (3,)


def test_compiling_is_timed_cold_and_warm() -> None:
    found = extras.compile_seconds()
    assert 0 < found["warm"]["first_round"] < found["cold"]["first_round"]


def test_turns_are_interleaved() -> None:
    seen: list[str] = []
    ways = {name: lambda n, name=name: seen.append(name) for name in "ab"}
    found = timing.interleave(ways, 3, 0.0, quiet)
    assert seen[-12:] == list("aabbaabbaabb"), "every turn is an untimed start and the timed rest"
    assert found["a"].best <= found["a"].median


# Peers, good and bad.

GOOD = """
import json, sys
given = json.load(open(sys.argv[1]))
print("noise")
print(json.dumps({"seconds": [0.5, 0.5], "startup": 1.0, "loss": LOSS, "versions": {}}))
print("more noise")
"""
BAD = {
    "crashes": ("raise SystemError('out of\\n luck')", "exit code 1: luck"),
    "garbage": ("print('{]')", "printed no result but: {]"),
    "silent": ("", "printed no result but: it said nothing"),
    "nan": ('print(\'{"seconds": [NaN], "startup": 1, "loss": 1}\')', "printed no result"),
}


def test_our_own_side_answers(data: task.Images) -> None:
    found = peers.measure(data, SMALL, 1, {}, quiet)
    assert found["peers"] == {}
    ours = found["peers_details"]["ours"]
    assert 0 < ours["seconds"] < 1
    assert 0 < found["peers_task"]["loss_tolerance"] < found["peers_task"]["loss"]


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_peers_train_the_same_network(
    network: str, tmp_path: Path, data: task.Images, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = dataclasses.replace(SMALL, network=network, hidden=9)
    files = peers.write_data(tmp_path, data, plan)
    if network == "cnn":
        pytest.importorskip("torch")
    monkeypatch.syspath_prepend(peers.folder())
    common = importlib.import_module("common")
    given = common.Settings(**files, **dataclasses.asdict(plan), seed=0, launched=0.0)
    loaded = common.load(given)
    problem = classifier_models.classifier(deep.network_of(network, 9))
    batch = {"x": data.x[: len(loaded.y)], "y": data.y[: len(loaded.y)]}
    ours = problem.scores(problem.start, batch)
    np.testing.assert_allclose(common.scores(loaded.w, loaded.x), ours, rtol=2e-4, atol=2e-5)
    slopes = jax.grad(lambda w: problem.terms(w, batch).mean())(problem.start)
    theirs = common.gradient(loaded.w, loaded.x, loaded.y)
    assert np.linalg.norm(slopes) == pytest.approx(
        np.sqrt(sum(float((g**2).sum()) for g in theirs)), rel=1e-3
    )


def test_peers_that_fail_do_not_stop_the_others(tmp_path: Path, data: task.Images) -> None:
    scripts = {name: text for name, (text, _) in BAD.items()}
    scripts["good"] = GOOD.replace("LOSS", "0.51")
    scripts["wrong"] = GOOD.replace("LOSS", "0.6")
    scripts["ours"] = GOOD.replace("LOSS", '0.5, "losses": [0.5, 0.5, 0.501]').replace(
        "0.5, 0.5", "0.1", 1
    )
    commands = {}
    for name, text in scripts.items():
        (tmp_path / f"{name}.py").write_text(text)
        commands[name] = [sys.executable, str(tmp_path / f"{name}.py")]
    ours, absent = commands.pop("ours"), {"absent": "not installed: no"}
    found = peers.measure(data, SMALL, 2, commands, quiet, ours=ours, failures=absent)
    assert found["peers"] == {"good": pytest.approx(5.0)}
    assert len(found["peers_details"]["good"]["cycles"]) == 2
    assert found["peers_failed"]["absent"] == "not installed: no"
    assert "is not ours" in found["peers_failed"]["wrong"]
    for name, (_, why) in BAD.items():
        assert found["peers_failed"][name].startswith(why)
    report.print_found(found)
    written = report.save(found, tmp_path / "out")
    assert {path.name for path in written} == {"bench.json", "peers.csv", "peers.png"}


def test_a_peer_that_hangs_is_ended(tmp_path: Path) -> None:
    (tmp_path / "hangs.py").write_text("import time; time.sleep(100)")
    said = peers.run_peer([sys.executable, str(tmp_path / "hangs.py")], {}, tmp_path, 0.5)
    assert said == "no answer after 0.5 s"


def test_requirements_that_cannot_be_met_are_one_line(tmp_path: Path) -> None:
    wanted = tmp_path / "none.txt"
    wanted.write_text("./no-such-package-here\n")
    made = prepare(tmp_path / "venvs", "none", wanted)
    assert made.failure
    assert "\n" not in made.failure
    assert not (environment_folder(tmp_path / "venvs", "none", wanted) / "installed.json").exists()


# Nothing is left behind.

FAMILY = """
import os, subprocess, sys, time
code = "import time; time.sleep(600)"
subprocess.Popen([sys.executable, "-c", code])
subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
print("ready", flush=True)
time.sleep(HOW)
"""


def living(mark: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
        except OSError:
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@pytest.mark.parametrize("how", [0, 600])
def test_descendants_end_with_their_child(tmp_path: Path, how: int) -> None:
    script = tmp_path / "family.py"
    script.write_text(FAMILY.replace("HOW", str(how)))
    mine = f"family-{os.getpid()}-{how}"
    for seconds in (2, 20, 200):  # the children of the family are there before the time is over
        outcome = run_child([sys.executable, str(script)], seconds, os.environ | {"OWN": mine})
        if outcome.out:
            break
    assert outcome.code == (0 if how == 0 else None)
    assert last_line(outcome.out) == "ready"
    assert living(f"OWN={mine}") == []


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
def test_control_c_ends_the_child_too(tmp_path: Path) -> None:
    script, ready = tmp_path / "family.py", tmp_path / "ready"
    script.write_text(
        FAMILY.replace("HOW", "600").replace("print(", f"open({str(ready)!r}, 'w'); print(")
    )
    code = (
        "import sys; from fedssca.studies.bench.child import run_child\n"
        "try: run_child([sys.executable, sys.argv[1]], 600)\n"
        "except KeyboardInterrupt: sys.exit(130)\n"
    )
    mine = f"control-{os.getpid()}"
    env = {k: v for k, v in os.environ.items() if k != MARK} | {"OWN": mine}
    process = subprocess.Popen([sys.executable, "-c", code, str(script)], env=env)
    limit_ = time.monotonic() + 300
    while not ready.exists() and time.monotonic() < limit_:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(300) == 130
    assert living(f"OWN={mine}") == []


def test_growth_asks_only_peers_whose_environments_are_there(
    data: task.Images, tmp_path: Path
) -> None:
    assert growth._peers(data, tmp_path, False, quiet) == []


def test_secure_sums_and_alignments_are_measured(monkeypatch, capsys, tmp_path: Path) -> None:
    pytest.importorskip("cryptography")
    pytest.importorskip("rbcl")
    monkeypatch.setattr(sums, "NUMBERS", (5,))
    monkeypatch.setattr(align, "QUICK", ((30, 2), (20, 3)))
    code, out, _ = run(
        monkeypatch, capsys, "--only", "sums", "--quick", "--json", "--out", tmp_path
    )
    assert code == 0
    found = json.loads(out)
    assert [name.partition(", ")[2] for name in found["sums"]] == [
        "the first",
        "a later one",
        "30 vanish before they answer",
        "10 vanish after they answered",
    ]
    assert all(seconds > 0 for seconds in found["sums"].values())
    code, out, _ = run(monkeypatch, capsys, "--only", "psi", "--quick", "--out", tmp_path)
    assert code == 0
    assert "3 parties, 20 ids each" in out
    written = {file.name for file in tmp_path.iterdir()}
    assert {"sums.csv", "sums.png", "psi.csv", "psi.png"} <= written


def test_sites_are_measured(monkeypatch, capsys, tmp_path: Path) -> None:
    """Real processes: rounds and bare calls in turn, then memory at each row."""
    pytest.importorskip("nvflare")
    pytest.importorskip("cryptography")
    code, out, _ = run(
        monkeypatch, capsys, "--only", "sites", "--quick", "--json", "--out", tmp_path
    )
    assert code == 0
    found = json.loads(out)
    assert found["sites"]["sites"] == sites.QUICK[0]
    assert all(number > 0 for number in found["sites"].values())
    assert [row["round"] for row in found["sites_memory"]] == [5, 10, 15, 20]
    report.print_found(found)
    assert "megabytes per site" in capsys.readouterr().out
    assert (tmp_path / "sites.csv").is_file()


def test_without_nvflare_sites_are_refused_in_one_line(monkeypatch) -> None:
    monkeypatch.setattr(nvflare, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"deployment runs on NVFlare: pip install .*deploy"):
        measure.measure_all(("sites",), None, True, quiet, quiet)
