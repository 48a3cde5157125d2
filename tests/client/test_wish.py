"""Options of the full builder, as they are written on the command line."""

import pytest
import typer

from trtforge.cli.wish import extras, plugins_of, spec_of


def test_words_become_fields():
    words = ["refit=identical", "sparsity=true", "tactic_dram_bytes=1GiB", "tactic_sources=cudnn,cublas"]
    spec = spec_of((), 3, None, None, words)
    assert (spec.refit, spec.sparsity, spec.tactic_dram_bytes) == ("identical", True, 1 << 30)
    assert spec.tactic_sources == ("cudnn", "cublas")
    assert spec.model_fields_set == {"optimization_level", "refit", "sparsity", "tactic_dram_bytes", "tactic_sources"}
    assert extras(None) == {}


def test_plugins_are_named_one_by_one():
    spec = spec_of((), None, None, None, ["plugins_to_serialize=one"], ["one", "two"])
    assert (spec.plugins, spec.plugins_to_serialize) == (("one", "two"), ("one",))
    assert plugins_of(None) == plugins_of([]) == {}
    with pytest.raises(typer.BadParameter, match="evil"):
        plugins_of(["/lib/evil.so"])


@pytest.mark.parametrize("word", ["refit", "profiles=1", "sparsity=2", "tactic_dram_bytes=much"])
def test_what_is_no_option_is_refused(word):
    with pytest.raises(typer.BadParameter):
        extras([word])
