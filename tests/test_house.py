"""The house is as CONTRIBUTING draws it: bands, faces of packages, and names that stay."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "odeco"


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        yield (
            "odeco." + ".".join(path.relative_to(SOURCE).with_suffix("").parts),
            ast.parse(path.read_text()),
        )


def imports_of(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("odeco"):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("odeco"))


def test_a_name_with_an_underscore_is_used_only_in_its_own_module():
    reached = []
    for importer, tree in modules():
        for imported in imports_of(tree):
            name = imported.rpartition(".")[2]
            if name.startswith("_") and name not in ("_util", "__version__"):
                reached.append(f"{importer} imports {imported}")
    assert not reached


def test_the_picture_in_contributing_has_the_bands_that_the_linter_holds():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
    bands = [{name.strip() for name in re.split(r"[|:]", band)} for band in contracts[0]["layers"]]
    picture = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
    drawn = [
        set(line.split("  ", 1)[0].split())
        for line in picture.splitlines()
        if line and not line.startswith(" ")
    ]
    assert drawn == bands


def test_every_file_that_contributing_names_is_there():
    files = re.findall(
        r"`(?:src/odeco/)?([a-z_0-9]+(?:/[a-z_0-9]+)+\.py)`", (ROOT / "CONTRIBUTING.md").read_text()
    )
    files = [file for file in files if file.split("/")[0] not in ("tests", "tools", "benchmarks")]
    assert len(files) >= 4
    assert [file for file in files if not (SOURCE / file).exists()] == []


def test_every_name_in_the_reference_can_be_imported():
    text = (ROOT / "docs" / "api" / "index.md").read_text()
    module, names = "", []
    for line in text.splitlines():
        current = re.match(r"\.\. currentmodule:: (\S+)", line)
        entry = re.match(r"   ([A-Za-z_.]+)$", line)
        if current:
            module = current[1]
        elif entry:
            names.append(f"{module}.{entry[1]}")
    assert len(names) > 60
    for name in names:
        holder, _, attribute = name.rpartition(".")
        try:
            found = importlib.import_module(holder)
        except ModuleNotFoundError:  # a class within a module
            pytest.fail(f"{name}: there is no module {holder}")
        assert hasattr(found, attribute), name


STUBS = sorted(SOURCE.rglob("__init__.pyi"))
PACKAGES = [".".join(stub.parent.relative_to(SOURCE.parent).parts) for stub in STUBS]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_lazy_package_shows_its_public_names_only_and_has_them_all(package):
    module = importlib.import_module(package)
    assert dir(module) == module.__all__
    stub = ast.parse(Path(f"{module.__file__}i").read_text())
    for node in stub.body:
        # Import-linter does not read stubs.
        assert f"{node.module}.".startswith((f"{package}.", "odeco.errors.", "odeco._util."))
        for alias in node.names:
            own = importlib.import_module(node.module)
            assert getattr(module, alias.name) is getattr(own, alias.name)
    with pytest.raises(AttributeError, match="nonsense"):
        module.nonsense  # noqa: B018


def test_a_function_goes_before_the_package_of_its_name():
    code = (
        "import odeco.decompose.symmetric, odeco; assert odeco.decompose is "
        "odeco.decompose.__globals__['decompose']"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import odeco.privacy.audit; from odeco.privacy import audit; assert callable(audit)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_odeco_loads_nothing_that_takes_long():
    code = """
import sys, odeco
assert "numpy" not in sys.modules
for name in dir(odeco):
    getattr(odeco, name)
slow = {"scipy.stats", "scipy.optimize", "sklearn", "matplotlib", "pyarrow", "dask", "numba"} & set(sys.modules)
assert not slow, slow
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_is_printed_without_importing_numpy():
    code = (
        "import sys, odeco.cli.app as app; app.run(['--version']); sys.exit('numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
