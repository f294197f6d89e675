"""Measure, render and check the evidence in the documentation.

python -m benchmarks.evidence run [PART ...] [--again]   measure what is older than its code
python -m benchmarks.evidence render                     write the tables of the pages anew
python -m benchmarks.evidence check                      list what is old, and what is unmarked
python -m benchmarks.evidence adopt PAGE PART            move the tables of a page into a record
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.evidence import results
from benchmarks.evidence.pages import adopt, differences, marked, pages, render, unmarked
from benchmarks.evidence.record import ROOT, Part, measure, read_parts, read_record, why_old


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.evidence", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="measure the parts that are older than their code")
    run.add_argument("parts", nargs="*", help="names from docs/evidence/parts.toml; default: all")
    run.add_argument("--again", action="store_true", help="measure fresh parts, too")
    commands.add_parser("render", help="write the marked tables of all pages")
    commands.add_parser("check", help="list old parts and tables that are not from evidence")
    moved = commands.add_parser("adopt", help="move the tables of a page into a record")
    moved.add_argument("page", type=Path)
    moved.add_argument("part")
    args = parser.parse_args()
    if args.command == "run":
        return run_parts(args.parts, args.again)
    if args.command == "adopt":
        return adopt_page(args.page.resolve(), args.part)
    if args.command == "render":
        for page in render():
            print(f"{page.relative_to(ROOT)}: rendered")
        return 0
    return check()


def run_parts(names: list[str], again: bool) -> int:
    """Measure the chosen parts. After an interruption, those that were done are not repeated."""
    parts = read_parts()
    if unknown := [name for name in names if name not in parts]:
        print(f"no part {', '.join(unknown)}; known: {', '.join(parts)}", file=sys.stderr)
        return 2
    chosen = [parts[name] for name in names or parts]
    ahead = [part for part in chosen if again or why_old(part, read_record(part.name))]
    print(f"{len(chosen) - len(ahead)} parts are fresh; {len(ahead)} to measure, {left(ahead)}")
    failed = []
    for number, part in enumerate(ahead, 1):
        print(f"[{number} of {len(ahead)}] {part.name}: {part.command}", flush=True)
        begun = time.monotonic()
        try:
            measure(part)
        except subprocess.CalledProcessError as error:
            failed.append(part.name)
            print(f"  failed with status {error.returncode}; its record stays as it was")
            continue
        spent = (time.monotonic() - begun) / 60
        print(f"  done in {spent:.1f} min; {left(ahead[number:])}", flush=True)
    for page in render():
        print(f"{page.relative_to(ROOT)}: rendered")
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def left(parts: list[Part]) -> str:
    """How long some parts will take, from how long they took the last time."""
    spent = [(read_record(part.name) or {}).get("seconds") for part in parts]
    pairs = zip(spent, parts, strict=True)
    minutes = sum(last / 60 if last else part.minutes for last, part in pairs)
    return f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"


def check() -> int:
    """Print what has to be done; the status is 1 if a page is not what its records say."""
    for part in read_parts().values():
        if why := why_old(part, read_record(part.name)):
            print(f"old: {part.name}: {why}")
    for name, why in results.old_results(ROOT / "docs/results"):
        print(f"old: results/{name}: {why}")
    known = {*read_parts(), results.NAME}
    for page in pages():
        for name, _ in marked(page.read_text(encoding="utf-8")):
            if name not in known:
                print(f"no part: {page.relative_to(ROOT)} shows {name}, which parts.toml lacks")
    for page, count in unmarked():
        print(f"not from evidence: {page.relative_to(ROOT)}: {count} tables of numbers")
    wrong = differences()
    for page in wrong:
        print(f"wrong: {page.relative_to(ROOT)} is not what its records say: make evidence-render")
    return 1 if wrong else 0


def adopt_page(page: Path, name: str) -> int:
    """Move the tables of a page into the record of a part, dated by the last change of the page."""
    part = read_parts().get(name)
    if part is None or read_record(name) is not None:
        why = "is not in parts.toml" if part is None else "has a record already"
        print(f"{name} {why}", file=sys.stderr)
        return 2
    date = subprocess.run(
        ["git", "log", "-1", "--format=%cs", "--", str(page)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    count = adopt(page, name, part.command, date, labels=part.tables)
    print(f"{count} tables moved to docs/evidence/{name}.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
