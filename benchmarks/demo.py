"""What the service does, in under a minute: `python -m benchmarks.demo` (or `make demo`).

Build an engine and watch it, get it again at once, stop a build while the builder says nothing, fetch and verify.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep

from benchmarks.service import Service, light_model
from trtforge.cli.lines import cancelled
from trtforge.cli.manifest import summary
from trtforge.cli.progress import screen
from trtforge.cli.text import console, seconds, size
from trtforge.client import Client
from trtforge.contract.builds import Build, Submit

OUT = console()
SILENT_S = 1.5  # longer than the pauses between callbacks, shorter than the silent window of light_densenet121
LOOK_S = 60.0


class Surprise(Exception):
    """Something is not as it should be."""


def main() -> int:
    with TemporaryDirectory(prefix="trtforge-demo-") as name:
        folder = Path(name)
        service = Service(folder)
        try:
            run(service, folder)
        except (Exception, KeyboardInterrupt) as error:
            say(f"\nThe demonstration failed: {type(error).__name__}: {error}\n\nLast lines of the service's log:")
            say(service.log_tail())
            return 1
    if folder.exists():
        say(f"{folder} is still there.")
        return 1
    say("The folder is gone. Done.")
    return 0


def run(service: Service, folder: Path) -> None:
    say("Starting `trtforge serve` in an empty folder …")
    begun = monotonic()
    with service:
        say(f"Ready at {service.url} after {seconds(monotonic() - begun)}.")
        with Client(service.url) as client:
            engine_key = build_and_watch(client)
            ask_again(client, engine_key)
            stop_in_silence(client)
            fetch(client, engine_key, folder / "resnet50.plan")
        say("\n5. Stop the service (SIGTERM).")
        begun = monotonic()
        code = service.stop()
        need(code == 0, f"the service ended with {code}")
        say(f"It ended with 0 after {seconds(monotonic() - begun)}.")


def build_and_watch(client: Client) -> str:
    say("\n1. Build ResNet-50 and watch the builder's phases.")
    model = client.upload(light_model("resnet50"))
    say(f"Uploaded {model.digest} ({size(model.size)}, {model.node_count} nodes).")
    submitted = client.submit(Submit(model=model.digest))
    need(submitted.disposition == "created" and submitted.build is not None, f"disposition {submitted.disposition}")
    assert submitted.build
    build = watch(client, submitted.build.id)
    need(build.state == "succeeded", f"the build {build.state}: {build.failure or build.cancel}")
    say(f"Built: engine {build.engine_key}.")
    return build.engine_key


def watch(client: Client, build_id: str) -> Build:
    with screen(OUT, build_id, as_json=False) as shown:
        for event in client.events(build_id):
            shown.show(event)
    return client.build(build_id)


def ask_again(client: Client, engine_key: str) -> None:
    say("\n2. Ask for the same engine again.")
    digest = client.manifest(engine_key).model.digest
    begun = monotonic()
    submitted = client.submit(Submit(model=digest))
    took = (monotonic() - begun) * 1000
    need(submitted.disposition == "cached" and submitted.engine is not None, f"disposition {submitted.disposition}")
    say(f"Answer: {submitted.disposition}, after {took:.0f} ms; nothing was built.")


def stop_in_silence(client: Client) -> None:
    say("\n3. Stop a build while the builder says nothing. DenseNet-121 is silent for most of its build.")
    model = client.upload(light_model("densenet121"))
    submitted = client.submit(Submit(model=model.digest))
    need(submitted.build is not None, f"disposition {submitted.disposition}")
    assert submitted.build
    watcher = Thread(target=watch_apart, args=(client.url, submitted.build.id), daemon=True)
    watcher.start()
    silent_s = await_silence(client, submitted.build.id)
    begun = monotonic()
    client.cancel(submitted.build.id, reason="demonstration")
    build = client.build(submitted.build.id, wait_s=60)
    took = monotonic() - begun
    watcher.join(LOOK_S)
    need(build.state == "cancelled" and build.cancel is not None, f"the build {build.state}")
    assert build.cancel
    say(f"DELETE was sent after {seconds(silent_s)} without a callback; the build was gone {seconds(took)} later.")
    say(f"It was {cancelled(build.cancel)} (ended_by: {build.cancel.ended_by}).")


def watch_apart(url: str, build_id: str) -> None:
    """Watch in a thread, with a client of its own."""
    with Client(url) as client:
        watch(client, build_id)


def await_silence(client: Client, build_id: str) -> float:
    """Return how long the builder has been silent, once that is longer than `SILENT_S`."""
    end = monotonic() + LOOK_S
    while monotonic() < end:
        build = client.build(build_id)
        need(build.state in ("queued", "running"), f"the build {build.state} before it was silent")
        if build.stage == "build" and build.progress and build.progress.silent_s > SILENT_S:
            return build.progress.silent_s
        sleep(0.1)
    raise Surprise(f"the builder was never silent for {SILENT_S} s")


def fetch(client: Client, engine_key: str, path: Path) -> None:
    say("\n4. Fetch the plan and verify it.")
    begun = monotonic()
    manifest = client.fetch(engine_key, path)
    need(path.stat().st_size == manifest.plan.size, "the plan has another size than the manifest says")
    say(f"{size(manifest.plan.size)} in {seconds(monotonic() - begun)}, sha256 as the manifest says.")
    say(summary(manifest))


def need(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Surprise(otherwise)


def say(words: str) -> None:
    OUT.print(words, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
