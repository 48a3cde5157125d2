"""What a child can see and what it cannot: secrets, homes, modules beside the uploaded names."""

import os

from app.worker.messages import ProbeRequest
from app.worker.process import Child
from tests.worker.models import build_request, chain, folder_with, run, run_child, script


def test_the_child_sees_no_secret_and_no_other_home(tmp_path, monkeypatch):
    for name in ("TRTFORGE_ADMIN_TOKEN", "TRTFORGE_DATABASE_URL", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD"):
        monkeypatch.setenv(name, "s3cr3t")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", "") + ":relative:")

    async def main():
        printed = bytearray()
        body = "print('\\n'.join(f'{k}={v}' for k, v in os.environ.items()))"
        child = await Child.spawn(ProbeRequest("tensorrt_rtx"), tmp_path, printed.extend, argv=script(body))
        await child.wait()
        return printed.decode().splitlines()

    lines = run(main())
    assert not [line for line in lines if "s3cr3t" in line]
    assert {"CUDA_VISIBLE_DEVICES=1", f"HOME={tmp_path}", f"TMPDIR={tmp_path}"} <= set(lines)
    (import_path,) = [line for line in lines if line.startswith("PYTHONPATH=")]
    assert all(entry.startswith("/") for entry in import_path.removeprefix("PYTHONPATH=").split(":"))


def test_names_in_the_folder_shadow_no_module(tmp_path):
    for name in ("json", "onnx", "app", "sitecustomize", "usercustomize", "ctypes", "tensorrt_rtx"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(99)")
    messages, ended, _ = run(run_child(build_request(), folder_with(tmp_path, chain(1))))
    assert (messages[-1].type, ended.code) == ("built", 0)
