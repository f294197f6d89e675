"""Sites' own data: files and queries, what they say of it, who does not fit, and predictions."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from fedssca.data.tables import write_csv
from fedssca.deploy.local import write_site_files
from fedssca.deploy.project import site_names
from fedssca.deploy.server.run import RunOrder, RunServer
from fedssca.deploy.site.raw_table import read_raw_table, read_source
from fedssca.errors import UserError
from fedssca.run.config import Config, parse
from fedssca.run.execute import execute, load_config
from fedssca.run.export.classifier import export_classifier
from fedssca.run.export.onnx_files import export_onnx
from fedssca.run.model import joint_predictions, load_model, predict_rows, write_predictions
from tests.deploy.loopback import RUN, Loopback, deployed, parties

BASE = """
[model]
name = "linear"
[algorithm]
name = "sgd"
rate = 0.1
batch = 4
rounds = 6
[run]
evaluate_every = 5
"""
COLUMNS = ["data.split=feature"]


def table(rows: int = 60, seed: int = 0) -> dict[str, list[str]]:
    rng = np.random.default_rng(seed)
    age, size = rng.normal(50, 10, rows), rng.normal(3, 1, rows)
    town = rng.choice(["north", "south", "west"], rows)
    y = np.where(age + 5 * size + rng.normal(0, 5, rows) > 65, "ill", "well")
    return {
        "id": [f"p{i}" for i in range(rows)],
        "age": [f"{v:.3f}" for v in age],
        "size": [f"{v:.3f}" for v in size],
        "town": list(town),
        "y": list(y),
    }


def write(file: Path, columns: dict[str, list[str]], rows: slice = slice(None)) -> None:
    lines = zip(*(values[rows] for values in columns.values()), strict=True)
    file.write_text("\n".join([",".join(columns), *(",".join(line) for line in lines)]) + "\n")


def by_rows(folder: Path, columns: dict[str, list[str]], count: int = 2) -> list[Path]:
    files = []
    for number in range(count):
        write(folder / f"{number}.csv", columns, slice(number, None, count))
        files.append(folder / f"{number}.toml")
        files[-1].write_text(f'path = "{number}.csv"\nid = "id"\n')
    return files


def by_columns(folder: Path, columns: dict[str, list[str]]) -> list[Path]:
    files = []
    for number, names in enumerate((["id", "age", "y"], ["id", "size", "town"])):
        write(folder / f"{number}.csv", {name: columns[name] for name in names})
        files.append(folder / f"{number}.toml")
        files[-1].write_text(f'path = "{number}.csv"\nid = "id"\npredict = "{number}-new.csv"\n')
        new = {name: columns[name][:10] for name in names if name != "y"}
        write(folder / f"{number}-new.csv", new)
    return files


def run(config: Config, files: list[Path], out: Path) -> tuple[dict[str, object], RunServer]:
    order = RunOrder(config, site_names(len(files)), RUN)
    server = RunServer(order, Loopback(parties(files)), out)
    return server.run(), server


def test_sites_with_tables_encode_alike(tmp_path: Path) -> None:
    """Joint means and kinds: the same model as with all rows in one place."""
    columns = table()
    config = parse(BASE)
    run(config, by_rows(tmp_path, columns), tmp_path / "run")
    order = [i for part in range(2) for i in range(part, 60, 2)]
    write(tmp_path / "new.csv", {n: [v[i] for i in order] for n, v in columns.items()})
    found = predict_rows(load_model(tmp_path / "run"), tmp_path / "new.csv", "new.csv")
    right = np.array(found.predicted) == [columns["y"][i] for i in order]
    assert right.mean() > 0.6
    assert found.evaluation is not None
    assert found.evaluation["accuracy"] == pytest.approx(right.mean())
    out = io.StringIO()
    write_predictions(found, out)
    header, first, *_ = out.getvalue().splitlines()
    assert header == "id,prediction,p[ill],p[well]"
    assert first.split(",")[:2] == ["p0", found.predicted[0]]


def test_joint_prediction_agrees_with_the_whole_model(tmp_path: Path) -> None:
    columns = table()
    files = by_columns(tmp_path, columns)
    _, server = run(parse(BASE, [*COLUMNS, "data.label_holder=0"]), files, tmp_path / "run")
    answer = server.predict()
    assert answer["ids"] is None
    model = load_model(tmp_path / "run")
    numbered = joint_predictions(model, answer)
    assert numbered.ids == {"row": [str(number) for number in range(1, 11)]}
    assert "share_ids = true in the site.toml of one party" in numbered.notes[0]
    with files[1].open("a") as file:
        file.write("share_ids = true\n")
    order = RunOrder(parse(BASE, [*COLUMNS, "data.label_holder=0"]), site_names(2), RUN)
    again = RunServer(order, Loopback(parties(files)), tmp_path / "run").predict()
    assert again["scores"] == answer["scores"]
    changed = columns | {"size": ["9.5", *columns["size"][1:]]}
    write(tmp_path / "1.csv", {name: changed[name] for name in ("id", "size", "town")})
    with pytest.raises(UserError, match="site-2: its training rows are not those of this run"):
        RunServer(order, Loopback(parties(files)), tmp_path / "run").predict()
    named = joint_predictions(model, again)
    assert named.ids == {"id": columns["id"][:10]}
    assert not named.notes
    w = np.load(tmp_path / "run" / "model.npz")["w"]
    kept = np.isin(np.arange(60), held_out(columns["y"]), invert=True)
    numbers = [np.array(columns[name], float) for name in ("age", "size")]
    parts = [(v - v[kept].mean()) / v[kept].std() for v in numbers]
    towns = [np.array(columns["town"]) == town for town in ("north", "south", "west")]
    x = np.stack([*parts, *towns], axis=1)[:10]
    expected = x @ w[1:] + w[0]
    assert np.array(answer["scores"])[:, 1] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_worst_group_of_rows_and_of_columns(tmp_path: Path) -> None:
    """Groups are counted in the census; saved models have no epigraph variable, with which the
    parties predict nevertheless."""
    columns = table()
    columns["sex"] = ["a" if i % 3 else "b" for i in range(60)]
    settings = [
        *("algorithm.name=ssca", "algorithm.rho={a=0.9,alpha=0.3}", "algorithm.tau=1.0"),
        "algorithm.gamma={a=0.5,alpha=0.6}",
        *("problem.objective=worst_group", "problem.column=sex", "algorithm.multipliers=exact"),
        "problem.l2=1e-5",
    ]
    found, _ = run(parse(BASE, settings), by_rows(tmp_path, columns), tmp_path / "rows")
    assert found["constraint_names"] == ["worst_sex_0", "worst_sex_1"]
    assert np.load(tmp_path / "rows/model.npz")["w"].shape == (1 + 2 + 3 + 2,)
    files = by_columns(tmp_path, columns)
    write(tmp_path / "0.csv", {name: columns[name] for name in ("id", "age", "sex", "y")})
    write(tmp_path / "0-new.csv", {name: columns[name][:10] for name in ("id", "age", "sex")})
    config = parse(BASE, [*settings, *COLUMNS, "data.label_holder=0"])
    found, server = run(config, files, tmp_path / "columns")
    w = np.load(tmp_path / "columns/model.npz")["w"]
    assert w.shape == (1 + 3 + 4,)
    l2 = load_config(tmp_path / "columns").problem.l2
    assert found["objective"] == pytest.approx(found["train_worst"] + l2 * w @ w, rel=1e-4)
    kept = np.isin(np.arange(60), held_out(columns["y"]), invert=True)
    age, size = (np.array(columns[name], float) for name in ("age", "size"))
    scaled = [(v - v[kept].mean()) / v[kept].std() for v in (age, size)]
    sex = [np.array(columns["sex"]) == value for value in "ab"]
    towns = [np.array(columns["town"]) == town for town in ("north", "south", "west")]
    x = np.stack([scaled[0], *sex, scaled[1], *towns], axis=1)[:10]
    scores = np.array(server.predict()["scores"])[:, 1]
    assert scores == pytest.approx(x @ w[1:] + w[0], rel=1e-4, abs=1e-4)


def held_out(y: list[str]) -> np.ndarray:
    from fedssca.data.dataset import stratified

    return np.flatnonzero(~stratified(np.array(y), 0.2, 0))


def test_one_site_is_the_simulator_on_its_file(tmp_path: Path) -> None:
    """Encoding at a site is the loader's encoding."""
    columns = {name: values for name, values in table().items() if name != "id"}
    write(tmp_path / "0.csv", columns)
    (tmp_path / "0.toml").write_text('path = "0.csv"\n')
    settings = ["data.clients=1", "data.partition=contiguous"]
    execute(parse(BASE, [*settings, f"data.path={tmp_path}/0.csv"]), tmp_path / "simulated")
    run(parse(BASE, settings), [tmp_path / "0.toml"], tmp_path / "run")
    ours, theirs = (np.load(tmp_path / n / "model.npz")["w"] for n in ("run", "simulated"))
    assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-6)


def test_files_and_queries_give_the_same_table(tmp_path: Path) -> None:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = table(5)
    write(tmp_path / "rows.csv", columns)
    numbers = ("age", "size")
    typed = {n: list(map(float, v)) if n in numbers else v for n, v in columns.items()}
    pq.write_table(pa.table(typed), tmp_path / "rows.parquet")
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/rows.db")
    with engine.begin() as connection:
        connection.execute(
            sqlalchemy.text("create table t (id text, age real, size real, town text, y text)")
        )
        for row in zip(*typed.values(), strict=True):
            values = dict(zip(typed, row, strict=True))
            connection.execute(
                sqlalchemy.text("insert into t values (:id, :age, :size, :town, :y)"), values
            )
    engine.dispose()
    tables = []
    for name, text in {
        "csv": 'path = "rows.csv"',
        "parquet": 'path = "rows.parquet"',
        "sql": f'database = "sqlite:///{tmp_path}/rows.db"\nquery = "select * from t"',
    }.items():
        (tmp_path / f"{name}.toml").write_text(text + '\nid = "id"\nlabel = "y"\n')
        tables.append(read_raw_table(read_source(tmp_path / f"{name}.toml"), ""))
    for raw in tables:
        assert raw.features == ("age", "size", "town")
        assert raw.y is not None
        assert raw.y.tolist() == columns["y"]
        assert raw.ids is not None
        assert raw.ids.tolist() == columns["id"]
        np.testing.assert_array_equal(raw.columns["age"], tables[0].columns["age"])


def test_a_password_is_not_told(tmp_path: Path) -> None:
    pytest.importorskip("sqlalchemy")
    file = tmp_path / "site.toml"
    file.write_text('database = "sqlite:////no/such/secret-word.db"\nquery = "select 1"\n')
    with pytest.raises(UserError) as error:
        read_raw_table(read_source(file), "")
    assert "secret-word" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pth = 'a.csv'", "did you mean 'path'"),
        ("path = 'a.csv'\nquery = 'select 1'", "either path"),
        ("query = 'select 1'", "needs database"),
        ("path = 'none.csv'", "not there"),
        ("path = 'a.csv'\nid = 'key'", "no column 'key'"),
        ("path = 'a.csv'\nlabel = 'z'", "no column 'z'"),
    ],
)
def test_a_wrong_site_file_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    write(tmp_path / "a.csv", table(4))
    (tmp_path / "site.toml").write_text(text)
    with pytest.raises(UserError, match=said):
        read_raw_table(read_source(tmp_path / "site.toml"), "")


def test_misfits_of_rows_name_the_site(tmp_path: Path) -> None:
    columns = table()
    files = by_rows(tmp_path, columns)
    write(tmp_path / "1.csv", {n: v for n, v in columns.items() if n != "size"})
    with pytest.raises(UserError, match="site-2: it has 2 feature columns, site-1 has 3"):
        run(parse(BASE), files, tmp_path / "run")
    renamed = {("girth" if n == "size" else n): v for n, v in columns.items()}
    write(tmp_path / "1.csv", renamed)
    with pytest.raises(UserError, match="site-2: feature column 2 is 'girth'"):
        run(parse(BASE), files, tmp_path / "run")
    write(tmp_path / "1.csv", {n: v for n, v in columns.items() if n != "y"})
    with pytest.raises(UserError, match="site-2: no label column"):
        run(parse(BASE), files, tmp_path / "run")
    write(tmp_path / "1.csv", columns | {"y": ["0.5"] * 60})
    with pytest.raises(UserError, match="site-1: its labels are text"):
        run(parse(BASE), files, tmp_path / "run")


def test_misfits_of_columns_name_the_site(tmp_path: Path) -> None:
    columns = table()
    files = by_columns(tmp_path, columns)
    config = parse(BASE, [*COLUMNS, "deploy.align=false"])
    names = ("id", "size", "town")
    swapped = columns | {"id": [*reversed(columns["id"])]}
    write(tmp_path / "1.csv", {n: swapped[n] for n in names})
    with pytest.raises(UserError, match="site-2: its ids are not those of site-1"):
        run(config, files, tmp_path / "run")
    write(tmp_path / "1.csv", {n: columns[n][:50] for n in names})
    with pytest.raises(UserError, match="site-2: it holds rows: 50, site-1 holds 60"):
        run(config, files, tmp_path / "run")
    write(tmp_path / "1.csv", {n: columns[n] for n in names})
    with pytest.raises(UserError, match=r"site-2: it has no labels; set data.label_holder = 0"):
        run(config, files, tmp_path / "run")
    with pytest.raises(UserError, match=r"site-2: data.label_holder = 1 says"):
        run(parse(BASE, [*COLUMNS, "data.label_holder=1"]), files, tmp_path / "run")
    files[1].write_text('path = "1.csv"\nignore = ["id"]\n')
    with pytest.raises(UserError, match="site-2: parties that hold columns need ids"):
        run(config, files, tmp_path / "run")


def test_a_batch_larger_than_a_site_names_it(tmp_path: Path) -> None:
    files = by_rows(tmp_path, table(20))
    with pytest.raises(UserError, match="larger than client 0's"):
        run(parse(BASE, ["algorithm.batch=15"]), files, tmp_path / "run")


def test_as_many_sites_start_as_the_column_of_clients_names(tmp_path: Path) -> None:
    rows = "".join(f"{i},{'abc'[i % 3]},{i % 2}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text("x,town,y\n" + rows)
    config = parse("", [f"data.path={tmp_path / 'rows.csv'}", "data.client=town"])
    with pytest.raises(UserError, match=r"the data have 3 clients, .* set --sites 3"):
        write_site_files(config, 4, tmp_path / "sites")


def test_a_local_deployment_predicts_raw_rows_as_it_was_trained(tmp_path: Path) -> None:
    """The sites of a local deployment hold raw rows, so that the model knows their encoding.

    Predictions of the file itself, which is not standardised, have the accuracy of the run, and
    the model is the simulated one.
    """
    rng = np.random.default_rng(0)
    rows = 300
    income, debt = rng.normal(50_000, 20_000, rows), rng.exponential(3_000, rows)
    debt[rng.random(rows) < 0.1] = np.nan
    town = rng.choice(["north", "south", ""], rows)
    risk = np.nan_to_num(debt, nan=3_000) / 3_000 - income / 20_000 + (town == "north")
    y = np.where(risk + rng.normal(0, 0.3, rows) > np.median(risk), "late", "paid")
    cells = {"income": income, "debt": debt, "town": town, "y": y}
    write_csv(tmp_path / "credit.csv", cells)
    settings = [f"data.path={tmp_path}/credit.csv", "data.clients=3", "algorithm.rounds=60"]
    config = parse(BASE, settings)
    simulated = execute(config, tmp_path / "simulated")
    found, _, _ = deployed(config, 3, tmp_path)
    weights = [np.load(tmp_path / run / "model.npz")["w"] for run in ("simulated", "run")]
    assert weights[0] == pytest.approx(weights[1], rel=1e-4, abs=1e-5)
    assert found["test_accuracy"] == pytest.approx(simulated["test_accuracy"])
    models = [load_model(tmp_path / run) for run in ("simulated", "run")]
    own, joint = (model.predict_proba(tmp_path / "credit.csv") for model in models)
    assert own == pytest.approx(joint, abs=1e-4)
    right = models[1].predict(tmp_path / "credit.csv") == y
    train, test = 240, 60
    reported = (found["train_accuracy"] * train + found["test_accuracy"] * test) / rows
    assert right.mean() == pytest.approx(reported, abs=1e-6)
    assert right.mean() > 0.8


def test_sites_read_ordinary_files(tmp_path: Path) -> None:
    """No header, missing cells, test files with other labels, codes, an id that no file names.

    A site tells only what its files show: the joint encoder knows what the sites together show.
    """
    rng = np.random.default_rng(2)
    files = []
    for site in range(2):
        for end, count in (("data", 40), ("test", 10)):
            age = np.where(rng.random(count) < 0.2, "?", rng.integers(20, 60, count).astype(str))
            job = rng.choice(["a", "b"] if site else ["a", "?"], count)
            code = rng.integers(1, 3 + site, count)
            label = rng.choice(["no", "yes"], count)
            lines = [
                f"p{site}{end}{i}; {age[i]}; {job[i]}; {'?' if site else i}; {code[i]}; "
                f"{label[i]}{'.' if end == 'test' else ''}"
                for i in range(count)
            ]
            (tmp_path / f"{site}.{end}").write_text("\n".join(lines) + "\n")
        files.append(tmp_path / f"{site}.toml")
        files[-1].write_text(
            f'path = "{site}.data"\ntest_path = "{site}.test"\n'
            'columns = ["who", "age", "job", "size", "code", "out"]\n'
        )
    settings = ["data.label=out", 'data.categories=["code"]', "data.impute=median"]
    found, _ = run(parse(BASE, settings), files, tmp_path / "run")
    census = json.loads((tmp_path / "run" / "census.json").read_text())
    assert census["features"] == [
        *("age", "age missing", "job missing", "job=a", "job=b"),
        *("size", "size missing", "code=1", "code=2", "code=3"),
    ]
    assert census["labels"] == ["no", "yes"]
    assert (census["sizes"], found["rounds"]) == ([40, 40], 6)
    assert list(census["encoder"]["left_out"]) == ["who"]
    assert "column 'who' is left out" in (tmp_path / "run" / "events.jsonl").read_text()
    dropped = [*settings, 'data.drop=["job", "size"]', 'data.keep=["job"]']
    run(parse(BASE, dropped), files, tmp_path / "less")
    census = json.loads((tmp_path / "less" / "census.json").read_text())
    assert census["features"] == ["age", "age missing", "code=1", "code=2", "code=3"]
    spoilt = (tmp_path / "0.data").read_text().replace(";", "%;", 2).replace("%", "", 1)
    (tmp_path / "0.data").write_text(spoilt)
    with pytest.raises(UserError, match="column 'age' holds numbers") as error:
        run(parse(BASE, settings), files, tmp_path / "bad")
    assert "%" not in str(error.value)  # a site shows none of its cells


def test_files_of_deployed_parties_take_encoded_numbers(tmp_path: Path) -> None:
    """Parties keep their encoders, so that their ONNX files take x; the head gives the classes."""
    runtime = pytest.importorskip("onnxruntime")
    columns = table()
    files = by_columns(tmp_path, columns)
    _, server = run(parse(BASE, [*COLUMNS, "data.label_holder=0"]), files, tmp_path / "run")
    scores = np.array(server.predict()["scores"])
    model = load_model(tmp_path / "run")
    *parts, head = (runtime.InferenceSession(f) for f in export_onnx(model, tmp_path / "m.onnx"))
    kept = np.isin(np.arange(60), held_out(columns["y"]), invert=True)
    age, size = (np.array(columns[name], float) for name in ("age", "size"))
    age, size = ((v - v[kept].mean()) / v[kept].std() for v in (age, size))
    towns = [np.array(columns["town"]) == town for town in ("north", "south", "west")]
    hs = {}
    for number, (part, own) in enumerate(zip(parts, ([age], [size, *towns]), strict=True), 1):
        x = np.stack(own, axis=1)[:10].astype(np.float32)
        assert len(json.loads(part.get_modelmeta().custom_metadata_map["features"])) == len(own)
        hs[f"h_{number}"] = part.run(["h"], {"x": x})[0]
    prediction, chances = head.run(["prediction", "probabilities"], hs)
    expected = joint_predictions(model, {"scores": scores})
    assert chances == pytest.approx(expected.probabilities, abs=1e-5)
    assert prediction.tolist() == expected.predicted
    with pytest.raises(UserError, match="no party has all columns of this model"):
        export_classifier(model, tmp_path / "m.pkl")
