"""The one list of codes: what went wrong, who can mend it, how, and whether trying again can help."""

from trtforge.contract.failures.artifacts import ARTIFACTS
from trtforge.contract.failures.builds import BUILDS
from trtforge.contract.failures.code import Code, Who
from trtforge.contract.failures.engines import ENGINES
from trtforge.contract.failures.models import MODELS
from trtforge.contract.failures.requests import REQUESTS
from trtforge.contract.failures.submits import SUBMITS

CODES: dict[str, Code] = {c.code: c for c in (*REQUESTS, *MODELS, *SUBMITS, *ENGINES, *ARTIFACTS, *BUILDS)}

__all__ = ["CODES", "Code", "Who"]
