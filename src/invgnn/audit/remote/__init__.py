"""Ask a suspect over HTTP, and keep a record of all answers."""

from invgnn.audit.remote.endpoint import Endpoint
from invgnn.audit.remote.transcript import Transcript

__all__ = ["Endpoint", "Transcript"]
