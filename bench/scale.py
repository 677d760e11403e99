"""`python -m bench.scale`: what large tables cost, and what is asked of that.

    python -m bench.scale [--baseline FOLDER] [--small 1e6] [--large 1e7] [--jobs N] [--parts releases,cluster,recipes]

writes tables of about so many rows into a temporary folder (`--folder`), and prints ratios to an earlier commit, of two
workers to one process, and of the peaks of memory at both sizes; then CPU per row and recipe as a Markdown table. Where
there is no history, `--baseline` names a folder with the earlier commit's `src` (`git archive 645b3a8 src`). `--jobs`
recipes are fitted at a time.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bench import releases
from bench.recipes import WORLD_OF
from bench.tables import files_for, write_tables
from bench.timing import Row

PARTS = ("releases", "cluster", "recipes")
_ROOT = Path(__file__).resolve().parents[1]
_STREAMED = "dp-fqi"
"""The recipe whose memory must not grow with the table."""


def started(module: str, *arguments: Any) -> dict[str, Any]:
    """What a module of this folder prints, run with one thread."""
    command = [sys.executable, "-m", f"bench.{module}", *map(str, arguments)]
    environment = os.environ | releases.ONE_THREAD
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def fitted(folder: Path, recipes: tuple[str, ...], sizes: tuple[int, ...], jobs: int) -> dict[tuple[str, int], Any]:
    """Whole fits of tables of these numbers of files."""
    cases = [(recipe, files) for files in reversed(sizes) for recipe in recipes]  # the longest first

    def one(case: tuple[str, int]) -> dict[str, Any]:
        found = started("recipes", case[0], folder, case[1])
        print(f"{case[0]}, {case[1]} files: {found}", file=sys.stderr, flush=True)
        return found

    with ThreadPoolExecutor(jobs) as pool:
        return dict(zip(cases, pool.map(one, cases), strict=True))


def cluster_rows(found: dict[str, Any]) -> Iterator[Row]:
    """Two workers against one process, and the driver against both workers."""
    for engine in ("two processes", "two Dask workers"):
        for name, alone in found["one"].items():
            what, took = f"release of {name}, {found['rows']:,} rows, CPU", found[engine][name]
            yield f"{what}: one process / the busier of {engine} (at least 1.67)", alone, took["busier"]
            yield f"{what}: {engine} / their driver (at least 3.3)", took["both"], took["driver"]
    yield "a file changed between two releases: refused on the worker (at least 1)", float(found["refused"]), 1.0


def model_lines(found: dict[str, Any]) -> Iterator[str]:
    """What the fits of two processes say about large clusters."""
    check = 1e6 * found["two processes"]["checked"]
    yield f"{found['rows']:,} rows in {found['two processes']['shards']} shards, checked in {check:.3f} us a row\n"
    yield "| recipe | releases | CPU, us a row and release | 1e9 rows on 100 workers, min |\n|---|---:|---:|---:|"
    for name, fit in found["fits"].items():
        yield f"| `{name}` | {fit['releases']} | {1e6 * fit['each']:.3f} | {fit['minutes']:.1f} |"


def recipe_lines(found: dict[tuple[str, int], Any]) -> Iterator[str]:
    """CPU per row and recipe, and peak memory."""
    yield "| recipe | table | rows | CPU, s | CPU, us a row | peak memory, MB |\n|---|---|---:|---:|---:|---:|"
    for recipe, files in sorted(found, key=lambda case: (list(WORLD_OF).index(case[0]), case[1])):
        fit = found[recipe, files]
        each = 1e6 * fit["cpu"] / fit["rows"]
        yield (
            f"| `{recipe}` | {WORLD_OF[recipe]} | {fit['rows']:,} | {fit['cpu']:.1f} | {each:.2f} | {fit['peak']:.0f} |"
        )


def peak_row(found: dict[tuple[str, int], Any], small: int, large: int) -> Row:
    """The peak of memory of one recipe at both sizes."""
    what = f"peak memory of {_STREAMED}, MB: {small} files / {large} files (about 1)"
    return what, found[_STREAMED, small]["peak"], found[_STREAMED, large]["peak"]


def rows(small: float = 1e6, large: float = 1e7, workers: int | None = None) -> Iterator[Row]:
    """The ratios alone, for the table of `make bench`."""
    with tempfile.TemporaryDirectory() as name:
        folder, sizes = Path(name), (files_for(small), files_for(large))
        write_tables(folder, {"icu-sepsis": sizes[1]}, workers or os.cpu_count() or 1)
        yield from _release_rows(folder, sizes[0], releases.unpacked(folder))
        yield from cluster_rows(started("cluster", folder, sizes[1]))
        yield peak_row(fitted(folder, (_STREAMED,), sizes, 1), *sizes)


def _release_rows(folder: Path, files: int, baseline: Path) -> Iterator[Row]:
    """The earlier commit takes a folder and no list of files."""
    few = folder / "few"
    few.mkdir()
    for path in sorted((folder / "icu-sepsis").glob("*.parquet"))[:files]:
        os.link(path, few / path.name)
    yield from releases.rows(few, baseline)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description="What large tables cost.")
    parser.add_argument("--baseline", type=Path, help="a folder with `src` of the earlier commit")
    parser.add_argument("--small", type=float, default=1e6)
    parser.add_argument("--large", type=float, default=1e7)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--parts", default=",".join(PARTS), help="some of " + ",".join(PARTS))
    parser.add_argument("--recipes", default=",".join(WORLD_OF))
    parser.add_argument("--folder", help="where temporary tables go")
    given = parser.parse_args()
    parts, recipes = given.parts.split(","), tuple(given.recipes.split(","))
    small, large = files_for(given.small), files_for(given.large)
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        worlds = {WORLD_OF[recipe] for recipe in recipes if "recipes" in parts} | {"icu-sepsis"}
        write_tables(folder, dict.fromkeys(sorted(worlds), large), given.jobs)
        if "releases" in parts:
            baseline = given.baseline or releases.unpacked(folder)
            _print(_release_rows(folder, small, baseline.resolve()))
        if "cluster" in parts:
            found = started("cluster", folder, large)
            _print(cluster_rows(found))
            for line in model_lines(found):
                print(line, flush=True)
        if "recipes" in parts:
            fits = fitted(folder, recipes, (small, large), given.jobs)
            if _STREAMED in recipes:
                _print(iter([peak_row(fits, small, large)]))
            for line in recipe_lines(fits):
                print(line, flush=True)


def _print(found: Iterator[Row]) -> None:
    for name, plain, ours in found:
        print(f"{name}: {plain:.4g} / {ours:.4g} = {plain / ours:.2f}", flush=True)


if __name__ == "__main__":
    main()
