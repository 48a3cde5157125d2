"""`trtforge doctor` against the real service: problems first, a table, the fix as a command line."""

import json
import shlex

from tests.client.test_command import trtforge
from tests.conftest import ocr, silero

SHAPES = ["--minShapes=x:1x3x32x32", "--optShapes=x:1x3x32x320", "--maxShapes=x:2x3x48x640"]


def test_the_recogniser_is_told_its_height_and_the_command_that_is_proposed_passes(service):
    ended = trtforge("doctor", ocr("rec"), *SHAPES, url=service.url)
    assert ended.exit_code == 1, ended.output
    first, *_ = lines = ended.output.splitlines()
    assert first.startswith("problem  shape_invalid: Profile 0: at opt, Reshape")
    row = next(line for line in lines if line.startswith("2 ") or " 2 " in line[:30])
    assert "32 / 32 / 48  ← here" in row
    command = shlex.split(lines[-1])
    assert command[:2] == ["trtforge", "build"]
    again = trtforge("doctor", *command[2:], url=service.url)
    assert again.exit_code == 0, again.output


def test_without_shapes_it_proposes_some(service):
    ended = trtforge("doctor", ocr("det"), url=service.url)
    assert ended.exit_code == 1
    assert "profile_required" in ended.output
    command = shlex.split(ended.output.splitlines()[-1])
    assert trtforge("doctor", *command[2:], url=service.url).exit_code == 0


def test_json_is_the_answer_of_the_service(service):
    path = silero("silero_vad_op18_ifless")
    shapes = ["--minShapes=input:1x1,state:2x1x128", "--optShapes=input:1x512,state:2x1x128"]
    ended = trtforge("doctor", path, *shapes, "--maxShapes=input:1x600,state:2x1x128", "--json", url=service.url)
    found = json.loads(ended.stdout)
    assert (ended.exit_code, found["ok"]) == (1, False)
    assert found["problems"][0]["where"]["smallest_legal"] == 64


def test_shapes_that_cannot_be_read_are_wrong_usage(service):
    assert (
        trtforge("doctor", ocr("det"), "--minShapes=x", "--optShapes=x", "--maxShapes=x", url=service.url).exit_code
        == 2
    )
