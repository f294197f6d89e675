"""Time to load a CSV file of 50,000 rows and 8 columns, one of them text.

python benchmarks/load_csv.py
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import fedssca

ROWS = 50_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        rows = (f"{i},{i * 0.5},{'abc'[i % 3]},{i},{i},{i},{i},{i % 2}\n" for i in range(ROWS))
        path.write_text("a,b,c,d,e,f,g,y\n" + "".join(rows))
        seconds = []
        for _ in range(5):
            begun = time.perf_counter()
            data = fedssca.load(None, str(path))
            seconds.append(time.perf_counter() - begun)
    count = len(data.train["y"]) + len(data.test["y"])
    print(f"{count} rows in {min(seconds):.2f} s, {count / min(seconds):.0f} rows/s")


if __name__ == "__main__":
    main()
