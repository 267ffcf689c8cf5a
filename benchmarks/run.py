"""Run benchmarks and keep what they print as records, which the documentation shows.

    python benchmarks/run.py                 # all that take less than ten minutes
    python benchmarks/run.py --long          # the others too
    python benchmarks/run.py streams start   # these

`claims.toml` lists the benchmarks, and the packages of ``src/odeco`` that the figures of each are
about. A record is stale once one of these has changed since.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import shlex
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
RESULTS = HERE / "results"

#: Libraries whose versions a record names, if they are installed.
LIBRARIES = ("numpy", "scipy", "scikit-learn", "tensorly", "tomotopy", "hmmlearn", "stepmix")


@dataclass(frozen=True)
class Record:
    """What a benchmark has printed, and where and when.

    Attributes
    ----------
    name, title, command : str
        Its name, its title, and the command that made it.
    commit, date : str
        The commit of the code that was measured, and the day.
    machine : str
        The processor cores and the Python.
    versions : dict of str to str
        Versions of libraries.
    seconds : float
        How long it took.
    lines : list of str
        What it printed.
    """

    name: str
    title: str
    command: str
    commit: str
    date: str
    machine: str
    versions: dict[str, str]
    seconds: float
    lines: list[str]

    @classmethod
    def load(cls, name: str) -> Record:
        """Read the record of a benchmark."""
        return cls(**json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")))

    def save(self) -> None:
        """Write the record."""
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(asdict(self), indent=1, ensure_ascii=False)
        (RESULTS / f"{self.name}.json").write_text(f"{text}\n", encoding="utf-8")

    def to_markdown(self) -> str:
        """Return the figures, and below them the command, the day and the commit."""
        source = f"`python benchmarks/run.py {self.name}`, {self.date}, {self.commit[:8]}"
        changed = stale_packages(self)
        warning = f" **Older than the code of {', '.join(changed)}.**" if changed else ""
        figures = "\n".join(self.lines)
        return f"```text\n{figures}\n```\n\n*{self.title}: {source}; {self.machine}.*{warning}\n"


def read_claims() -> dict[str, dict[str, object]]:
    """Return the declared benchmarks by their names."""
    return tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))


def stale_packages(record: Record) -> list[str]:
    """Return the packages that a record is about and that have changed since; none without git.

    All have, if the history does not have the commit that was measured.
    """
    packages: list[str] = read_claims()[record.name]["concerns"]  # type: ignore[assignment]
    if not _git("rev-parse", "HEAD"):
        return []
    if not _git("cat-file", "-e", record.commit):
        return packages
    return [
        package
        for package in packages
        if not _git("diff", "--quiet", record.commit, "--", _path_of(package))
    ]


def _path_of(package: str) -> str:
    """Return the folder of a package; that of the tests is their own."""
    return package if package == "tests" else f"src/odeco/{package}"


def _git(*arguments: str) -> bool:
    """Return whether a command of git succeeds."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, check=False)
    return done.returncode == 0


def versions_here() -> dict[str, str]:
    """Return the versions of the libraries that are installed."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def run(name: str, claim: dict[str, object]) -> Record:
    """Run a benchmark, show what it prints, and return its record."""
    command = str(claim["command"])
    script, *arguments = shlex.split(command)
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()
    begun = time.perf_counter()
    lines = []
    with subprocess.Popen(
        [sys.executable, str(HERE / script), *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)},
    ) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    if process.returncode:
        raise SystemExit(f"{command} failed with {process.returncode}; no record was written.")
    return Record(
        name=name,
        title=str(claim["title"]),
        command=f"python benchmarks/{command}",
        commit=commit,
        date=datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        machine=f"{os.cpu_count()} cores, Python {platform.python_version()}",
        versions=versions_here(),
        seconds=round(time.perf_counter() - begun, 1),
        lines=lines,
    )


def main() -> None:
    claims = read_claims()
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(claims))
    parser.add_argument("--long", action="store_true", help="also those above ten minutes")
    given = parser.parse_args()
    unknown = [name for name in given.names if name not in claims]
    if unknown:
        parser.error(f"no benchmark is called {unknown[0]!r}: choose from {', '.join(claims)}")
    chosen = given.names or [n for n, claim in claims.items() if given.long or "long" not in claim]
    for name in chosen:
        print(f"# {name}", flush=True)
        run(name, claims[name]).save()


if __name__ == "__main__":
    main()
