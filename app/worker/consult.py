"""In a child: what the shape doctor and the builder's own parser say of a model, without building it."""

import importlib
import sys
import threading
import traceback
from typing import Any

from app.intake.unfit import Finding, Report, finding
from app.worker.messages import Examined, Failed, PreflightRequest
from app.worker.native_log import NativeLog, logger_for
from app.worker.plugins import Unusable, load
from app.worker.scrub import Scrubber
from app.worker.verdict import parse_failure, values_missing

DOCTOR_S = 3.0  # seconds that the doctor may take before a build


def examine(request: PreflightRequest, stop: threading.Event, scrub: Scrubber) -> Examined:
    """Return everything that is wrong, the shapes' problems first."""
    report = consult(request.model, request.profiles, request.doctor_s, stop, scrub)
    return Examined([*report.problems, *_verdict(request, scrub)], report.warnings, report.profiles)


def consult(
    model: str, profiles: list[dict[str, dict[str, Any]]], seconds: float, stop: threading.Event, scrub: Scrubber
) -> Report:
    """Ask the shape doctor. It only advises: where it fails itself, it has found nothing."""
    if not profiles:
        return Report()
    import onnx  # only where there are profiles to examine: 0.2 s

    from app.intake.doctor import examine as ask_doctor

    try:
        return ask_doctor(onnx.load(model, load_external_data=False), profiles, seconds, stop.is_set)
    except Exception:
        sys.stderr.write(scrub(traceback.format_exc(), 1 << 14))
        return Report(profiles=profiles)


def _verdict(request: PreflightRequest, scrub: Scrubber) -> list[Finding]:
    trt = importlib.import_module(request.builder)
    log = NativeLog(lambda _: None, scrub)
    logger = logger_for(trt, log)
    builder = trt.Builder(logger)
    try:
        load(trt, request.plugins)
    except Unusable as unusable:
        return [finding("plugin_unusable", str(unusable), plugin=unusable.plugin)]
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(request.model) or parser.num_errors:
        return _findings(parse_failure(parser, request.model, log.first_error, scrub))
    missing = values_missing(network, request.profiles)
    return [finding(missing.code, missing.message, **missing.where)] if missing else []


def _findings(failed: Failed) -> list[Finding]:
    """One for each node that is not supported, else the parser's complaint."""
    nodes = failed.where.get("nodes", ())
    if not nodes:
        return [finding(failed.code, failed.message, native=failed.native, **failed.where)]
    refused = "is not supported" if failed.code == "op_unsupported" else "is refused"
    return [
        finding(
            failed.code,
            f"{_operator(node)} {node['name'] or node['node']} {refused}: {node['text'] or 'no reason given'}",
            **node,
        )
        for node in nodes
    ]


def _operator(node: dict[str, Any]) -> str:
    return f"{node['domain']}:{node['op']}" if node["domain"] else str(node["op"])
