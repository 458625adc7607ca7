"""What to do where MLflow lets nobody in, or not this user."""

from mlflow.exceptions import MlflowException
from requests import HTTPError

LOG_IN = (
    "MLflow asks for a user and password that it knows: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD; servers in a cluster have them of "
    "the platform (defaults.trackingSecret, mlflow.auth)"
)
PERMISSION = (
    "MLflow's user may not: the experiment or registered model is somebody else's; name another one in spec.tracking, or have MLflow's administrator "
    "grant it"
)


def refusal_hint(error: Exception) -> str:
    """Return what to do about an answer of MLflow with HTTP status 401 or 403; empty for any other error."""
    status = None
    if isinstance(error, MlflowException):
        status = error.get_http_status_code()  # type: ignore[no-untyped-call]
    elif isinstance(error, HTTPError) and error.response is not None:  # of artifacts
        status = error.response.status_code
    return {401: LOG_IN, 403: PERMISSION}.get(status or 0, "")
