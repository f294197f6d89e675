"""Configurations: defaults, --set, and errors that say what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedssca.errors import ConfigError, UserError
from fedssca.run.config import Config, absolute, embedded_default, nearest, parse, read, render
from fedssca.run.schema import ConstraintSettings, StepSettings

DEFAULT = embedded_default()
LIMITED = '[[problem.constraint]]\nkind = "loss"\nlimit = 0.2\n'


def refusal(text: str = "", *settings: str) -> str:
    with pytest.raises(UserError) as caught:
        parse(text, settings)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_empty_text_is_the_contract_defaults() -> None:
    config = parse("")
    assert config == Config()
    assert (config.data.name, config.data.split, config.data.clients) == ("digits", "sample", 10)
    assert (config.model.hidden, config.model.activation) == (128, "swish")
    assert (config.problem.objective, config.problem.penalty) == ("loss", 1e5)
    assert config.problem.l2 is None  # chosen by the run
    assert config.algorithm.rounds == 1000
    assert config.algorithm.multipliers is None  # chosen by the run
    open_ = (config.algorithm.rho, config.algorithm.gamma, config.algorithm.tau)
    assert open_ == (None, None, None)  # found by probing
    assert (config.run.seed, config.run.evaluate_every, config.run.checkpoint_every) == (0, 10, 100)


@pytest.mark.parametrize(
    "text",
    ["", DEFAULT, LIMITED * 2, "[problem]\npenalty = [1.0, 10.0]\n[data]\nsizes = [0.25, 0.75]"],
)
def test_render_is_complete_and_parses_back(text: str) -> None:
    config = parse(text)
    rendered = render(config)
    assert parse(rendered) == config
    for section in ("data", "model", "problem", "algorithm", "run"):
        assert f"[{section}]" in rendered
        for key, value in vars(getattr(config, section)).items():
            assert (f"{key} = " in rendered or f"{key}]" in rendered) == (value is not None)


@pytest.mark.parametrize(
    ("setting", "path", "value"),
    [
        ("algorithm.batch=7", "algorithm.batch", 7),
        ("algorithm.tau=1", "algorithm.tau", 1.0),
        ("problem.l2=1e-3", "problem.l2", 1e-3),
        ("data.name=mnist", "data.name", "mnist"),
        ('data.name="mnist"', "data.name", "mnist"),
        ("data.path=/some where/a=b.csv", "data.path", "/some where/a=b.csv"),
        (" run.seed = 3", "run.seed", 3),
        ("algorithm.rho.a=0.5", "algorithm.rho", StepSettings(0.5, 0.0)),
        ("algorithm.rate.alpha=0.4", "algorithm.rate", StepSettings(0.3, 0.4)),
        ("algorithm.tau=[1, 2]", "algorithm.tau", [1.0, 2.0]),
        (
            "algorithm.gamma={a=0.1, rise=20, cool=1}",
            "algorithm.gamma",
            StepSettings(0.1, rise=20, cool=1.0),
        ),
        ("algorithm.rho={a=0.5, alpha=0.2}", "algorithm.rho", StepSettings(0.5, 0.2)),
        ("algorithm.rho=0.5", "algorithm.rho", StepSettings(0.5, 0.0)),
        ("problem.constraint.0.limit=0.3", "problem.constraint", [ConstraintSettings("loss", 0.3)]),
        (
            'problem.constraint=[{kind="loss", limit=0.4}]',
            "problem.constraint",
            [ConstraintSettings("loss", 0.4)],
        ),
        ("problem.constraint=[]", "problem.constraint", []),
        ("problem.penalty=[1, 10]", "problem.penalty", [1.0, 10.0]),
        ("problem.penalty=10", "problem.penalty", 10.0),
        ('data.keep=["mean radius"]', "data.keep", ["mean radius"]),
        ("data.sizes.1=0.7", "data.sizes", [0.5, 0.7]),
    ],
)
def test_set(setting: str, path: str, value: object) -> None:
    config = parse(LIMITED + "[data]\nsizes = [0.5, 0.5]\n", [setting])
    section, key = path.split(".")
    found = getattr(getattr(config, section), key)
    assert found == value
    assert type(found) is type(value)


def test_later_settings_win() -> None:
    assert parse("", ["run.seed=1", "run.seed=2"]).run.seed == 2
    assert parse("[run]\nseed = 5", ["run={seed=1}"]).run.seed == 1


def fnr(options: str) -> str:
    return f"problem.constraint=[{{kind='fnr', limit=0.1, {options}}}]"


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        ("[algorithm]\nbacth = 1", [], "unknown key 'bacth' in [algorithm]: did you mean 'batch'?"),
        ("[modle]\nhidden = 1", [], "unknown section [modle]: did you mean 'model'?"),
        ("[zzz]", [], "known are algorithm, data, deploy, model, privacy, problem, run"),
        ("[run]\nzzz = 1", [], "known are checkpoint_every, evaluate_every"),
        ("batch = 1", [], "unknown section [batch]"),
        ("", ["algorithm.rho.b=1"], "unknown key 'b' in [algorithm.rho]: known are a, alpha"),
        ("", ["algorithm.rho.alpha=0.4"], "algorithm.rho lacks a"),
        ("", ["algorithm.rho.warm=1"], "algorithm.rho.warm"),
        ("[[constraint]]", [], "unknown section [constraint]: write it as [[problem.constraint]]"),
        ("[constraint]", [], "write it as [[problem.constraint]]"),
        ("[problem.constraint]", [], "it must be a list, each entry under [[problem.constraint]]"),
        ("", ["batch=1"], "section.key=value"),
        ("", ["algorithm.batch"], "section.key=value"),
        ("[algorithm", [], "not valid TOML"),
        ("", ["algorithm.batch=ten"], "algorithm.batch = 'ten': it must be a whole number"),
        ("", ["algorithm.batch=1.5"], "a whole number"),
        ("", ["algorithm.batch=true"], "a whole number"),
        ("", ["algorithm.tau=small"], "algorithm.tau = 'small': it must be a number"),
        ("", ["algorithm.tau=true"], "a number"),
        ("", ["algorithm.tau=nan"], "algorithm.tau = nan: it must be a finite number"),
        ("", ["algorithm.rho.alpha=inf"], "algorithm.rho.alpha = inf: it must be a finite number"),
        ("", ["algorithm.tau=1" + "0" * 400], "finite"),
        ("", ["model.name=3"], "model.name = 3 is unknown: known are cnn, linear, mlp"),
        ("", ["data.path=3"], "data.path = 3: it must be a string"),
        ("", ["data.sizes=3"], "data.sizes = 3: it must be a list"),
        ("", ['data.sizes=["a"]'], "data.sizes.0 = 'a': it must be a number"),
        ("model = 3", [], "it must be a table with keys name, hidden, activation"),
        ("", [fnr("positive=1.5")], "positive = 1.5: it must be a string"),
        ("", [fnr("bins=[1]")], "bins need column = <name>"),
        (
            "",
            [fnr("columns=['a', 'b'], bins=[1]")],
            r"with columns a table such as {AGE = [25, 40]}",
        ),
        ("", [fnr("column='a', bins={b=[1]}")], "'b' is not one of the columns"),
        ("", [fnr("column='a', bins={a=['x']}")], "bins.a.0 = 'x': it must be a number"),
        ("", [fnr("column='a', bins=[2, 1]")], "the numbers must increase"),
        ("", [fnr("column='a', columns=['b']")], "give column or columns, not both"),
        (
            "",
            [fnr("column='a', compare='all'")],
            "a constraint of kind 'fnr' takes kind, limit, bins",
        ),
        ("", ["model.hidden.x=3"], "hidden"),
        ("[model]\nhidden = 3", ["model.hidden.x=3"], "hidden is a value, not a section"),
        (LIMITED, ["problem.constraint.1.limit=1"], "there is no entry '1', there are entries 0"),
        (LIMITED, ["problem.constraint.x.limit=1"], "there is no entry 'x'"),
        ("[problem]\nconstraint = []", ["problem.constraint.0.limit=1"], "no entries yet"),
        ('[[problem.constraint]]\nkind = "loss"', [], "problem.constraint.0 lacks limit"),
        (LIMITED + "limt = 1", [], "unknown key 'limt' in [problem.constraint.0]: did you mean"),
        ('[problem]\npenalty = [1, "b"]', [], "problem.penalty.1 = 'b'"),
    ],
)
def test_refused(text: str, settings: list[str], said: str) -> None:
    assert said in refusal(text, *settings)


@pytest.mark.parametrize(
    "setting",
    [
        "algorithm.batch=0",
        "algorithm.local_steps=0",
        "algorithm.probes=-1",
        "algorithm.rate.rise=-1",
        "algorithm.rounds=0",
        "algorithm.rounds=-3",
        "data.clients=0",
        "data.clients=-1",
        "data.label_holder=-2",
        "model.hidden=0",
        "model.hidden=-5",
        "run.checkpoint_every=-1",
        "run.evaluate_every=0",
        "run.evaluate_every=-1",
        "run.seed=-1",
        "algorithm.rounds=9999999999",
    ],
)
def test_ranges_are_checked_before_the_data_is_read(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"it must be (at least|less than)") as caught:
        parse("", [setting, "data.path=/no/such/file.csv"])
    key, value = setting.split("=")
    assert caught.value.key == key
    assert str(caught.value).startswith(f"{key} = {value}: ")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("problem.penalty=-1.0", "it must be positive"),
        ("problem.penalty=[]", "it must be a list with at least one entry"),
        ("algorithm.rate.cool=1.5", r"it must lie in \[0, 1\]"),
    ],
)
def test_other_numbers_that_make_no_sense(setting: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        parse("", [setting, "data.path=/no/such/file.csv"])
    assert caught.value.key == setting.split("=")[0]
    assert str(caught.value).startswith(setting.replace("=", " = ") + ": ")


def test_the_names_that_people_know() -> None:
    named = [parse("", [f"algorithm.name={name}"]).algorithm for name in ("fedavg", "fedprox")]
    assert [(each.local_steps, each.mu) for each in named] == [(5, 0.01), (5, 0.01)]
    assert (
        parse("", ["algorithm.name=fedavg", "algorithm.local_steps=1"]).algorithm.local_steps == 1
    )
    assert parse("", ["algorithm.name=fedsgd"]).algorithm.local_steps == 1
    again = parse(render(parse("", ["algorithm.name=fedprox", "algorithm.mu=0.5"])))
    assert (again.algorithm.name, again.algorithm.mu) == ("fedprox", 0.5)
    with pytest.raises(ConfigError, match="fedsgd takes one step per round"):
        parse("", ["algorithm.name=fedsgd", "algorithm.local_steps=3"])
    with pytest.raises(ConfigError, match=r"did you mean 'fedsgd'\? known are augmented, fedavg"):
        parse("", ["algorithm.name=fedadagrad"])


def test_read_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no\.toml: No such file"):
        read(tmp_path / "no.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match=r"binary.toml is no UTF-8 text; name a TOML file"):
        read(tmp_path / "binary.toml")
    (tmp_path / "config.toml").write_text("")
    with pytest.raises(UserError, match=r"is the directory of a run.*fedssca run --resume"):
        read(tmp_path)


def test_places_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    config = absolute(parse("", ["data.path=a/b.csv", "data.dir=c"]))
    assert (config.data.path, config.data.dir) == (f"{tmp_path}/a/b.csv", f"{tmp_path}/c")
    assert absolute(Config()) == Config()


def test_nearest() -> None:
    assert nearest("mnst", ["mnist", "adult"]) == "did you mean 'mnist'?"
    assert nearest("zzz", ["mnist", "adult"]) == "known are adult, mnist"
