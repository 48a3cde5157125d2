"""How every address that asks for a build answers."""

from fastapi import Response

from trtforge.contract.builds import Submitted


def told(response: Response, answer: Submitted) -> Submitted:
    """Return `answer`: 201 where a build was made for it, else 200, and in `Location` where to go on."""
    response.status_code = 201 if answer.disposition == "created" else 200
    if answer.build:
        response.headers["Location"] = f"/v1/builds/{answer.build.id}"
    elif answer.engine:
        response.headers["Location"] = f"/v1/engines/{answer.engine.engine_key}"
    return answer
