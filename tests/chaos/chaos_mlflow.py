"""MLflow's own tracking server in one process: ``python chaos_mlflow.py FOLDER PORT``."""

import os
import sys


def main() -> None:
    folder, port = sys.argv[1:]
    from mlflow import server

    os.environ[server.BACKEND_STORE_URI_ENV_VAR] = f"sqlite:///{folder}/mlflow.db"
    os.environ[server.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[server.ARTIFACTS_DESTINATION_ENV_VAR] = f"{folder}/artifacts"
    os.environ[server.SERVE_ARTIFACTS_ENV_VAR] = "true"
    from werkzeug.serving import make_server

    make_server("127.0.0.1", int(port), server.app, threaded=True).serve_forever()


if __name__ == "__main__":
    main()
