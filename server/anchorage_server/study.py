"""The documents that a server works on."""

from anchorage.api.errors.documents import NOT_A_DOCUMENT
from anchorage.api.files import Study
from anchorage.api.mistakes import DocumentError, Mistake
from anchorage.api.source import read_documents
from anchorage.methods import validate_study
from anchorage.methods.validation import validate_documents
from anchorage_server.config import ServerConfig


def read_study(config: ServerConfig) -> Study:
    """Read the federation with its silos; in a cluster without silos, which come and go while the server runs.

    Raises
    ------
    DocumentError
        With every mistake.
    """
    if config.control_listen is None:
        return validate_study(config.federation)
    documents = [d for d in read_documents(config.federation) if d.value.get("kind") == "Federation"]
    if len(documents) != 1:
        found = f"found {len(documents)} documents with kind: Federation, allowed is one"
        raise DocumentError([Mistake(NOT_A_DOCUMENT, (), found, where=str(config.federation))])
    federation, _ = validate_documents(documents[0].value)
    return Study(federation, (), config.federation, tuple(documents))
