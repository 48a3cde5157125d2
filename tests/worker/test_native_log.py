"""The builder's words: what is kept, what is left out, what is taken off."""

import os
import threading
from typing import Any

from app.worker.native_log import MOST_MESSAGES, NativeLog
from app.worker.scrub import Scrubber

NOISE = (
    "[checkMacros.cpp::catchCudaError::250] Error Code 1: Cuda Runtime (In catchCudaError at "
    "/_src/common/dispatch/checkMacros.cpp:250 (cudaError 35: CUDA driver version is insufficient for CUDA runtime "
    "version))"
)


def _log():
    said: list[Any] = []
    return NativeLog(said.append, Scrubber(["/data/attempts/7"])), said


def test_the_first_error_counts_and_noise_of_a_machine_without_a_gpu_does_not():
    log, said = _log()
    log.take("ERROR", NOISE)
    log.take("WARNING", "careful")
    log.take("ERROR", "real one in /data/attempts/7/model.onnx")
    log.take("INTERNAL_ERROR", "later one")
    assert log.first_error == "real one in model.onnx"
    assert [(m.level, m.text) for m in said] == [
        ("warning", "careful"),
        ("error", "real one in model.onnx"),
        ("error", "later one"),
    ]


def test_noise_is_cut_off_a_text_and_counts_only_where_nothing_else_was_said():
    log, said = _log()
    log.take("ERROR", NOISE)
    assert "cudaError 35" in log.first_error
    log.take("ERROR", "real\n" + NOISE)
    assert (log.first_error, [m.text for m in said]) == ("real", ["real"])
    log.enter_stage()
    assert log.first_error is None


def test_messages_are_capped_in_number_and_length():
    log, said = _log()
    for _ in range(2 * MOST_MESSAGES):
        log.take("ERROR", "x" * 9000)
    assert len(said) == MOST_MESSAGES
    assert max(len(m.text) for m in said) == 2000


def test_figures_are_the_largest_of_all_profiles():
    log, _ = _log()
    for text in (
        "Total Activation Memory: 10 bytes",
        "Total Activation Memory: 700 bytes",
        "Total Activation Memory: 20 bytes",
    ):
        log.take("INFO", text)
    assert log.figure("Total Activation Memory") == 700
    assert log.figure("Total Weights Memory") is None


def test_a_full_pipe_drops_lines_and_blocks_nobody():
    read, write = os.pipe()
    saved = os.dup(2)
    os.dup2(write, 2)
    try:
        log, said = _log()
        work = threading.Thread(target=lambda: [log.take("WARNING", "y" * 1500) for _ in range(150)], daemon=True)
        work.start()
        work.join(20)
        assert not work.is_alive()
    finally:
        os.dup2(saved, 2)
        for fd in (read, write, saved):
            os.close(fd)
    assert len(said) == 150


def test_only_known_folders_are_taken_off_since_layers_are_named_like_paths():
    scrub = Scrubber(["/data", "/data/attempts/7/", "/", ""])
    assert scrub("/data/attempts/7/m.onnx and /data/x and /data") == "m.onnx and x and "
    assert scrub("/layer1/conv/Conv, /database/x, in /_src/a.cpp") == "/layer1/conv/Conv, /database/x, in /_src/a.cpp"


def test_control_characters_and_lone_surrogates_cannot_be_stored_and_go():
    assert Scrubber([])("a\x00b\x1b[0m\ud800c\nd") == "a b [0m c\nd"
