"""Values of every option of an agent that are not its defaults, so that a test of its way covers an option that is added later."""

from typing import Any

from anchorage.api.agent import AgentOptions


def other_options(kind: type[AgentOptions] = AgentOptions) -> dict[str, Any]:
    """Return another value than the default for each option, as a document has it."""
    options = {}
    for name, schema in kind.model_json_schema(by_alias=True)["properties"].items():
        if "enum" in schema:
            options[name] = next(value for value in schema["enum"] if value != schema["default"])
        else:
            assert schema["type"] == "integer", f"say here what another value of {name} is"
            options[name] = schema["default"] + 1
    return options
