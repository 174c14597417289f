"""Imports of commands: what is hidden from them, and what is as before after them."""

import gc
import importlib
import sys

import pytest

from gcws_search.imports import quick_imports


def test_a_hidden_module_is_missing_inside_and_there_again_after() -> None:
    sys.modules.pop("this", None)
    with quick_imports("this", "gcws_search"):
        assert not gc.isenabled()
        with pytest.raises(ImportError):
            importlib.import_module("this")
        importlib.import_module("gcws_search")  # it was loaded
    assert "this" not in sys.modules
    assert importlib.util.find_spec("this") is not None
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off_and_an_error_restores_all() -> None:
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), quick_imports("this"):
            raise ZeroDivisionError
        assert not gc.isenabled()
        assert "this" not in sys.modules
    finally:
        gc.enable()
