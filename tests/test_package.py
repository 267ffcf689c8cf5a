"""The package: what a wheel contains, and that everything that names the version or the Pythons
agrees.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import odeco

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_a_wheel_contains_every_file_of_the_source(tmp_path):
    """Templates, styles, scripts, stubs and the mark of typed packages are needed where odeco is
    installed.
    """
    wheel = pytest.importorskip("hatchling.builders.wheel")
    built = next(
        iter(wheel.WheelBuilder(str(ROOT)).build(directory=str(tmp_path), versions=["standard"]))
    )
    with zipfile.ZipFile(built) as archive:
        packed = {name for name in archive.namelist() if name.startswith("odeco/")}
    files = [
        path
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]
    source = {
        path.relative_to(ROOT / "src").as_posix() for path in files if "egg-info" not in str(path)
    }
    assert {"odeco/py.typed", "odeco/display/page.html", "odeco/__init__.pyi"} <= source
    assert packed == source


def test_the_version_is_the_same_everywhere():
    assert (
        re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.M)[1]
        == odeco.__version__
    )
    assert (
        re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)[1] == odeco.__version__
    )


def test_the_same_pythons_are_named_and_tested():
    named = [
        each.rpartition(" ")[2]
        for each in PROJECT["classifiers"]
        if re.search(r"Python :: 3\.\d+$", each)
    ]
    assert PROJECT["requires-python"] == f">={named[0]}"
    assert f"for version in {' '.join(named)};" in (ROOT / "tools" / "pythons.sh").read_text()
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    assert set(re.findall(r'"(3\.\d+)"', workflow)) == set(named)


def test_the_description_on_pypi_has_no_link_into_the_repository():
    text = PROJECT["readme"]["text"]
    assert [
        link for link in re.findall(r"\]\(([^)]*)\)", text) if not link.startswith("https://")
    ] == []
    (in_readme, *_), (first, *_) = (
        (whole.split("\n\n")[1:]) for whole in ((ROOT / "README.md").read_text(), text)
    )
    assert first == in_readme


def test_the_conda_recipe_needs_what_the_package_needs():
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text()
    assert re.search(r"(?m)^  version: (\S+)", recipe)[1] == odeco.__version__
    _, _, run = recipe.partition("  run:\n")
    listed = dict(re.findall(r"(?m)^    - (\S+) >=(\S+)$", run))
    listed["matplotlib"] = listed.pop("matplotlib-base")  # as conda-forge calls it
    extras = PROJECT["optional-dependencies"]
    wanted = [*PROJECT["dependencies"], *(each for name in extras for each in extras[name])]
    lowest = dict(re.match(r"([\w-]+)>=(\S+)", each).groups() for each in wanted if ">=" in each)
    for cluster in ("dask", "distributed"):  # which conda users add themselves
        del lowest[cluster]
    assert listed == {"python": PROJECT["requires-python"].removeprefix(">="), **lowest}


@pytest.mark.long
def test_the_examples_of_the_readme_run_where_nothing_but_the_wheel_is_installed(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel").WheelBuilder(str(ROOT))
    wheel = next(iter(builder.build(directory=str(tmp_path), versions=["standard"])))
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", f"{wheel}[all]"], check=True)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(examples) == 3
    for example in examples:
        done = subprocess.run(
            [python, "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout
