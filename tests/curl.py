"""The few options of curl that README.md uses, for machines that have no curl: `python tests/curl.py OPTIONS URL`."""

import argparse
import sys
from pathlib import Path

import httpx


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("-f", "--fail", action="store_true")
    for flag in "sSN":
        parser.add_argument(f"-{flag}", action="store_true")
    parser.add_argument("-X", dest="method")
    parser.add_argument("-H", dest="headers", action="append", default=[])
    parser.add_argument("-d", dest="body")
    parser.add_argument("-T", dest="upload", type=Path)
    parser.add_argument("-o", dest="output", type=Path)
    asked = parser.parse_args()
    content = asked.upload.read_bytes() if asked.upload else asked.body.encode() if asked.body else None
    method = asked.method or ("PUT" if asked.upload else "POST" if asked.body else "GET")
    headers = dict(header.split(": ", 1) for header in asked.headers)
    with httpx.stream(method, asked.url, content=content, headers=headers, timeout=120) as answer:
        if asked.fail and answer.is_error:
            print(f"curl: (22) {answer.status_code}: {answer.read().decode()}", file=sys.stderr)
            return 22
        with asked.output.open("wb") if asked.output else open(sys.stdout.fileno(), "wb", closefd=False) as out:
            for piece in answer.iter_raw():
                out.write(piece)
    return 0


if __name__ == "__main__":
    sys.exit(main())
