"""The final `w` of short runs is what it was when golden.npz was saved.

On the same processor, with the same packages and compiler flags it is equal bit for bit. Elsewhere
the compiler makes other instructions, so that only the first digits can be compared, and of runs
with noise nothing.
"""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.regression.runs import NAMES, NOISY, PRIVATE, surroundings

GOLDEN = Path(__file__).with_name("golden.npz")


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDEN, allow_pickle=False) as file:
        return dict(file)


def test_every_run_is_saved(golden: dict[str, np.ndarray]) -> None:
    saved = {f"{name}/{key}" for name in NAMES for key in ("w", "w_last")}
    assert set(golden) == saved | {"surroundings"}


@pytest.fixture(scope="module")
def computed(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, np.ndarray]:
    """The selected runs, in a process of their own, as the golden file was saved."""
    complete = all(map(find_spec, ("cryptography", "dp_accounting", "tenseal")))
    own_tests = [item for item in request.session.items if item.path == request.path]
    chosen = {item.callspec.params["name"] for item in own_tests if hasattr(item, "callspec")}
    names = [name for name in NAMES if name in chosen and (complete or name not in PRIVATE)]
    file = tmp_path_factory.mktemp("regression") / "computed.npz"
    command = [sys.executable, "-m", "tests.regression.runs", "--save", str(file), *names]
    done = subprocess.run(
        command, cwd=request.config.rootpath, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with np.load(file, allow_pickle=False) as found:
        return dict(found)


@pytest.mark.parametrize("name", NAMES)
def test_same_bits(
    name: str, golden: dict[str, np.ndarray], computed: dict[str, np.ndarray], request: Any
) -> None:
    if f"{name}/w" not in computed:
        pytest.skip("needs the privacy extra: pip install 'fedssca[privacy]'")
    exact = json.loads(str(golden["surroundings"])) == surroundings()
    if name in NOISY and not exact:
        pytest.skip("noise depends on every bit of w: other processor or packages")
    comparison = "bit for bit" if exact else "to a tolerance: other processor or packages"
    request.node.user_properties.append(("comparison", comparison))
    print(f"{name} is compared {comparison}")
    for key in ("w", "w_last"):
        value, expected = computed[f"{name}/{key}"], golden[f"{name}/{key}"]
        assert (value.dtype, value.shape) == (expected.dtype, expected.shape)
        if exact:
            assert value.tobytes() == expected.tobytes(), f"{key} of {name} has other bits"
        else:
            np.testing.assert_allclose(value, expected, atol=1e-2 * np.abs(expected).max())
