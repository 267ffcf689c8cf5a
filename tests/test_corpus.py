"""The corpus that every Python carries."""

from __future__ import annotations

from itertools import islice

from odeco.datasets import Document, python_code, python_documentation

SOURCE = '''
"""The module."""
import os
if os.name == "posix":
    def system():
        """The system's."""
class First:
    """The class."""
    def method(self):
        """The method."""
        def inner():
            """Inside."""
    async def silent(self): pass
raise RuntimeError("this file must not be executed")
'''


def test_every_documentation_string_is_found_in_order_and_nothing_is_executed(tmp_path):
    (tmp_path / "package" / "test").mkdir(parents=True)
    (tmp_path / "package" / "module.py").write_text(SOURCE)
    (tmp_path / "package" / "__init__.py").write_text('"""The package."""')
    (tmp_path / "package" / "test" / "test_it.py").write_text('"""A test."""')
    (tmp_path / "broken.py").write_text("this is no Python")
    (tmp_path / "odd.py").write_bytes(b'"""\xff"""')
    (tmp_path / "escape.py").write_text('"""Warned about."""\npath = "\\d"')
    assert list(python_documentation(tmp_path)) == [
        Document("escape", "escape", "Warned about."),
        Document("package", "package", "The package."),
        Document("package.module", "package.module", "The module."),
        Document("package.module.system", "package.module", "The system's."),
        Document("package.module.First", "package.module", "The class."),
        Document("package.module.First.method", "package.module", "The method."),
        Document("package.module.First.method.inner", "package.module", "Inside."),
    ]


def test_the_code_of_a_function_has_no_documentation_string_in_it(tmp_path):
    (tmp_path / "module.py").write_text(SOURCE)
    assert list(python_code(tmp_path)) == [
        Document("module.system", "module", "    def system():"),
        Document("module.First.method", "module", "    def method(self):\n        def inner():"),
        Document("module.First.silent", "module", "    async def silent(self): pass"),
    ]


def test_the_standard_library_is_there():
    first = list(islice(python_documentation(), 300))
    assert len(first) == 300
    assert len({document.name for document in first}) > 290  # overloads share a name
    assert all(document.text.strip() for document in first)
