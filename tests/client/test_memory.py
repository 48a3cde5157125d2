"""Weights once, activations and scratch for each context."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.client.scripted import Scripted, answer
from tests.client.wire import DIGEST, manifest
from trtforge.cli.main import app
from trtforge.contract.engines import Memory
from trtforge.memory import memory_plan

sizes = st.integers(0, 1 << 40)


@given(sizes, sizes, sizes, st.integers(1, 64))
@settings(deadline=None)
def test_one_more_context_costs_its_own_memory_and_no_weights(weights: int, activations: int, scratch: int, n: int):
    memory = Memory(weights_bytes=weights, activation_bytes=activations, scratch_bytes=scratch)
    one, more = memory_plan(memory, n), memory_plan(memory, n + 1)
    assert one
    assert more
    assert more.total_bytes - one.total_bytes == activations + scratch
    assert one.total_bytes - n * one.context_bytes == weights


def test_what_the_builder_did_not_say_is_not_invented():
    assert memory_plan(Memory(weights_bytes=None, activation_bytes=1, scratch_bytes=1), 1) is None
    assert memory_plan(Memory(weights_bytes=1, activation_bytes=None, scratch_bytes=1), 1) is None


def test_the_command_adds_it_up():
    memory = {"weights_bytes": 1 << 20, "activation_bytes": 2 << 20, "scratch_bytes": 1 << 20}
    with Scripted([answer(body=manifest() | {"memory": memory})]) as server:
        words = ["show", DIGEST, "--contexts", "4", "--url", server.url]
        told = CliRunner().invoke(app, words).stdout
        assert "budget 13.0 MiB: weights 1.0 MiB once + 4 × 3.0 MiB of activations and scratch" in told
        told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
        assert told["total_bytes"] == 13 << 20
