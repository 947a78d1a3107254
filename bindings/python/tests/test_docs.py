"""The examples of the docstrings run and show what they say; pydoc shows every public name."""

import doctest
import importlib
import inspect
import pkgutil
import pydoc
import textwrap

import pytest

import kvcl

MODULES = [name for _, name, _ in pkgutil.walk_packages(kvcl.__path__, "kvcl.", onerror=lambda _: None)
           if not name.endswith(("._kvcl", ".__main__"))]
OWN = [name for name in MODULES if name.startswith("kvcl._")]  # the others may need an engine


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name in OWN or str(error.name).startswith("kvcl"):
            raise
        pytest.skip(f"no {error.name}")
    result = doctest.testmod(module)
    assert result.failed == 0


def test_there_are_examples():
    finder = doctest.DocTestFinder()
    with_examples = {name[5:] for name in OWN for test in finder.find(importlib.import_module(name))
                     if test.examples}
    assert with_examples >= {"_cache", "_comm", "_context", "_errors", "_keys", "_mem", "_query", "_request",
                             "_reshard", "_store"}


def test_the_first_example(monkeypatch):
    monkeypatch.setenv("KVCL_BOOT", "self")
    text = kvcl.__doc__
    code = textwrap.dedent(text[text.index("    import kvcl"):text.index("\nOperations return")])
    for _ in range(2):  # another job, with nothing left of the first
        exec(compile(code, "the docstring of kvcl", "exec"), {})


@pytest.mark.parametrize("name", kvcl.__all__)
def test_every_public_name_is_documented(name):
    public = getattr(kvcl, name)
    if not (inspect.isclass(public) or callable(public)):
        return
    assert inspect.getdoc(public), f"kvcl.{name} has no docstring"
    assert name in pydoc.render_doc(public, renderer=pydoc.plaintext)
    if inspect.isclass(public):
        own = [f"{cls.__name__}.{member}" for cls in public.__mro__ if cls.__module__.startswith("kvcl")
               for member, value in vars(cls).items() if not member.startswith("_")
               and (inspect.isroutine(value) or isinstance(value, property)) and not inspect.getdoc(value)]
        assert not own, f"no docstring: {own}"
