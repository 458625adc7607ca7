"""Who may use the chart's MLflow: the authorization function of MLflow's own log-in (``mlflow server --app-name basic-auth``).

The administrator's password is the one of the platform's Secret, so that a new one is in force when the Secret has it. A federation's is
derived from the platform's key; its user is made when it first comes, and has what MLflow gives a user: its own experiments and models.
Users whom the administrator makes in MLflow log in as ever.
"""

import hmac
import os
import secrets
from pathlib import Path

from flask import Response, request
from mlflow.exceptions import MlflowException
from mlflow.server import auth
from werkzeug.datastructures import Authorization

from anchorage.api.regular_files import read_regular
from anchorage.transport.mlflow_login import FEDERATION_USERS, federation_password

FOLDER = "ANCHORAGE_MLFLOW_LOGIN"
"""Environment variable with the folder that has ``admin-password`` and ``federations-key``."""
ADMIN = "admin"


def authenticate() -> Authorization | Response:
    """Return who asks, or the answer that asks for a log-in. MLflow calls it for every request."""
    login = request.authorization
    if login is None or login.type != "basic" or login.username is None or login.password is None:
        return auth.make_basic_auth_response()
    user = login.username
    if user == ADMIN:
        return login if _same(login.password, _read("admin-password")) else auth.make_basic_auth_response()
    if user.startswith(FEDERATION_USERS):
        expected = federation_password(_read("federations-key").encode(), user)
        if not _same(login.password, expected):
            return auth.make_basic_auth_response()
        _make_user(user)
        return login
    return auth.authenticate_request_basic_auth()


def _make_user(user: str) -> None:
    """Make a user, whose password in MLflow's own table nobody knows, unless it is there."""
    if auth.store.has_user(user):
        return
    try:
        auth.store.create_user(user, secrets.token_urlsafe(32))
    except MlflowException:
        if not auth.store.has_user(user):  # else another request of the same federation was faster
            raise


def _same(password: str, expected: str) -> bool:
    return hmac.compare_digest(password.encode(), expected.encode())


def _read(name: str) -> str:
    """Return what a file of the Secret says.

    Raises
    ------
    MlflowException
        The file is empty: nobody logs in with an empty password.
    """
    text = read_regular(Path(os.environ[FOLDER], name)).decode().strip()
    if not text:
        raise MlflowException(f"{name} of MLflow's log-in is empty")
    return text
