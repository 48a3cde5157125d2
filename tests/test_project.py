"""What the whole project keeps to: short files, used and documented codes, and the routes of the contract."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.main import create_app
from app.settings import Settings
from trtforge.contract.failures import CODES

HERE = Path(__file__).parents[1]
SOURCES = ("app", "client", "tests", "benchmarks", "migrations")
LINES = 400
LATER = "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3))  # in pieces, so that this file passes


def files() -> Iterator[Path]:
    for folder in SOURCES:
        yield from (p for p in (HERE / folder).rglob("*.py") if not {"build", ".venv"} & set(p.parts))


def test_files_stay_short() -> None:
    long = {str(p.relative_to(HERE)): n for p in files() if (n := len(p.read_text().splitlines())) > LINES}
    assert long == {}


def test_nothing_is_left_for_later() -> None:
    found = [str(p.relative_to(HERE)) for p in files() if re.search(rf"\b({LATER})\b", p.read_text())]
    assert found == []


def test_every_code_is_used_and_says_what_to_do() -> None:
    checks = HERE / "client/trtforge/signature.py"  # which the service checks signatures by
    used = "\n".join(p.read_text() for p in files() if p.is_relative_to(HERE / "app") or p == checks)
    for code in CODES.values():
        assert code.meaning.endswith(".")
        assert code.remedy.endswith(".")
        if code.code not in STOPS:
            assert f'"{code.code}"' in used, code.code


STOPS = {"run_timeout", "queue_timeout", "stall_timeout"}  # failures named by the kind of stop that was asked


def undocumented(readme: str) -> list[str]:
    """Return the codes that a text does not name as code."""
    return [code for code in CODES if f"`{code}`" not in readme]


def test_undocumented_codes_are_found() -> None:
    assert undocumented("") == list(CODES)
    assert undocumented(" ".join(f"`{code}`" for code in CODES)) == []


def untested(tests: str) -> list[str]:
    """Return the codes that no test expects by name."""
    return [code for code in CODES if f'"{code}"' not in tests]


def test_every_code_is_expected_by_a_test() -> None:
    assert untested("") == list(CODES)
    assert untested("\n".join(p.read_text() for p in (HERE / "tests").rglob("test_*.py"))) == []


@pytest.fixture
def openapi(tmp_path: Path) -> dict[str, dict[str, dict[str, object]]]:
    app = create_app(Settings(data_dir=tmp_path / "data", lock_dir=tmp_path / "locks"))
    schema: dict[str, dict[str, dict[str, object]]] = app.openapi()
    return schema


def test_every_route_says_what_it_does(openapi: dict[str, dict[str, dict[str, object]]]) -> None:
    silent = [path for path, item in openapi["paths"].items() for op in item.values() if not op.get("description")]  # type: ignore[attr-defined]
    assert silent == []


def test_operations_have_ids_of_their_own(openapi: dict[str, dict[str, dict[str, object]]]) -> None:
    operations = [op for item in openapi["paths"].values() for op in item.values()]
    ids = [op["operationId"] for op in operations]  # type: ignore[index]
    assert len(set(ids)) == len(ids)


def test_nothing_of_the_builder_is_imported_by_the_service(tmp_path: Path) -> None:
    code = (
        "import sys; from app.main import create_app; from app.settings import Settings; from pathlib import Path;"
        f"create_app(Settings(data_dir=Path({str(tmp_path / 'd')!r}), lock_dir=Path({str(tmp_path / 'l')!r})));"
        "print([m for m in ('onnx', 'tensorrt_rtx', 'tensorrt', 'numpy') if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=HERE, timeout=60)
    assert shown.stdout == "[]\n", shown.stderr
